package e2etest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// Attempt is one PUB and its answer.
type Attempt struct {
	broker   string
	Due      time.Time // when the feed had it go out
	from, To time.Time
	Answer   judge.Answer
}

// Load is a set of producers at all brokers. Each has a go-nsq connection to its
// own broker, puts one body at a time, and goes to the next broker with a body
// whose attempt failed.
type Load struct {
	c        *Cluster
	topic    string
	Feed     *Feed
	acked    atomic.Int64
	wg       sync.WaitGroup
	cancel   chan struct{} // closed when the test ends: no producer retries any more
	mu       sync.Mutex
	puts     []*judge.Put
	attempts []Attempt
	faults   []string // errors at brokers that were never down during the attempt
}

// Put starts producers, each perBroker of them at every broker.
func (c *Cluster) Put(topic string, f *Feed, perBroker int) *Load {
	l := &Load{c: c, topic: topic, Feed: f, cancel: make(chan struct{})}
	for i := range perBroker * len(c.Brokers) {
		l.wg.Add(1)
		go l.produce(i) // ends when the feed does, or at the test's end
	}
	c.T.Cleanup(func() {
		if c.T.Failed() {
			c.KillProcesses() // no producer waits for a broker that hangs
		}
		close(l.cancel)
		f.End()
		l.wg.Wait()
	})
	return l
}

// produce is one producer; its home is one broker.
func (l *Load) produce(number int) {
	defer l.wg.Done()
	p := &producer{Load: l, number: number, at: number % len(l.c.Brokers), conns: clusters.NewProducers(nsq.NewConfig())}
	defer p.conns.Stop()
	for {
		body, due, ok := l.Feed.take()
		if !ok {
			return
		}
		put := p.put(body, due)
		l.mu.Lock()
		l.puts = append(l.puts, put)
		l.mu.Unlock()
	}
}

// producer is used by its goroutine only.
type producer struct {
	*Load
	number, at int
	conns      *clusters.Producers
}

// put retries at one broker after the other until one says OK.
func (p *producer) put(body string, due time.Time) *judge.Put {
	put := &judge.Put{Producer: p.number, Bodies: []string{body}}
	for try := 0; ; try++ {
		b := p.c.Brokers[(p.at+try)%len(p.c.Brokers)]
		a := Attempt{broker: b.Name, Due: due, from: time.Now()}
		sent := record.Now()
		err := p.conns.At(b.TCP).Publish(p.topic, []byte(body))
		a.To, a.Answer = time.Now(), clusters.Classify(err)
		put.Attempts = append(put.Attempts, record.Attempt(sent, a.Answer))
		p.note(a, err)
		if err == nil {
			p.acked.Add(1)
			return put
		}
		select {
		case <-p.cancel:
			return put
		default:
			Pause(PollEvery)
		}
	}
}

func (l *Load) note(a Attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
	if err != nil && !l.c.Down.excuse(a.broker, a.from, a.To) {
		l.faults = append(l.faults, fmt.Sprintf("%s %s: after %s: %v", a.To.Format("15:04:05.000000"), a.broker, a.To.Sub(a.from), err))
	}
}

// Wait waits until all bodies of the feed are acknowledged.
func (l *Load) Wait() {
	l.c.T.Helper()
	done := make(chan struct{})
	go func() { l.wg.Wait(); close(done) }() // ends with the producers
	select {
	case <-done:
	case <-time.After(3 * WaitLimit):
		l.c.T.Fatalf("producers still busy after %s: %d acknowledged", 3*WaitLimit, l.acked.Load())
	}
}

// WaitAcked waits until n puts are acknowledged.
func (l *Load) WaitAcked(n int) {
	l.c.T.Helper()
	l.c.Until(fmt.Sprintf("%d acknowledged puts", n), func() bool { return l.acked.Load() >= int64(n) })
}

// WaitProgress waits until n more puts are acknowledged.
func (l *Load) WaitProgress(n int) {
	l.c.T.Helper()
	l.WaitAcked(int(l.acked.Load()) + n)
}

// RequireUndisturbed: no producer at a broker that was up saw an error.
func (l *Load) RequireUndisturbed() {
	l.c.T.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.c.T, l.faults, "errors at brokers that were up")
}

// Attempted are the PUBs so far, in the order of their answers, nearly.
func (l *Load) Attempted() []Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attempts)
}

// Published are the bodies so far with all answers to each.
func (l *Load) Published() []*judge.Put {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.puts)
}

// Judge requires that what the producers and a consumer saw is right.
func (l *Load) Judge(s *Sink) judge.Report {
	l.c.T.Helper()
	return s.Judge(l.Published())
}

// Publishing publishes to a topic, n messages at a time at each broker, until it is told to stop. Refused
// puts are no fault.
func (c *Cluster) Publishing(topic string, n int) (stop func()) {
	body := strings.Repeat("x\n", n)
	done := make(chan struct{})
	var all sync.WaitGroup
	for _, b := range c.Brokers {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
					if resp, err := c.HTTP.Post("http://"+b.HTTP+"/mpub?topic="+topic, "", strings.NewReader(body)); err == nil {
						_ = resp.Body.Close()
					}
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); all.Wait() })
	c.T.Cleanup(stop)
	return stop
}
