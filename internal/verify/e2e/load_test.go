package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// attempt is one PUB and its answer.
type attempt struct {
	broker   string
	from, to time.Time
	answer   history.Answer
}

// load is a set of producers at all brokers. Each has a go-nsq connection to its
// own broker, puts one body at a time, and goes to the next broker with a body
// whose attempt failed.
type load struct {
	c        *cluster
	topic    string
	feed     *feed
	acked    atomic.Int64
	wg       sync.WaitGroup
	cancel   chan struct{} // closed when the test ends: no producer retries any more
	mu       sync.Mutex
	puts     []history.Put
	attempts []attempt
	faults   []string // errors at brokers that were never down during the attempt
}

// put starts producers, each perBroker of them at every broker.
func (c *cluster) put(topic string, f *feed, perBroker int) *load {
	l := &load{c: c, topic: topic, feed: f, cancel: make(chan struct{})}
	for i := range perBroker * len(c.Brokers) {
		l.wg.Add(1)
		go l.produce(i) // ends when the feed does, or at the test's end
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.killProcesses() // no producer waits for a broker that hangs
		}
		close(l.cancel)
		f.end()
		l.wg.Wait()
	})
	return l
}

// produce is one producer; its home is one broker.
func (l *load) produce(number int) {
	defer l.wg.Done()
	p := &producer{load: l, number: number, at: number % len(l.c.Brokers), conns: clusters.NewProducers(nsq.NewConfig())}
	defer p.conns.Stop()
	for {
		body, ok := l.feed.take()
		if !ok {
			return
		}
		put := p.put(body)
		l.mu.Lock()
		l.puts = append(l.puts, put)
		l.mu.Unlock()
	}
}

// producer is used by its goroutine only.
type producer struct {
	*load
	number, at int
	conns      *clusters.Producers
}

// put retries at one broker after the other until one says OK.
func (p *producer) put(body string) history.Put {
	put := history.Put{Producer: p.number, Body: body}
	for try := 0; ; try++ {
		b := p.c.Brokers[(p.at+try)%len(p.c.Brokers)]
		a := attempt{broker: b.Name, from: time.Now()}
		err := p.conns.At(b.TCP).Publish(p.topic, []byte(body))
		a.to, a.answer = time.Now(), clusters.Classify(err)
		put.Answers = append(put.Answers, a.answer)
		p.note(a, err)
		if err == nil {
			p.acked.Add(1)
			return put
		}
		select {
		case <-p.cancel:
			return put
		default:
			pause(pollEvery)
		}
	}
}

func (l *load) note(a attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
	if err != nil && !l.c.down.excuse(a.broker, a.from, a.to) {
		l.faults = append(l.faults, fmt.Sprintf("%s %s: after %s: %v", a.to.Format("15:04:05.000000"), a.broker, a.to.Sub(a.from), err))
	}
}

// wait waits until all bodies of the feed are acknowledged.
func (l *load) wait() {
	l.c.t.Helper()
	done := make(chan struct{})
	go func() { l.wg.Wait(); close(done) }() // ends with the producers
	select {
	case <-done:
	case <-time.After(3 * waitLimit):
		l.c.t.Fatalf("producers still busy after %s: %d acknowledged", 3*waitLimit, l.acked.Load())
	}
}

// waitAcked waits until n puts are acknowledged.
func (l *load) waitAcked(n int) {
	l.c.t.Helper()
	l.c.until(fmt.Sprintf("%d acknowledged puts", n), func() bool { return l.acked.Load() >= int64(n) })
}

// waitProgress waits until n more puts are acknowledged.
func (l *load) waitProgress(n int) {
	l.c.t.Helper()
	l.waitAcked(int(l.acked.Load()) + n)
}

// requireUndisturbed: no producer at a broker that was up saw an error.
func (l *load) requireUndisturbed() {
	l.c.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.c.t, l.faults, "errors at brokers that were up")
}

// history is what the producers and a consumer saw.
func (l *load) history(s *sink) history.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return history.History{Puts: l.puts, Deliveries: s.all()}
}
