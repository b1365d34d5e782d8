package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
)

// The states of a connection. /stats shows the numbers.
const (
	stateInit       int32 = 0
	stateSubscribed int32 = 3
	stateClosing    int32 = 4
)

// lingerTime is how long the broker keeps reading after it has sent a final error: a close at once might reset the
// connection before the client has read it.
const lingerTime = time.Second

// conn is the connection of one client. Fields without a comment belong to the reader.
type conn struct {
	h    *Handler
	raw  net.Conn // the accepted connection, below TLS and compression
	in   *input
	out  *output
	fifo *fifo

	tuning
	armed       time.Time // time of the last change of the read deadline
	start       started
	params      [][]byte    // of the current command
	topic       string      // topic of the last put: saves an allocation per put
	partition   int         // of the current put; -1 = any
	admitted    string      // topic of the last admitted put: that topic exists
	scratch     []byte      // see scratchOf
	reserved    reservation // memory of the current put
	pace        pace        // of its body
	bomb        *tooMuch    // set if the input ended because it expanded too much
	identified  bool
	authed      bool   // AUTH was answered
	verb        string // verb of the last authorized command, for the audit
	vouched     bool   // a command of the client was allowed; see expansion
	unjudged    error  // why the rights for the current command could not be determined; nil = it is allowed
	unsignalled bool   // credit was given since the last wake-up of the writer
	settled     bool   // the client has logged in or needs no login, see armLogin
	seat        api.Seat
	unseated    error // why the client has no seat unless it logs in; nil: it has one, see takeSeat
	known       bool  // the client has taken a seat: its start and its end are logged
	late        bool  // the read deadline is the end of the login time
	heartbeats  bool  // the last command was the answer to a heartbeat
	sub         api.Subscription
	producer    string // the name under which the client numbers its messages; "" = none
	filter      string // that the client requires of its channel; "" = none
	noFilter    string // why no channel can have the filter that the client requires

	// The reader and the writer share these.
	state    atomic.Int32
	ready    atomic.Int64
	starved  atomic.Bool // the writer is waiting for credit
	settings chan tuning // capacity 1: the settings of the first IDENTIFY, for the writer
	stopping atomic.Bool // set by Stop
	revoked  atomic.Bool // set by Recheck: the client has lost its right
	// dismissed: the writer has ended the connection; the client may still be sending.
	dismissed atomic.Bool

	// The reader and Recheck share these. consumes is nil before SUB.
	session  atomic.Pointer[guard.Session]
	consumes atomic.Pointer[subscribed]

	share atomic.Pointer[limits.Share] // of the memory; set by the reader

	// The reader and /stats share these.
	since     time.Time    // never changes
	active    atomic.Int64 // when the reader last handled a command other than the answer to a heartbeat, unix ns
	user      string       // counted in Handler.mu.users, which guards it; "" = none
	about     atomic.Pointer[about]
	published atomic.Pointer[pubCount]
	messages  atomic.Uint64
	finished  atomic.Uint64
	requeued  atomic.Uint64
	attached  atomic.Pointer[api.Subscription]
}

func newConn(h *Handler, raw net.Conn) *conn {
	c := &conn{
		h: h, raw: raw,
		tuning: tuning{
			heartbeat: maxClientTimeout / 2, msgTimeout: h.opts.MsgTimeout,
			outputSize: defaultOutputBuffer, outputTimeout: h.opts.OutputBufferTimeout,
		},
		settings: make(chan tuning, 1),
		since:    time.Now(),
		seat:     func(bool) bool { return true },
	}
	c.fifo = newFifo(h.opts.MaxPendingAnswers, h.opts.MaxPendingBytes, &h.owed, c.answerDirect)
	c.fifo.share = &c.share
	c.out = newOutput(raw, c.heartbeat, &h.buffers)
	c.in = &input{src: creditReader{c, raw}, buf: make([]byte, minInput), most: maxLine}
	c.about.Store(defaultAbout(raw))
	c.active.Store(c.since.UnixNano())
	c.begin()
	return c
}

// creditReader wakes the writer before the reader blocks in a read, so that one burst of messages uses all credit of
// one burst of commands.
type creditReader struct {
	c   *conn
	src io.Reader
}

func (n creditReader) Read(p []byte) (int, error) {
	n.c.wakeWriter()
	read := n.src.Read
	if !n.c.pace.began.IsZero() {
		read = n.readPaced
	}
	m, err := read(p)
	if err != nil {
		n.c.bomb, _ = errors.AsType[*tooMuch](err)
	}
	return m, err
}

func (c *conn) wakeWriter() {
	if c.unsignalled {
		c.unsignalled = false
		c.fifo.wake.Notify()
	}
}

// serve runs the reader and the writer, and returns when both have ended.
func (c *conn) serve(server context.Context) {
	ctx, cancel := context.WithCancel(server)
	defer cancel()
	ctx = api.WithRequester(ctx, func() api.Requester { return c.session.Load().Requester(c.verb) }) // the reader calls it
	written := make(chan struct{})
	// The writer: started here; ends with the last answer, a failed write or the end of ctx; owns the pulling of
	// messages.
	go func() {
		defer close(written)
		defer cancel() // ends every wait of the reader
		c.write(ctx)
	}()
	err := c.lost(c.read(ctx))
	c.ready.Store(0)
	c.fifo.push(lastAnswer(err))
	<-written
	c.fifo.close()
	c.out.park()
	switch { // before linger, so that other consumers get its messages at once
	case c.sub == nil:
	case c.stopping.Load() || server.Err() != nil:
		c.sub.Withdraw() // the broker is stopping, so these attempts do not count
	default:
		c.sub.Close(c.h.opts.RequeueOnDisconnect)
	}
	if err != nil || c.dismissed.Load() {
		linger(c.raw)
	}
}

// lastAnswer ends the connection after the answers of all earlier commands, with an error frame if err has one.
func lastAnswer(err error) answer {
	if cmd, ok := errors.AsType[*commandError](err); ok {
		return answer{kind: frameError, text: []byte(cmd.text), last: true, half: true}
	}
	return answer{last: true, half: err != nil}
}

// read handles commands until the client closes (nil) or a command fails.
func (c *conn) read(ctx context.Context) error {
	for ctx.Err() == nil && !c.revoked.Load() {
		c.arm()
		c.start.next(len(c.in.buffered()) > 0)
		line, err := c.in.line()
		if errors.Is(err, errLineTooLong) {
			return err
		}
		if err != nil && c.bomb != nil {
			return c.ended(err)
		}
		if err != nil {
			return c.tooLate(err) // nil if closed, or silent for too long: no error frame
		}
		c.params, c.heartbeats = splitParams(line, c.params[:0]), false
		err = c.ended(c.command(ctx))
		c.reserved.release()
		if err != nil {
			if err = c.refuse(ctx, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse answers a failed command if the connection stays open; otherwise it returns the error.
func (c *conn) refuse(ctx context.Context, err error) error {
	cmd, ok := errors.AsType[*commandError](err)
	if !ok {
		return err
	}
	c.logRefusal(cmd)
	if cmd.open {
		return c.fifo.add(ctx, answer{kind: frameError, text: []byte(cmd.text)})
	}
	return err
}

// arm sets the read deadline of the next command. While commands are pipelined it does so rarely, because each time is
// a system call.
func (c *conn) arm() {
	if !c.settled && c.armLogin() {
		if c.stopping.Load() || c.revoked.Load() {
			c.interrupt()
		}
		return
	}
	if len(c.in.buffered()) > 0 && time.Since(c.armed) < c.heartbeat/8 {
		return
	}
	c.armed = time.Now()
	if !c.heartbeats {
		c.active.Store(c.armed.UnixNano())
	}
	var deadline time.Time
	if c.heartbeat > 0 {
		deadline = c.armed.Add(2 * c.heartbeat)
	}
	_ = c.raw.SetReadDeadline(deadline) // a closed socket fails at the read
	if c.stopping.Load() || c.revoked.Load() {
		c.interrupt()
	}
}

func (c *conn) interrupt() { _ = c.raw.SetReadDeadline(time.Unix(1, 0)) }

// stop ends the connection after its current command. Any goroutine may call it.
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

// announceClose sends CLOSE_WAIT to a consumer of go-nsq or of the module client, which then finishes its messages and
// closes the connection. It returns false for all other clients.
func (c *conn) announceClose() bool {
	agent := c.about.Load().UserAgent
	if !strings.HasPrefix(agent, "go-nsq/") && !strings.HasPrefix(agent, "lockstep-go/") ||
		!c.state.CompareAndSwap(stateSubscribed, stateClosing) {
		return false
	}
	c.ready.Store(0)
	c.fifo.push(answer{text: responseCloseWait})
	return true
}

// linger reads and discards input until the client closes, at most for lingerTime.
func linger(raw net.Conn) {
	_ = raw.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, raw) // ends with the client or the deadline
}

// respond queues an answer that does not depend on a put.
func (c *conn) respond(ctx context.Context, text []byte) error {
	return c.fifo.add(ctx, answer{text: text})
}

// command runs the command in c.params. A *commandError is sent to the client; any other error closes the connection
// without a frame.
func (c *conn) command(ctx context.Context) error {
	verb := c.params[0]
	if !c.start.serves {
		c.awaitStart(ctx)
	}
	if string(verb) != "IDENTIFY" {
		if c.h.opts.TLSRequired != config.TLSNotRequired && !c.about.Load().TLS {
			return fatal(codeInvalid, "cannot %s in current state (TLS required)", verb)
		}
		if c.unseated != nil && string(verb) != "AUTH" && string(verb) != "NOP" {
			return c.unseated
		}
	}
	for i := range commands {
		if x := &commands[i]; string(verb) == x.Name {
			return x.run(c, ctx, x.Name)
		}
	}
	return fatal(codeInvalid, "invalid command %s", verb)
}

// command is one command of the protocol, with the right that it requires. FIN, REQ, TOUCH, RDY and CLS require none:
// they work on a subscription that was allowed. docs/reference/rights.md is generated from the table.
type command struct {
	Name  string
	Right access.Right
	run   func(c *conn, ctx context.Context, verb string) error
}

var commands = [...]command{
	{"IDENTIFY", access.Open, (*conn).identify},
	{"AUTH", access.Open, (*conn).auth},
	{"NOP", access.Open, func(c *conn, _ context.Context, _ string) error { c.heartbeats = true; return nil }},
	{"PUB", access.Publish, (*conn).pub},
	{"MPUB", access.Publish, (*conn).mpub},
	{"DPUB", access.Publish, (*conn).dpub},
	{"SUB", access.Consume, (*conn).subscribe},
	{"RDY", access.Open, (*conn).rdy},
	{"FIN", access.Open, (*conn).finish},
	{"REQ", access.Open, (*conn).requeue},
	{"TOUCH", access.Open, (*conn).touch},
	{"CLS", access.Open, (*conn).startClose},
	{"PUB_EXT", access.Publish, pubExtended(headed)},
	{"MPUB_EXT", access.Publish, mpubExtended(headed)},
	{"PUB_TRACE", access.Publish, pubExtended(traced)},
	{"MPUB_TRACE", access.Publish, mpubExtended(traced)},
	{"SUB_ORDERED", access.Consume, (*conn).subscribeOrdered},
	{"SUB_ADVANCED", access.Consume, (*conn).subscribeAdvanced},
}

// Commands returns all commands.
func Commands() []command { return commands[:] }
