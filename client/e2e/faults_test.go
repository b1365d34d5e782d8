package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/client"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// fates are the outcomes of puts by their bodies, and what a consumer received.
type fates struct {
	mu        sync.Mutex
	fate      map[string]error           // of each put that was answered
	stored    map[string]map[string]bool // ids by body
	acked     atomic.Int64
	delivered atomic.Int64
}

func newFates() *fates {
	return &fates{fate: map[string]error{}, stored: map[string]map[string]bool{}}
}

func (f *fates) answered(body string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fate[body] = err
	if err == nil {
		f.acked.Add(1)
	}
}

func (f *fates) received(id, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored[body] == nil {
		f.stored[body] = map[string]bool{}
	}
	f.stored[body][id] = true
	f.delivered.Add(1)
}

// counts sums up, and counts the puts that are acknowledged and not received.
func (f *fates) counts() (ok, refused, doubt, missing, twice int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for body, err := range f.fate {
		switch {
		case err == nil:
			ok++
			if len(f.stored[body]) == 0 {
				missing++
			}
		case errors.Is(err, client.ErrNotStored):
			refused++
		default:
			doubt++
		}
		if len(f.stored[body]) > 1 {
			twice++
		}
	}
	return ok, refused, doubt, missing, twice
}

// named is the producer that gives its messages IDs.
const named = "named"

// produce publishes numbered bodies with several goroutines until stop is closed.
func produce(t *testing.T, p *client.Producer, f *fates, name string, stop chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprintf("%s-%d-%d", name, g, i)
				m := client.Message{Body: []byte(body), Headers: client.Headers{"body": body}}
				if name == named {
					m.ID = body
				}
				f.answered(body, p.Publish(t.Context(), topic, m))
			}
		})
	}
	return &wg
}

// consume receives all messages until stop is called.
func consume(t *testing.T, c *client.Client, f *fates, o client.ConsumeOptions) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Consume(ctx, topic, channel, o, func(_ context.Context, d *client.Delivery) error {
			if d.Headers["body"] != string(d.Body) {
				t.Errorf("the header of %s is %v", d.Body, d.Headers)
			}
			f.received(d.ID, string(d.Body))
			return nil
		})
	}() // ends with ctx
	return sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// TestThroughFaults: producers and a consumer of the client continue through kills of leaders and
// of the brokers that they are connected to, through a frozen broker, a planned stop, and a
// kill of all brokers. Acknowledged messages arrive; refused ones do not; a producer that
// repeats only safe puts stores nothing twice, and one that also repeats puts in doubt has no
// put that ends otherwise. With IDs no put is in doubt, and nothing is stored twice.
func TestThroughFaults(t *testing.T) {
	c := start(t)
	c.create(topic, 2)
	safe, atLeastOnce, once := newFates(), newFates(), newFates()
	x := c.open(client.Options{Heartbeat: time.Second})
	all := newFates()
	stopConsumer := consume(t, x, all, client.ConsumeOptions{MaxInFlight: 200})
	defer stopConsumer()
	stop := make(chan struct{})
	first := produce(t, x.Producer(client.ProducerOptions{RetryBudget: waitLimit}), safe, "safe", stop)
	second := produce(t, x.Producer(client.ProducerOptions{RetryBudget: waitLimit, Retry: client.RetryInDoubt}), atLeastOnce, "again", stop)
	third := produce(t, x.Producer(client.ProducerOptions{RetryBudget: waitLimit}), once, named, stop)
	ended := sync.OnceFunc(func() { close(stop); first.Wait(); second.Wait(); third.Wait() })
	defer ended()

	progress := func(what string) {
		t.Helper()
		began, a, b, d := time.Now(), safe.acked.Load(), atLeastOnce.acked.Load(), all.delivered.Load()
		c.until(what, func() bool {
			return safe.acked.Load() > a+50 && atLeastOnce.acked.Load() > b+50 && all.delivered.Load() > d+100
		})
		t.Logf("%s: %d ms until 50 puts of each producer were stored, and 100 messages received", what, time.Since(began).Milliseconds())
	}
	rounds := 1
	if env.Long() {
		rounds = 10
	}
	progress("no fault")
	for range rounds {
		for _, b := range c.Brokers { // one of them leads, one serves each connection
			require.NoError(t, c.Kill(b.Name))
			progress("killed " + b.Name)
			c.restart(b.Name)
			c.whole(topic)
		}
		leader := c.leader(topic)
		require.NoError(t, c.Signal(leader, syscall.SIGSTOP))
		progress("frozen leader " + leader)
		require.NoError(t, c.Signal(leader, syscall.SIGCONT))
		c.whole(topic)

		require.NoError(t, c.Stop(c.leader(topic), waitLimit))
		progress("planned stop")
		for _, b := range c.Brokers {
			if c.Signal(b.Name, 0) != nil {
				c.restart(b.Name)
			}
		}
		c.whole(topic)

		for _, b := range c.Brokers {
			require.NoError(t, c.Signal(b.Name, syscall.SIGKILL))
		}
		for _, b := range c.Brokers {
			require.NoError(t, c.Kill(b.Name))
		}
		for _, b := range c.Brokers {
			require.NoError(t, c.Start(b.Name))
		}
		c.ready()
		progress("killed all")
		c.whole(topic)
	}
	ended()
	for name, f := range map[string]*fates{"safe": safe, "again": atLeastOnce, named: once} {
		c.until("all acknowledged messages", func() bool {
			all.mu.Lock()
			f.mu.Lock()
			for body, err := range f.fate {
				if ids := all.stored[body]; ids != nil {
					f.stored[body] = ids
				} else if err == nil {
					f.mu.Unlock()
					all.mu.Unlock()
					return false
				}
			}
			f.mu.Unlock()
			all.mu.Unlock()
			return true
		})
		ok, refused, doubt, missing, twice := f.counts()
		t.Logf("%s: %d stored, %d refused, %d in doubt, %d stored twice", name, ok, refused, doubt, twice)
		require.Zero(t, missing)
		require.Zero(t, refused, "the budget was not used up")
		for body, err := range f.fate {
			if errors.Is(err, client.ErrNotStored) {
				require.Empty(t, f.stored[body], "%s: %v", body, err)
			}
		}
		if name != "again" {
			require.Zero(t, twice)
		}
		if name != "safe" {
			require.Zero(t, doubt)
		}
	}
}

// proxy passes bytes between a client and a broker until it is cut: then it passes nothing and
// closes nothing, as a network that lost its route.
type proxy struct {
	l     net.Listener
	to    string
	cut   atomic.Bool
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
	bytes atomic.Int64 // passed
}

func startProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, to: to}
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.wg.Go(func() { p.pass(in, out) })
			p.wg.Go(func() { p.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if p.cut.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		p.bytes.Add(int64(n))
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			_ = to.Close()
			return
		}
	}
}

// busiest is the proxy that passes the most bytes now, more than heartbeats.
func busiest(all []*proxy) (most *proxy) {
	for _, p := range all {
		p.bytes.Store(0)
	}
	for most == nil || most.bytes.Load() < 4096 {
		time.Sleep(100 * time.Millisecond)
		for _, p := range all {
			if most == nil || p.bytes.Load() > most.bytes.Load() {
				most = p
			}
		}
	}
	return most
}

// TestPartitionedFromAClient: the network between the client and its broker loses everything
// without closing a connection. Producer and consumer go to another broker within 2.5
// heartbeats and the time of a dial.
func TestPartitionedFromAClient(t *testing.T) {
	c := start(t)
	c.create(topic, 1)
	var proxies []*proxy
	var addresses []string
	for _, b := range c.Brokers {
		p := startProxy(t, b.TCP)
		proxies, addresses = append(proxies, p), append(addresses, p.l.Addr().String())
	}
	x := c.open(client.Options{Heartbeat: time.Second, DialTimeout: time.Second}, addresses...)
	f, all := newFates(), newFates()
	stopConsumer := consume(t, x, all, client.ConsumeOptions{Lease: 5 * time.Second})
	defer stopConsumer()
	stop := make(chan struct{})
	wg := produce(t, x.Producer(client.ProducerOptions{Retry: client.RetryInDoubt}), f, "p", stop)
	ended := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer ended()
	for i := range 2 {
		c.until("messages", func() bool { return all.delivered.Load() > int64(100*(i+1)) })
		busiest(proxies).cut.Store(true)
		began, a, d := time.Now(), f.acked.Load(), all.delivered.Load()
		// More than the client may already hold, and the producers may already have sent.
		c.until("messages behind the partition", func() bool { return f.acked.Load() > a+300 && all.delivered.Load() > d+300 })
		t.Logf("cut %d: %d ms", i+1, time.Since(began).Milliseconds())
		require.Greater(t, time.Since(began), 500*time.Millisecond, "the broker was not in use")
		require.Less(t, time.Since(began), 20*time.Second)
	}
	ended()
	ok, refused, doubt, _, _ := f.counts()
	t.Logf("%d stored, %d refused, %d in doubt", ok, refused, doubt)
	require.Zero(t, refused)
	require.Zero(t, doubt)
	c.until("all messages", func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		for body := range f.fate {
			if all.stored[body] == nil {
				return false
			}
		}
		return true
	})
}

// lastBroker notes the broker of the newest connection.
type lastBroker struct {
	client.NoObserver
	at atomic.Pointer[string]
}

func (l *lastBroker) Connected(broker string) { l.at.Store(&broker) }

// TestPlannedStopOfAConsumersBroker: the broker that a consumer is connected to stops, and leads
// nothing. Handlers keep their leases, their outcomes arrive, and no message comes twice.
func TestPlannedStopOfAConsumersBroker(t *testing.T) {
	c := start(t)
	c.create(topic, 1)
	leader := c.leader(topic)
	var others []string
	names := map[string]string{}
	for _, b := range c.Brokers {
		if names[b.TCP] = b.Name; b.Name != leader {
			others = append(others, b.TCP)
		}
	}
	const messages = 300
	p := c.open(client.Options{}).Producer(client.ProducerOptions{})
	var batch []client.Message
	for i := range messages {
		batch = append(batch, client.Message{Body: fmt.Append(nil, i)})
	}
	require.NoError(t, p.PublishAll(t.Context(), topic, batch...))

	last := &lastBroker{}
	x := c.open(client.Options{Observer: last}, others...)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var mu sync.Mutex
	seen := map[string]int{}
	handled := 0
	done := make(chan error, 1)
	go func() {
		done <- x.Consume(ctx, topic, channel, client.ConsumeOptions{MaxInFlight: 30}, func(ctx context.Context, d *client.Delivery) error {
			mu.Lock()
			seen[d.ID] += d.Attempts
			mu.Unlock()
			time.Sleep(200 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			handled++
			return ctx.Err()
		})
	}() // ends with ctx
	c.until("the first messages", func() bool { mu.Lock(); defer mu.Unlock(); return handled > 40 })
	stopped := *last.at.Load()
	require.NoError(t, c.Stop(names[stopped], waitLimit))
	c.until("all messages", func() bool { mu.Lock(); defer mu.Unlock(); return handled >= messages })
	time.Sleep(100 * time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.NotEqual(t, stopped, *last.at.Load())
	require.Len(t, seen, messages)
	for id, attempts := range seen {
		require.Equal(t, 1, attempts, id)
	}
}
