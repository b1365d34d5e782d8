package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Retry selects the failed puts that a producer repeats.
type Retry int

const (
	// RetrySafe repeats a put whenever the repeat cannot store the message twice: after a
	// definite refusal, when it was never sent, and also in doubt if each of its messages has
	// an ID. That is safe while RetryBudget and the brokers' --put-hold (9 s), for which the last
	// attempt may wait at a broker, are together below the topic's dedupe window (2 min).
	RetrySafe Retry = iota
	// RetryInDoubt also repeats puts that are in doubt: each message is stored at least once.
	RetryInDoubt
	// RetryNever repeats nothing; a put still waits for a connection.
	RetryNever
)

// ProducerOptions of a producer. The zero value is ready for use.
type ProducerOptions struct {
	// MaxInFlight is the largest number of outstanding puts; beyond it Send waits. By default
	// 1,024.
	MaxInFlight int
	// MaxInFlightBytes is the largest number of bytes of outstanding puts, except for a
	// single larger put. By default 32 MiB.
	MaxInFlightBytes int
	// Linger is how long a put may wait for further puts, so that one write sends them
	// together. Puts that arrive during a write are always sent together. By default 0.
	Linger time.Duration
	// LingerBytes is the number of bytes that ends the wait of Linger. By default 64 KiB.
	LingerBytes int
	// Retry selects the failed puts that are repeated.
	Retry Retry
	// RetryBudget bounds the time from Send to the last attempt, also while no broker can be
	// reached. A connection is tried at least once in a quarter of it. By default 30 s.
	RetryBudget time.Duration
	// AnswerTimeout is how long a put may be outstanding before the producer closes the
	// connection. By default 15 s; a broker answers within --put-hold, 9 s.
	AnswerTimeout time.Duration
}

func (o *ProducerOptions) complete() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	count := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	count(&o.MaxInFlight, 1024)
	count(&o.MaxInFlightBytes, 32<<20)
	count(&o.LingerBytes, 64<<10)
	def(&o.RetryBudget, 30*time.Second)
	def(&o.AnswerTimeout, 15*time.Second)
}

const (
	// firstRetry and longestRetry bound the pause before a refused put is repeated; each
	// attempt doubles it.
	firstRetry   = 20 * time.Millisecond
	longestRetry = time.Second
	// budgetAttempts is the least number of attempts at a connection within a retry budget, unless
	// an attempt takes longer than its part: a pause after failures may be longer than the budget.
	budgetAttempts = 4
	// inspectEvery is the interval at which the producer checks the age of its puts.
	inspectEvery = 250 * time.Millisecond
)

// Producer publishes through one connection at a time and goes to another broker when that
// fails. All its methods may be called by any goroutine.
type Producer struct {
	c    *Client
	o    ProducerOptions
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	gone sync.WaitGroup
	room chan struct{} // capacity 1: a put was answered

	mu struct {
		sync.Mutex
		closed     bool // Send refuses
		over       bool // no further put is sent
		count      int
		bytes      int
		session    *session // takes puts; nil = none
		connecting bool
		waiting    []*put            // for a session, in the order of Send
		paused     map[*put]struct{} // wait before they are repeated
		sessions   map[*session]struct{}
		broker     string // of the last session
		last       error  // of the last attempt to connect
	}
}

// The states of a put.
const (
	putWaiting = iota
	putSent
	putDone
)

// put is one outstanding command. The producer's lock guards its fields, except the first
// ones, which never change.
type put struct {
	topic    string
	messages int
	command  command
	bytes    int
	began    time.Time
	deadline time.Time
	future   *Future
	end      func(error) // of the span; nil = none
	release  func() bool // ends the watch of the context; nil = none

	state   int
	tries   int    // attempts that reached a broker
	at      uint64 // the position in the connection
	sentAt  time.Time
	doubted bool // an attempt may have stored it
	last    *Error
}

// Future is the outcome of a Send.
type Future struct {
	done chan struct{}
	err  error
}

// Done is closed when the put is answered.
func (f *Future) Done() <-chan struct{} { return f.done }

// Err waits for the answer and returns it: nil, [ErrNotStored] or [ErrInDoubt].
func (f *Future) Err() error {
	<-f.done
	return f.err
}

// Producer makes a producer. It connects at the first Send.
func (c *Client) Producer(o ProducerOptions) *Producer {
	o.complete()
	p := &Producer{c: c, o: o, room: make(chan struct{}, 1)}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.mu.paused, p.mu.sessions = map[*put]struct{}{}, map[*session]struct{}{}
	c.mu.Lock()
	c.mu.producers[p] = struct{}{}
	c.mu.Unlock()
	p.gone.Go(p.inspect)
	return p
}

// Publish stores one message and waits until it is committed. If ctx ends before, the error
// says whether the message may be stored.
func (p *Producer) Publish(ctx context.Context, topic string, m Message) error {
	return p.Send(ctx, topic, m).Err()
}

// PublishAll stores all messages or none, in one partition, and waits until they are committed.
// All have the same Key, and none has a Delay.
func (p *Producer) PublishAll(ctx context.Context, topic string, messages ...Message) error {
	headers, end := p.trace(ctx, topic, len(messages) > 0)
	if len(headers) > 0 {
		messages = append([]Message(nil), messages...)
		for i := range messages {
			messages[i].Headers = merge(messages[i].Headers, headers)
		}
	}
	cmd, err := encodeAll(topic, messages)
	return p.send(ctx, topic, len(messages), cmd, end, err).Err()
}

// Send publishes one message without waiting for the answer. It waits while MaxInFlight puts
// are not answered. The put ends with ctx, too.
func (p *Producer) Send(ctx context.Context, topic string, m Message) *Future {
	headers, end := p.trace(ctx, topic, m.Delay == 0)
	if len(headers) > 0 {
		m.Headers = merge(m.Headers, headers)
	}
	cmd, err := encodeOne(topic, &m)
	return p.send(ctx, topic, 1, cmd, end, err)
}

// trace begins a span. carries: the message can have headers.
func (p *Producer) trace(ctx context.Context, topic string, carries bool) (Headers, func(error)) {
	if p.c.o.Tracer == nil {
		return nil, nil
	}
	var headers Headers
	if carries {
		headers = Headers{}
	}
	return headers, p.c.o.Tracer.Publish(ctx, topic, headers)
}

// merge returns both sets of headers. Those of the message are not changed.
func merge(of, more Headers) Headers {
	all := make(Headers, len(of)+len(more))
	for _, from := range []Headers{more, of} {
		for name, value := range from {
			all[name] = value
		}
	}
	return all
}

// send submits a put. invalid is the reason why it cannot be sent at all.
func (p *Producer) send(ctx context.Context, topic string, messages int, cmd command, end func(error), invalid error) *Future {
	now := time.Now()
	u := &put{topic: topic, messages: messages, command: cmd, began: now, deadline: now.Add(p.o.RetryBudget), end: end, future: &Future{done: make(chan struct{})}}
	u.bytes = cmd.size()
	err := invalid
	if err == nil {
		err = p.admit(ctx, u)
	}
	if err != nil {
		p.report(u, err)
		return u.future
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Done() != nil {
		u.release = context.AfterFunc(ctx, func() { p.abandon(u, ctx.Err()) })
	}
	p.submitLocked(u)
	return u.future
}

// admit waits for room.
func (p *Producer) admit(ctx context.Context, u *put) error {
	for {
		if err := ctx.Err(); err != nil {
			signal(p.room) // this put may have taken the signal of the next one
			return &Error{Op: "publish", Topic: u.topic, kinds: []error{ErrNotStored}, cause: err}
		}
		p.mu.Lock()
		closed := p.mu.closed
		fits := p.mu.count < p.o.MaxInFlight && (p.mu.count == 0 || p.mu.bytes+u.bytes <= p.o.MaxInFlightBytes)
		if !closed && fits {
			p.mu.count++
			p.mu.bytes += u.bytes
		}
		more := p.mu.count < p.o.MaxInFlight
		p.mu.Unlock()
		if closed {
			signal(p.room) // the next one that waits
			return &Error{Op: "publish", Topic: u.topic, kinds: []error{ErrNotStored, ErrClosed}, Text: "the producer is closed"}
		}
		if fits {
			if more {
				signal(p.room)
			}
			return nil
		}
		select {
		case <-p.room:
		case <-ctx.Done():
		}
	}
}

// submitLocked sends a put, or queues it until there is a connection.
func (p *Producer) submitLocked(u *put) {
	if u.state == putDone {
		return
	}
	u.state = putWaiting
	if p.mu.over {
		p.completeLocked(u, p.failureLocked(u, "the producer is closed", ErrClosed))
		return
	}
	if p.mu.session != nil && p.mu.session.sendLocked(u) {
		return
	}
	p.mu.waiting = append(p.mu.waiting, u)
	if !p.mu.connecting {
		p.mu.connecting = true
		p.gone.Go(p.connect)
	}
}

// connect makes the next session, for as long as puts wait for one.
func (p *Producer) connect() {
	for {
		p.mu.Lock()
		p.mu.waiting = alive(p.mu.waiting)
		if len(p.mu.waiting) == 0 || p.mu.over {
			p.mu.connecting = false
			p.mu.Unlock()
			return
		}
		topic := p.mu.waiting[0].topic
		p.mu.Unlock()

		n, err := p.c.connect(p.ctx, topic, 0, p.o.RetryBudget/budgetAttempts)
		p.mu.Lock()
		p.mu.last = err
		if err != nil {
			p.refuseWaitingLocked(err)
			p.mu.Unlock()
			continue
		}
		if p.mu.over {
			p.mu.connecting = false
			p.mu.Unlock()
			n.fail(ErrClosed)
			return
		}
		p.beginLocked(n)
		p.mu.connecting = false
		p.mu.Unlock()
		return
	}
}

// alive drops the puts that are done.
func alive(all []*put) []*put {
	kept := all[:0]
	for _, u := range all {
		if u.state != putDone {
			kept = append(kept, u)
		}
	}
	clear(all[len(kept):])
	return kept
}

// refuseWaitingLocked ends the waiting puts if no broker will ever take them: the client asks
// for TLS or a compression that the broker does not have.
func (p *Producer) refuseWaitingLocked(err error) {
	if !errors.Is(err, ErrInvalid) {
		return
	}
	for _, u := range p.mu.waiting {
		p.completeLocked(u, p.failureLocked(u, err.Error(), ErrInvalid))
	}
	p.mu.waiting = nil
}

// beginLocked installs a session and sends the waiting puts.
func (p *Producer) beginLocked(n *conn) {
	s := &session{p: p, conn: n}
	p.mu.session, p.mu.broker = s, n.addr
	p.mu.sessions[s] = struct{}{}
	p.gone.Go(func() { n.writeLoop(p.o.Linger, p.o.LingerBytes) })
	p.gone.Go(s.read)
	waiting := p.mu.waiting
	p.mu.waiting = nil
	for _, u := range waiting {
		p.submitLocked(u)
	}
}

// failureLocked is the error of a put that is not repeated: in doubt if one of its attempts is.
func (p *Producer) failureLocked(u *put, text string, kinds ...error) *Error {
	e := &Error{Op: "publish", Topic: u.topic, Broker: p.mu.broker, Text: text, Tries: u.tries}
	if u.doubted {
		e.kinds = []error{ErrInDoubt}
		return e
	}
	e.kinds = append([]error{ErrNotStored}, kinds...)
	return e
}

// completeLocked answers a put.
func (p *Producer) completeLocked(u *put, err error) {
	if u.state == putDone {
		return
	}
	u.state = putDone
	delete(p.mu.paused, u)
	p.mu.count--
	p.mu.bytes -= u.bytes
	signal(p.room)
	if u.release != nil {
		u.release()
	}
	p.report(u, err)
}

// report publishes the outcome of a put.
func (p *Producer) report(u *put, err error) {
	u.future.err = err
	close(u.future.done)
	if u.end != nil {
		u.end(err)
	}
	p.c.o.Observer.Published(u.topic, u.messages, u.tries, time.Since(u.began), err)
}

// abandon ends a put whose context has ended.
func (p *Producer) abandon(u *put, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.state == putDone {
		return
	}
	u.doubted = u.doubted || u.state == putSent // bytes that are queued will still be sent
	e := p.failureLocked(u, "")
	e.cause = cause
	p.completeLocked(u, e)
}

// repeatsDoubt reports whether a put that is in doubt is repeated.
func (p *Producer) repeatsDoubt(u *put) bool { return p.o.Retry == RetryInDoubt || u.command.named }

// repeatLocked repeats a put after a pause, if its budget allows. It returns false if the put
// is not repeated.
func (p *Producer) repeatLocked(u *put, pause time.Duration) bool {
	if p.o.Retry == RetryNever || p.mu.over || time.Now().Add(pause).After(u.deadline) {
		return false
	}
	u.state = putWaiting
	if pause <= 0 {
		p.submitLocked(u)
		return true
	}
	p.mu.paused[u] = struct{}{}
	time.AfterFunc(pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, ok := p.mu.paused[u]; ok { // Close may have answered it
			delete(p.mu.paused, u)
			p.submitLocked(u)
		}
	})
	return true
}

// retryPause is the pause before the next attempt of a put.
func retryPause(tries int) time.Duration {
	d := min(longestRetry, firstRetry<<min(max(tries-1, 0), 10))
	return d/2 + rand.N(d)
}

// inspect ends puts whose budget is used up, and connections that leave a put unanswered.
func (p *Producer) inspect() {
	tick := time.NewTicker(inspectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.inspectOnce(time.Now())
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Producer) inspectOnce(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.mu.waiting {
		if now.After(u.deadline) {
			p.completeLocked(u, p.unreachableLocked(u))
		}
	}
	p.mu.waiting = alive(p.mu.waiting)
	for s := range p.mu.sessions {
		if u := s.oldest(); u != nil && now.Sub(u.sentAt) > p.o.AnswerTimeout {
			s.retireLocked(errSilent)
			s.conn.fail(errSilent)
		}
	}
}

// unreachableLocked is the error of a put whose budget ended before a broker took it.
func (p *Producer) unreachableLocked(u *put) *Error {
	kinds, text := []error{ErrUnreachable}, "the retry budget is used up"
	if errors.Is(p.mu.last, ErrUnauthorized) {
		kinds = []error{ErrUnauthorized}
	}
	if u.last != nil {
		kinds = append(kinds, u.last.kinds[1:]...)
		text += "; the last answer: " + u.last.Text
	}
	e := p.failureLocked(u, text, kinds...)
	e.cause = p.mu.last
	return e
}

// Close waits until all puts are answered or ctx ends, and then closes the connections. Puts
// that are not answered by then end with ErrNotStored or ErrInDoubt, and Close with the error of
// ctx. Send is refused from the beginning.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	signal(p.room)
	err := p.answered(ctx)
	p.mu.Lock()
	p.mu.over = true
	for _, u := range p.mu.waiting {
		p.completeLocked(u, p.failureLocked(u, "the producer is closed", ErrClosed))
	}
	p.mu.waiting = nil
	for u := range p.mu.paused {
		p.completeLocked(u, p.failureLocked(u, "the producer is closed", ErrClosed))
	}
	for s := range p.mu.sessions {
		s.conn.fail(ErrClosed)
	}
	p.mu.Unlock()
	p.end()
	p.gone.Wait()
	p.c.mu.Lock()
	delete(p.c.mu.producers, p)
	p.c.mu.Unlock()
	return err
}

// answered waits until no put is outstanding.
func (p *Producer) answered(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		n := p.mu.count
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
