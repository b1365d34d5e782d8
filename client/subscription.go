package client

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// subscription is a consumer's connection with the messages that it has leased.
type subscription struct {
	r      *consumer
	conn   *conn
	base   context.Context // of the handlers: the values of Consume's
	lease  time.Duration   // time after its delivery or TOUCH at which the broker delivers a message again
	most   time.Duration   // TOUCH extends a lease up to it, since the delivery
	gone   sync.WaitGroup
	leaves chan struct{} // closed when the broker asks its consumers to leave
	strays int           // handlers of earlier connections that still run; of the consumer's lock

	mu struct {
		sync.Mutex
		held    map[string]*leased // by id
		sending int                // leases that have ended, and whose outcome is not sent yet
		unsent  int                // outcomes that found the connection ended
		quiet   bool               // no further message comes
		drained chan struct{}      // closed when no message is held or expected; nil while no goroutine waits
	}
}

// leased is one message whose handler runs.
type leased struct {
	began time.Time
	until time.Time // the end of the lease, at the earliest
	end   context.CancelCauseFunc
}

func newSubscription(ctx context.Context, r *consumer, n *conn) *subscription {
	s := &subscription{r: r, conn: n, base: context.WithoutCancel(ctx), leaves: make(chan struct{}), lease: time.Duration(n.limits.MsgTimeout) * time.Millisecond, most: time.Duration(n.limits.MaxMsgTimeout) * time.Millisecond}
	s.mu.held = map[string]*leased{}
	if s.lease <= 0 {
		s.lease = time.Minute
	}
	return s
}

// errLeaves: the broker stops, and sends no more messages.
var errLeaves = errors.New("the broker asks its consumers to leave")

// serve delivers messages until ctx ends, the connection does, or the broker stops. After the end
// of ctx nil means that the outcomes of all messages were sent; else the error is
// ErrNotDrained.
func (s *subscription) serve(ctx context.Context) error {
	r, n := s.r, s.conn
	s.gone.Go(func() { n.writeLoop(0, 0) })
	s.gone.Go(s.keepLeases)
	read := make(chan error, 1)
	s.gone.Go(func() { read <- s.read() })

	r.mu.Lock()
	r.mu.current, s.strays = s, r.mu.running
	s.grant(r.o.MaxInFlight - s.strays)
	r.mu.Unlock()

	var err error
	select {
	case err = <-read:
	case <-s.leaves:
		if err = errLeaves; ctx.Err() != nil {
			err = s.drain(read)
		}
	case <-ctx.Done():
		err = s.drain(read)
	}
	r.mu.Lock()
	r.mu.current = nil
	r.mu.Unlock()
	if err == errLeaves {
		r.c.failed(n.addr, err)
		r.leaving.Go(func() { s.leave(ctx, read) })
		return err
	}
	lost := s.close(err)
	switch {
	case ctx.Err() != nil && lost > 0:
		return &Error{Op: "consume", Topic: r.topic, Broker: n.addr, kinds: []error{ErrNotDrained}, cause: err}
	case ctx.Err() != nil:
		return nil
	}
	r.c.failed(n.addr, err)
	return r.failure(n.addr, err)
}

// leave keeps the leases of a broker that stops until their handlers have returned.
// The consumer continues at another broker.
func (s *subscription) leave(ctx context.Context, read <-chan error) {
	if lost := s.close(s.settled(read)); lost > 0 && ctx.Err() != nil {
		s.r.undrained.Store(true)
	}
}

// close ends the connection and the leases that are left, and returns their number.
func (s *subscription) close(err error) (lost int) {
	if err == nil {
		err = errRetired
	}
	s.conn.fail(err)
	lost = s.loseAll()
	s.gone.Wait()
	return lost
}

// grant sends the broker the number of messages that may be in flight.
func (s *subscription) grant(n int) {
	ready := max(0, n)
	if most := s.conn.limits.MaxRdyCount; most > 0 {
		ready = min(ready, most)
	}
	s.conn.queue([]byte("RDY "+strconv.Itoa(ready)+"\n"), false)
}

// read handles the frames.
func (s *subscription) read() error {
	for {
		kind, data, err := s.conn.next()
		switch {
		case err != nil:
			if why := s.conn.reason(); why != nil {
				err = why
			}
			return err
		case kind == frameMessage:
			if err := s.deliver(data); err != nil {
				return err
			}
		case kind == frameError:
			if err := s.refusal(string(data)); err != nil {
				return err
			}
		case kind == frameResponse && string(data) == "CLOSE_WAIT":
			s.mu.Lock()
			if !s.mu.quiet && s.mu.drained == nil { // not the answer to CLS
				close(s.leaves)
			}
			s.mu.quiet = true
			s.settleLocked()
			s.mu.Unlock()
		}
	}
}

// deliver runs the handler of one message.
func (s *subscription) deliver(frame []byte) error {
	d, err := decodeDelivery(frame)
	if err != nil {
		return err
	}
	d.Topic, d.Channel = s.r.topic, s.r.channel
	ctx, end := context.WithCancelCause(s.base)
	now := time.Now()
	l := &leased{began: now, until: now.Add(s.lease), end: end}
	s.mu.Lock()
	if old := s.mu.held[d.ID]; old != nil {
		old.end(ErrLeaseLost) // the broker delivers it again: that lease is over
	}
	s.mu.held[d.ID] = l
	s.mu.Unlock()
	s.r.begin()
	go s.run(ctx, d, l) // ends with the handler; Consume waits for it
	return nil
}

// run calls the handler and sends the outcome.
func (s *subscription) run(ctx context.Context, d *Delivery, l *leased) {
	defer s.r.ended(s)
	defer l.end(context.Canceled) // frees the context
	o := &s.r.c.o
	began := time.Now()
	var end func(error)
	if o.Tracer != nil {
		ctx, end = o.Tracer.Handle(ctx, d)
	}
	err := s.r.handle(ctx, d)
	if end != nil {
		end(err)
	}
	o.Observer.Handled(d, time.Since(began), err)
	if !s.release(d.ID, l) {
		o.Observer.Refused(d.ID, ErrLeaseLost.Error())
		return
	}
	command := "FIN " + d.ID + "\n"
	if err != nil {
		command = "REQ " + d.ID + " " + strconv.FormatInt(s.delay(err).Milliseconds(), 10) + "\n"
	}
	sent := s.conn.queue([]byte(command), false)
	if !sent {
		o.Observer.Refused(d.ID, "the connection has ended")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sending--
	if !sent {
		s.mu.unsent++
	}
	s.settleLocked()
}

// delay is how long a message waits after its handler's error.
func (s *subscription) delay(err error) time.Duration {
	if r := (*retryAfter)(nil); errors.As(err, &r) {
		return max(0, r.after)
	}
	return max(0, s.r.o.RetryDelay)
}

// release ends the lease of a message whose handler has returned; its outcome is to be sent. It
// reports false if the lease was over.
func (s *subscription) release(id string, l *leased) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held[id] != l {
		return false
	}
	delete(s.mu.held, id)
	s.mu.sending++
	return true
}

// settleLocked reports the end of the drain, after the commands of all messages are queued.
func (s *subscription) settleLocked() {
	if s.mu.drained != nil && s.mu.quiet && len(s.mu.held) == 0 && s.mu.sending == 0 {
		close(s.mu.drained)
		s.mu.drained = nil
	}
}

// refusal handles an error frame. Those of FIN, REQ and TOUCH concern one message; any other
// ends the connection.
func (s *subscription) refusal(text string) error {
	code, rest, _ := strings.Cut(text, " ")
	switch code {
	case "E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED":
	default:
		return &Error{Op: "consume", Topic: s.r.topic, Broker: s.conn.addr, Text: text, kinds: judge(text).kinds[1:]}
	}
	words := strings.Fields(rest) // FIN <id> failed …
	if len(words) < 2 {
		return nil
	}
	id := words[1]
	s.r.c.o.Observer.Refused(id, text)
	if code == "E_TOUCH_FAILED" {
		s.lose(id)
	}
	return nil
}

// lose ends the lease of a message.
func (s *subscription) lose(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.mu.held[id]; l != nil {
		delete(s.mu.held, id)
		l.end(ErrLeaseLost)
	}
	s.settleLocked()
}

// loseAll ends all leases, with the connection, and returns their number.
func (s *subscription) loseAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.mu.held) + s.mu.unsent
	for id, l := range s.mu.held {
		delete(s.mu.held, id)
		l.end(ErrLeaseLost)
	}
	return n
}

// keepLeases extends the leases that are half over, and ends those that have expired.
func (s *subscription) keepLeases() {
	every := max(s.lease/20, 25*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.conn.done:
			return
		}
		// The broker's timer began before the message was received here; the end of the
		// context is early by up to two ticks.
		s.extend(time.Now(), 2*every)
	}
}

// extend looks at all leases.
func (s *subscription) extend(now time.Time, margin time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.mu.held {
		left := l.until.Sub(now)
		if left <= margin {
			delete(s.mu.held, id)
			l.end(ErrLeaseLost)
			continue
		}
		end := l.began.Add(s.most)
		if s.r.o.NoTouch || left > s.lease/2 || !l.until.Before(end) {
			continue
		}
		if s.conn.queue([]byte("TOUCH "+id+"\n"), true) {
			l.until = now.Add(s.lease)
			if s.most > 0 && l.until.After(end) {
				l.until = end
			}
		}
	}
	s.settleLocked()
}

// drain stops taking messages and waits for the handlers. The broker sends no message after
// CLOSE_WAIT.
func (s *subscription) drain(read <-chan error) error {
	s.mu.Lock()
	quiet := s.mu.quiet
	s.mu.drained = make(chan struct{})
	s.mu.Unlock()
	if !quiet {
		s.grant(0)
		s.conn.queue([]byte("CLS\n"), false)
	}
	return s.settled(read)
}

// settled waits until the handlers have returned, and closes the connection in order: the
// broker has read the outcomes when it closes its side.
func (s *subscription) settled(read <-chan error) error {
	s.mu.Lock()
	if s.mu.drained == nil {
		s.mu.drained = make(chan struct{})
	}
	drained := s.mu.drained
	s.settleLocked()
	s.mu.Unlock()
	limit := time.NewTimer(s.r.o.DrainTimeout)
	defer limit.Stop()
	select {
	case <-drained:
	case err := <-read:
		return err
	case <-limit.C:
		return errors.New("the drain timeout is over")
	}
	s.conn.finish()
	select {
	case <-read:
	case <-time.After(closeTimeout):
	}
	return nil
}
