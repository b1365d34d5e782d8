package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// givenBackAfter is how long a client has a message that it does not finish.
const givenBackAfter = 5 * time.Millisecond

// spell is when an epoch delivered.
type spell struct{ first, last time.Time }

// fenceWatch consumes an ordered channel with a client at each broker. It gives
// back what it gets, but for what a test lets it finish.
type fenceWatch struct {
	t       *testing.T
	order   *ordered
	clients map[string]*fenceClient // by broker
	mu      sync.Mutex
	spells  map[ident.Epoch]spell
	quota   int // messages that may be finished
}

// watchFence attaches the clients; they leave when the test ends.
func watchFence(t *testing.T, brokers []*broker) *fenceWatch {
	w := &fenceWatch{
		t: t, order: newOrdered(), spells: map[ident.Epoch]spell{}, clients: map[string]*fenceClient{},
	}
	for _, b := range brokers {
		client := &fenceClient{t: t, took: w.took, address: b.tcp(), ready: 1}
		w.clients[b.name] = client
		client.start()
	}
	return w
}

// gather makes the client at one broker the only one that takes messages, and
// waits until it gets them.
func (w *fenceWatch) gather(b *broker) {
	w.t.Helper()
	only := w.clients[b.name]
	for _, client := range w.clients {
		if client != only {
			client.grant(0)
		}
	}
	before := only.taken.Load()
	_, ok := within(drainLimit, func() bool { return only.taken.Load() > before+3 })
	require.True(w.t, ok, "the client at %s gets nothing", b.name)
}

// scatter lets the clients at all brokers take messages again.
func (w *fenceWatch) scatter() {
	for _, client := range w.clients {
		client.grant(1)
	}
}

// finish lets n messages be finished and waits for that.
func (w *fenceWatch) finish(n int) {
	w.t.Helper()
	w.mu.Lock()
	w.quota = n
	w.mu.Unlock()
	_, ok := within(drainLimit, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.quota == 0 })
	require.True(w.t, ok, "%d messages are not delivered", n)
}

// delivers reports whether epochs from this one on have delivered.
func (w *fenceWatch) delivers(since ident.Epoch) bool {
	_, first := w.around(since)
	return !first.IsZero()
}

// around gives the last delivery under an epoch before this one and the first
// under it or a later one.
func (w *fenceWatch) around(since ident.Epoch) (last, first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e, s := range w.spells {
		switch {
		case e < since && s.last.After(last):
			last = s.last
		case e >= since && (first.IsZero() || s.first.Before(first)):
			first = s.first
		}
	}
	return last, first
}

// fenceClient is the client at one broker. It reads fencing tokens, as go-nsq
// does not.
type fenceClient struct {
	t       *testing.T
	took    func(delivery) *nsq.Command // makes the answer
	address string
	taken   atomic.Int64 // deliveries
	mu      sync.Mutex
	conn    net.Conn // nil = none
	ready   int
}

// delivery is what a client got, where and when.
type delivery struct {
	id, body string
	attempts int
	epoch    ident.Epoch // the fencing token
	from     string
	at       time.Time
}

// start lets the client connect again and again until the test ends.
func (c *fenceClient) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	c.t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { // ends with ctx
		for ctx.Err() == nil {
			c.consume(ctx)
			pause(pollEvery)
		}
	})
}

// consume is one connection until it breaks.
func (c *fenceClient) consume(ctx context.Context) {
	conn, err := net.DialTimeout("tcp", c.address, time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	identify, err := nsq.Identify(map[string]any{"extend_support": true, "heartbeat_interval": 1000})
	require.NoError(c.t, err)
	_, _ = conn.Write(nsq.MagicV2) // if it fails, so does the read
	c.send(conn, identify)
	c.send(conn, &nsq.Command{Name: []byte("SUB_ORDERED"), Params: [][]byte{[]byte(topic), []byte(orderedChannel)}})
	c.mu.Lock()
	c.conn = conn
	ready := c.ready
	c.mu.Unlock()
	c.send(conn, nsq.Ready(ready))
	for {
		_ = conn.SetReadDeadline(time.Now().Add(config().ReadTimeout)) // a broker that says nothing is stopped
		kind, data, err := nsq.ReadUnpackedResponse(conn)
		if err != nil {
			return
		}
		answer := nsq.Nop()
		if kind == nsq.FrameTypeMessage {
			c.taken.Add(1)
			answer = c.answer(data)
		}
		c.send(conn, answer)
	}
}

// answer has a message looked at.
func (c *fenceClient) answer(data []byte) *nsq.Command {
	at := time.Now()
	m, err := nsq.DecodeMessage(data)
	if err != nil {
		c.t.Error(err)
		return nsq.Nop()
	}
	epoch, body, err := fencingToken(m.Body)
	if err != nil {
		c.t.Error(err)
	}
	return c.took(delivery{string(m.ID[:]), body, int(m.Attempts), epoch, c.address, at})
}

// grant changes the credit.
func (c *fenceClient) grant(n int) {
	c.mu.Lock()
	conn := c.conn
	c.ready = n
	c.mu.Unlock()
	if conn != nil {
		c.send(conn, nsq.Ready(n))
	}
}

// send writes a command whole; a connection that is broken fails at its read.
func (c *fenceClient) send(conn net.Conn, command *nsq.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = command.WriteTo(conn)
}

// took notes a delivery and gives the command that answers it.
func (w *fenceWatch) took(d delivery) *nsq.Command {
	finish := w.note(d.epoch, d.at)
	w.order.delivered(d, finish)
	if finish {
		return nsq.Finish(nsq.MessageID([]byte(d.id)))
	}
	pause(givenBackAfter)
	return nsq.Requeue(nsq.MessageID([]byte(d.id)), 0)
}

// fencingToken reads the header between a message's id and its body. With SUB_ORDERED the offset and the size of the message are between
// header and body.
func fencingToken(b []byte) (token ident.Epoch, body string, err error) {
	const kind, size, place = 4, 3, 8 + 4 // JSON; the kind and two bytes of length; the offset and the size
	if len(b) < size || b[0] != kind || len(b) < size+int(b[1])<<8+int(b[2]) {
		return 0, "", fmt.Errorf("a message without a header: %q", b)
	}
	var header struct {
		Epoch ident.Epoch `json:"##epoch"`
	}
	end := size + int(b[1])<<8 + int(b[2])
	err = json.Unmarshal(b[size:end], &header)
	if err == nil && header.Epoch == 0 {
		err = errors.New("no fencing token")
	}
	if err == nil && len(b) < end+place {
		err = fmt.Errorf("a message without a body: %q", b)
	}
	return header.Epoch, string(b[min(end+place, len(b)):]), err
}

// note counts a delivery for its epoch, and reports whether it is finished.
func (w *fenceWatch) note(epoch ident.Epoch, at time.Time) (finish bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spells[epoch]
	if s.first.IsZero() {
		s.first = at
	}
	s.last = at
	w.spells[epoch] = s
	if finish = w.quota > 0; finish {
		w.quota--
	}
	return finish
}
