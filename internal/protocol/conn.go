package protocol

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// The states of a connection; the numbers are visible in /stats.
const (
	stateInit       int32 = 0
	stateSubscribed int32 = 3
	stateClosing    int32 = 4
)

// lingerTime bounds how long a connection that ended with an error is still
// read, so that the client gets the error frame and not a reset.
const lingerTime = time.Second

// conn is one client. Fields without a comment belong to the reader.
type conn struct {
	h    *Handler
	raw  net.Conn // as accepted
	in   *input
	out  *output
	fifo *fifo

	tuning
	armed      time.Time // when the read deadline was set last
	params     [][]byte  // of the present command
	topic      string    // of the last put: saves making the string again
	scratch    []byte    // body of the last DPUB
	identified bool
	authState  *auth.State // nil before AUTH
	secret     string      // asked with again when authState has expired
	nudge      bool        // credit was given since the writer was last woken
	sub        edge.Subscription

	// Shared with the writer.
	state    atomic.Int32
	ready    atomic.Int64
	starved  atomic.Bool   // the writer waits for credit
	settings chan settings // capacity 1: of the first IDENTIFY
	stopping atomic.Bool   // set by Stop
	// dismissed: the writer ended the connection, but the client may be sending.
	dismissed atomic.Bool

	// Shared with /stats.
	since     time.Time // never changes
	about     atomic.Pointer[about]
	published atomic.Pointer[pubCount]
	messages  atomic.Uint64
	finished  atomic.Uint64
	requeued  atomic.Uint64
	attached  atomic.Pointer[edge.Subscription]
}

// settings are what the first IDENTIFY changes for the writer.
type settings struct {
	heartbeat     time.Duration
	outputTimeout time.Duration
}

func newConn(h *Handler, raw net.Conn) *conn {
	c := &conn{
		h: h, raw: raw,
		tuning: tuning{
			heartbeat: maxClientTimeout / 2, msgTimeout: h.opts.MsgTimeout,
			outputSize: defaultOutputBuffer, outputTimeout: h.opts.OutputBufferTimeout,
		},
		settings: make(chan settings, 1),
		since:    time.Now(),
	}
	c.fifo = newFifo(h.opts.MaxPendingAnswers, h.opts.MaxPendingBytes, &h.owed, c.answerNow)
	c.out = newOutput(raw, c.heartbeat, &h.buffers)
	c.in = newInput(nudging{c, raw})
	c.about.Store(defaultAbout(raw))
	return c
}

// nudging wakes the writer before the reader waits for the client: credit that
// came in one burst of commands is used in one burst of messages.
type nudging struct {
	c   *conn
	src io.Reader
}

func (n nudging) Read(p []byte) (int, error) {
	n.c.wakeWriter()
	return n.src.Read(p)
}

func (c *conn) wakeWriter() {
	if c.nudge {
		c.nudge = false
		signal(c.fifo.wake)
	}
}

// serve runs both halves and returns when both have ended.
func (c *conn) serve(server context.Context) {
	ctx, cancel := context.WithCancel(server)
	defer cancel()
	written := make(chan struct{})
	// The writer: started here, ends with the last answer, a failed write or
	// ctx; owns the pulling of messages.
	go func() {
		defer close(written)
		defer cancel() // whatever the reader waits for
		c.write(ctx)
	}()
	err := c.read(ctx)
	c.ready.Store(0)
	c.fifo.push(lastAnswer(err))
	<-written
	switch { // before it lingers: others wait for what it had
	case c.sub == nil:
	case c.stopping.Load() || server.Err() != nil:
		c.sub.Withdraw() // the broker goes, the client has done nothing
	default:
		c.sub.Close(c.h.opts.RequeueOnDisconnect)
	}
	if err != nil || c.dismissed.Load() {
		linger(c.raw)
	}
}

// lastAnswer ends the connection after all that was asked before is answered,
// with an error frame if there is an error to tell.
func lastAnswer(err error) answer {
	if cmd := (*commandError)(nil); errors.As(err, &cmd) {
		return answer{kind: frameError, text: []byte(cmd.text), last: true, half: true}
	}
	return answer{last: true, half: err != nil}
}

// read handles commands until the client leaves (nil) or errs.
func (c *conn) read(ctx context.Context) error {
	for ctx.Err() == nil {
		c.arm()
		line, err := c.in.line()
		if errors.Is(err, errLineTooLong) {
			return err
		}
		if err != nil {
			return nil // gone, or silent for too long: closed without a frame
		}
		c.params = splitParams(line, c.params[:0])
		err = c.command(ctx)
		if cmd := (*commandError)(nil); errors.As(err, &cmd) && cmd.open {
			err = c.fifo.add(ctx, answer{kind: frameError, text: []byte(cmd.text)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// arm sets the read deadline of the next command, half a command included.
// While commands are pipelined it is renewed only now and then.
func (c *conn) arm() {
	if len(c.in.buffered()) > 0 && time.Since(c.armed) < c.heartbeat/8 {
		return
	}
	c.armed = time.Now()
	var deadline time.Time
	if c.heartbeat > 0 {
		deadline = c.armed.Add(2 * c.heartbeat)
	}
	_ = c.raw.SetReadDeadline(deadline) // a closed socket fails at the read
	if c.stopping.Load() {
		c.interrupt()
	}
}

// interrupt makes the reader's next read fail.
func (c *conn) interrupt() { _ = c.raw.SetReadDeadline(time.Unix(1, 0)) }

// stop ends the connection after its present command. Any goroutine.
func (c *conn) stop() {
	c.stopping.Store(true)
	c.interrupt()
}

// dismiss ends the connection from the writer's side, without a frame.
func (c *conn) dismiss() {
	c.out.mu.Lock()
	c.out.closeWriteLocked()
	c.out.mu.Unlock()
	c.dismissed.Store(true)
	c.stop()
}

// handOver tells a consumer that understands it to finish what it has and to
// go. It reports whether this is such a consumer.
func (c *conn) handOver() bool {
	if !strings.HasPrefix(c.about.Load().userAgent, "go-nsq/") ||
		!c.state.CompareAndSwap(stateSubscribed, stateClosing) {
		return false
	}
	c.ready.Store(0)
	c.fifo.push(answer{text: responseCloseWait})
	return true
}

// linger reads what still comes in and forgets it.
func linger(raw net.Conn) {
	_ = raw.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, raw) // ends with the client or the deadline
}

// respond queues an answer that is known at once.
func (c *conn) respond(ctx context.Context, text []byte) error {
	return c.fifo.add(ctx, answer{text: text})
}

// command carries out the command in c.params. A *commandError is told to the
// client; any other error ends the connection silently.
func (c *conn) command(ctx context.Context) error {
	verb := c.params[0]
	if string(verb) == "IDENTIFY" {
		return c.identify(ctx)
	}
	if c.h.opts.TLSRequired != TLSNotRequired && !c.about.Load().tls {
		return fatal(codeInvalid, "cannot %s in current state (TLS required)", verb)
	}
	switch string(verb) {
	case "FIN":
		return c.finish()
	case "PUB":
		return c.pub(ctx)
	case "MPUB":
		return c.mpub(ctx)
	case "DPUB":
		return c.dpub(ctx)
	case "RDY":
		return c.rdy()
	case "REQ":
		return c.requeue()
	case "TOUCH":
		return c.touch()
	case "NOP":
		return nil
	case "SUB":
		return c.subscribe(ctx)
	case "CLS":
		return c.startClose(ctx)
	case "AUTH":
		return c.auth(ctx)
	case "SUB_ORDERED":
		return c.subscribeOrdered(ctx)
	case "SUB_ADVANCED":
		return c.subscribeAdvanced(ctx)
	case "PUB_EXT":
		return c.pubExtended(ctx, "PUB_EXT", headed)
	case "PUB_TRACE":
		return c.pubExtended(ctx, "PUB_TRACE", traced)
	case "MPUB_EXT":
		return c.mpubExtended(ctx, "MPUB_EXT", headed)
	case "MPUB_TRACE":
		return c.mpubExtended(ctx, "MPUB_TRACE", traced)
	}
	return fatal(codeInvalid, "invalid command %s", verb)
}
