package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/client"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// contender is a client library under test, as an application uses it: it publishes each body
// once, or until it is stored, and consumes.
type contender interface {
	// publish returns an error as the application sees it.
	publish(body string) error
	close()
}

// ours is this module's client.
type ours struct{ p *client.Producer }

func (o ours) publish(body string) error {
	return o.p.Publish(context.Background(), topic, client.Message{Body: []byte(body)})
}

func (o ours) close() { _ = o.p.Close(context.Background()) }

// stock is go-nsq: a producer has one address, so the application goes to the next broker after
// an error, for the next message.
type stock struct {
	mu        sync.Mutex
	producers []*nsq.Producer
	at        int
}

func newStock(t *testing.T, addresses []string) *stock {
	s := &stock{}
	for _, a := range addresses {
		p, err := nsq.NewProducer(a, nsq.NewConfig())
		require.NoError(t, err)
		p.SetLogger(log.New(io.Discard, "", 0), nsq.LogLevelError)
		s.producers = append(s.producers, p)
	}
	return s
}

func (s *stock) publish(body string) error {
	s.mu.Lock()
	at := s.at
	s.mu.Unlock()
	err := s.producers[at%len(s.producers)].Publish(topic, []byte(body))
	if err != nil {
		s.mu.Lock()
		if s.at == at {
			s.at++
		}
		s.mu.Unlock()
	}
	return err
}

func (s *stock) close() {
	for _, p := range s.producers {
		p.Stop()
	}
}

// measured is one row of the table.
type measured struct {
	puts, failed               int64
	stored, twice, redelivered int
	perSecond                  float64
	longest                    time.Duration
}

// TestCompareGoNSQ runs both clients in turn on a fresh cluster each while the broker that a
// producer is connected to, and then the others, are killed: the application publishes a body
// until it is stored. It prints a table, whose newest form is in docs/results.md. No client may lose an
// acknowledged message.
func TestCompareGoNSQ(t *testing.T) {
	if !env.Long() {
		env.Skip(t, "a measurement: LOCKSTEP_LONG=1")
	}
	const rounds = 7
	names := []string{"go-nsq", "client, RetrySafe", "client, RetryInDoubt"}
	var table strings.Builder
	fmt.Fprintf(&table, "\n| client | puts stored | errors that the application saw | messages stored twice | messages delivered again | puts/s | longest put |\n|---|---|---|---|---|---|---|\n")
	rows := map[string]measured{}
	for i, name := range names {
		m := compare(t, i, rounds)
		rows[name] = m
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %.0f | %d ms |\n", name, m.puts, m.failed, m.twice, m.redelivered, m.perSecond, m.longest.Milliseconds())
	}
	t.Logf("%d kills each:\n%s", rounds*3, table.String())
	require.Zero(t, rows[names[2]].failed, "RetryInDoubt shows no error")
	require.LessOrEqual(t, rows[names[1]].failed, rows[names[0]].failed+8, "only puts in doubt are errors")
}

// compare measures one client.
func compare(t *testing.T, which, rounds int) (m measured) {
	c := start(t)
	defer c.end()
	c.create(topic, 2)
	x := c.open(client.Options{Heartbeat: time.Second})
	var p contender
	var deliveries sync.Map // id → body
	var again atomic.Int64
	received := func(id, body string) {
		if _, known := deliveries.LoadOrStore(id, body); known {
			again.Add(1)
		}
	}
	stopConsumer := consumeStock
	if which == 0 {
		p = newStock(t, c.tcp())
	} else {
		p = ours{x.Producer(client.ProducerOptions{Retry: client.Retry(which - 1)})}
		stopConsumer = consumeOurs(x)
	}
	end := stopConsumer(t, c, received)
	defer end()

	var failed, stored atomic.Int64
	var longest atomic.Int64
	acked := sync.Map{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprintf("%d-%d", g, i)
				began := time.Now()
				for p.publish(body) != nil {
					failed.Add(1)
					time.Sleep(10 * time.Millisecond)
				}
				acked.Store(body, true)
				stored.Add(1)
				for took := int64(time.Since(began)); ; {
					if l := longest.Load(); took <= l || longest.CompareAndSwap(l, took) {
						break
					}
				}
			}
		})
	}
	began := time.Now()
	for range rounds {
		for _, b := range c.Brokers {
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, c.Kill(b.Name))
			time.Sleep(500 * time.Millisecond)
			c.restart(b.Name)
			c.whole(topic)
		}
	}
	close(stop)
	wg.Wait()
	took := time.Since(began)
	p.close()
	c.until("all acknowledged messages", func() bool {
		arrived := map[string]bool{}
		deliveries.Range(func(_, body any) bool { arrived[body.(string)] = true; return true })
		complete := true
		acked.Range(func(body, _ any) bool { complete = arrived[body.(string)]; return complete })
		return complete
	})
	end()
	times := map[string]int{}
	deliveries.Range(func(_, body any) bool { times[body.(string)]++; return true })
	for _, n := range times {
		if m.stored++; n > 1 {
			m.twice++
		}
	}
	m.puts, m.failed, m.redelivered = stored.Load(), failed.Load(), int(again.Load())
	m.perSecond, m.longest = float64(m.puts)/took.Seconds(), time.Duration(longest.Load())
	return m
}

// consumeOurs consumes with this module's client.
func consumeOurs(x *client.Client) func(*testing.T, *cluster, func(id, body string)) func() {
	return func(t *testing.T, _ *cluster, received func(id, body string)) func() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- x.Consume(ctx, topic, channel, client.ConsumeOptions{MaxInFlight: 200}, func(_ context.Context, d *client.Delivery) error {
				received(d.ID, string(d.Body))
				return nil
			})
		}() // ends with ctx
		return sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, client.ErrNotDrained) {
				t.Error(err)
			}
		})
	}
}

// consumeStock consumes with go-nsq.
func consumeStock(t *testing.T, c *cluster, received func(id, body string)) func() {
	config := nsq.NewConfig()
	config.LookupdPollInterval, config.LookupdPollJitter = time.Second, 0
	config.MaxInFlight, config.MaxAttempts = 200, 0
	consumer, err := nsq.NewConsumer(topic, channel, config)
	require.NoError(t, err)
	consumer.SetLogger(log.New(io.Discard, "", 0), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
		received(string(m.ID[:]), string(m.Body))
		return nil
	}), 16)
	var lookups []string
	for _, b := range c.Brokers {
		lookups = append(lookups, b.HTTP)
	}
	require.NoError(t, consumer.ConnectToNSQLookupds(lookups))
	return sync.OnceFunc(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
}
