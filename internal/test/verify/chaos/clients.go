package chaos

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// config is a client that notices a broker that says nothing within 3 s.
func config() *nsq.Config {
	cfg := nsq.NewConfig()
	cfg.HeartbeatInterval, cfg.ReadTimeout = time.Second, 3*time.Second
	cfg.LookupdPollInterval, cfg.LookupdPollJitter, cfg.LookupdPollTimeout = 250*time.Millisecond, 0, time.Second
	cfg.MaxInFlight, cfg.MaxAttempts = 300, 0
	return cfg
}

// load is a set of producers, perBroker of them at home at every broker. Each
// puts one body at a time at a steady pace and retries at the next broker.
type load struct {
	t       *testing.T
	vigil   *vigil // nil: nothing watches the answers
	brokers []*broker
	pace    time.Duration // between two puts of one producer
	quit    chan struct{} // no new bodies
	cancel  chan struct{} // no more attempts
	wg      sync.WaitGroup
	acked   atomic.Int64
	mu      sync.Mutex
	puts    []*judge.Put
	slowest time.Duration // from the first attempt to OK
	failed  []time.Time   // when attempts failed
	ending  sync.Once
}

func startLoad(t *testing.T, brokers []*broker, perBroker int, perSecond float64, v *vigil) *load {
	n := perBroker * len(brokers)
	l := &load{
		t: t, vigil: v, brokers: brokers, pace: time.Duration(float64(n) / perSecond * float64(time.Second)),
		quit: make(chan struct{}), cancel: make(chan struct{}),
	}
	for i := range n {
		l.wg.Go(func() { l.produce(i) }) // ends after stop
	}
	t.Cleanup(func() { l.stop(0) })
	return l
}

// produce is one producer.
func (l *load) produce(number int) {
	p := &producer{load: l, number: number, conns: clusters.NewProducers(config())}
	defer p.conns.Stop()
	tick := time.NewTicker(l.pace)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-l.quit:
			return
		case <-tick.C:
		}
		began := time.Now()
		put := p.put(fmt.Sprintf("put-%02d-%06d", number, i))
		l.mu.Lock()
		l.puts = append(l.puts, put)
		l.slowest = max(l.slowest, time.Since(began))
		l.mu.Unlock()
	}
}

// stop lets producers finish the puts they are at; false if some cannot in time.
func (l *load) stop(limit time.Duration) (inTime bool) {
	l.ending.Do(func() {
		close(l.quit)
		late := time.AfterFunc(limit, func() { close(l.cancel) })
		l.wg.Wait()
		inTime = late.Stop()
	})
	return inTime
}

// producer is used by its goroutine only.
type producer struct {
	*load
	number int
	conns  *clusters.Producers
}

// put tries one broker after the other until one says OK.
func (p *producer) put(body string) *judge.Put {
	put := &judge.Put{Producer: p.number, Bodies: []string{body}}
	for try := 0; ; try++ {
		b := p.brokers[(p.number+try)%len(p.brokers)]
		var a *attempt
		if p.vigil != nil {
			a = p.vigil.tries(b)
		}
		sent := record.Now()
		err := p.conns.At(b.tcp()).Publish(topic, []byte(body))
		answer := clusters.Classify(err)
		put.Attempts = append(put.Attempts, record.Attempt(sent, answer))
		p.noteFailure(answer)
		if p.vigil != nil {
			p.vigil.answered(a, answer)
		}
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

// noteFailure notes when an attempt failed.
func (l *load) noteFailure(a judge.Answer) {
	if a == judge.OK {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, time.Now())
}

// sink is a consumer of one channel at all brokers that finishes every message.
type sink struct {
	channel    string
	vigil      *vigil // nil: nothing watches the deliveries
	consumer   *nsq.Consumer
	mu         sync.Mutex
	deliveries []*judge.Delivery
}

func consume(t *testing.T, brokers []*broker, channel string) *sink {
	t.Helper()
	return consumeWatched(t, brokers, channel, nil)
}

// consumeWatched also notes the deliveries for the checks of liveness.
func consumeWatched(t *testing.T, brokers []*broker, channel string, v *vigil) *sink {
	t.Helper()
	return consumeTopic(t, brokers, topic, channel, v)
}

// consumeTopic is the same of any topic.
func consumeTopic(t *testing.T, brokers []*broker, of, channel string, v *vigil) *sink {
	t.Helper()
	consumer, err := nsq.NewConsumer(of, channel, config())
	require.NoError(t, err)
	s := &sink{channel: channel, vigil: v, consumer: consumer}
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(s.handle), 4)
	for _, b := range brokers {
		require.NoError(t, consumer.ConnectToNSQD(b.tcp()))
	}
	t.Cleanup(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
	return s
}

func (s *sink) handle(m *nsq.Message) error {
	if s.vigil != nil {
		s.vigil.took(s.channel, string(m.ID[:]))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := record.Received(s.channel, m)
	record.Finished(d)
	s.deliveries = append(s.deliveries, d)
	return nil
}

func (s *sink) all() []*judge.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}
