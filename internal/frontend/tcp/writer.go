package tcp

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// The limits of one burst.
const (
	maxBurst   = 256 // limit of messages, so that answers do not wait for a long backlog
	maxAnswers = 512 // limit of answers, which are in memory until the client has read them
)

var errDeleted = errors.New("tcp: the channel was deleted")

type writer struct {
	c             *conn
	answers       []answer
	deliveries    []api.Delivery
	sub           api.Subscription
	outputTimeout time.Duration
	delayed       bool // messages are in the buffer and the flush timer runs
	flush         *time.Timer
	wake          <-chan struct{}
	refused       <-chan api.Refusal
	closed        <-chan struct{}
}

// write sends answers, messages and heartbeats until the last answer, a failed write, the deletion of the channel, or
// the end of ctx.
func (c *conn) write(ctx context.Context) {
	w := &writer{c: c, outputTimeout: c.h.opts.OutputBufferTimeout, flush: time.NewTimer(time.Hour)}
	w.flush.Stop()
	defer w.flush.Stop()
	heartbeat := time.NewTicker(maxClientTimeout / 2)
	defer heartbeat.Stop()
	for {
		last, err := w.burst()
		if last && err == nil {
			return
		}
		if err == nil {
			err = w.wait(ctx, heartbeat)
		}
		if errors.Is(err, errDeleted) {
			c.dismiss()
			return
		}
		if err != nil {
			_ = c.raw.Close() // the reader's next read fails
			return
		}
	}
}

// wait blocks until there is something to write; an error ends the connection. Settings come first: they apply to
// everything after the answer to IDENTIFY.
func (w *writer) wait(ctx context.Context, heartbeat *time.Ticker) error {
	select {
	case s := <-w.c.settings:
		w.apply(s, heartbeat)
		return nil
	default:
	}
	select {
	case <-w.c.fifo.wake:
	case <-w.wake:
	case <-heartbeat.C:
		return w.heartbeat()
	case <-w.flush.C:
		return w.flushDelayed()
	case r := <-w.refused:
		return w.respond(frameError, []byte(failedText(r.Verb, r.ID[:], r.Err)))
	case s := <-w.c.settings:
		w.apply(s, heartbeat)
	case <-w.closed:
		return errDeleted
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (w *writer) apply(s tuning, heartbeat *time.Ticker) {
	w.outputTimeout = s.outputTimeout
	if s.heartbeat > 0 {
		heartbeat.Reset(s.heartbeat)
	} else {
		heartbeat.Stop()
	}
}

// burst writes the complete answers, and messages as far as the credit goes, with one flush.
func (w *writer) burst() (last bool, err error) {
	o := w.c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	w.answers = w.c.fifo.take(w.answers[:0], maxAnswers)
	for i := range w.answers {
		a := &w.answers[i]
		if err := w.answerLocked(a); err != nil {
			return false, err
		}
		if a.last {
			err := o.flushLocked()
			if err == nil && a.half {
				o.closeWriteLocked()
			}
			return true, err
		}
	}
	n, err := w.deliverLocked()
	if err != nil {
		return false, err
	}
	return false, w.settleLocked(len(w.answers) > 0 || o.unsent, n > 0)
}

// answerDirect writes the answer of an uncontended put in the goroutine that answers it, without blocking. It returns
// false if that answer is not a plain OK, or if the writer is busy or has other bytes to send.
func (c *conn) answerDirect() bool {
	o := c.out
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	if o.direct == nil || o.buf != nil || !c.fifo.takeOK() {
		return false
	}
	err := o.okDirectLocked()
	return err == nil && !o.unsent // the writer flushes the rest
}

func (w *writer) answerLocked(a *answer) error {
	if a.start != nil {
		w.sub, w.wake, w.refused, w.closed = a.start, a.start.Wake(), a.start.Refused(), a.start.Closed()
	}
	kind, text := a.kind, a.text
	if a.put != "" {
		kind, text = putFrame(a.put, a.fate.Err)
		if a.trace != nil && a.fate.Err == nil {
			text = a.trace.answer(a.fate)
		}
	}
	if text == nil {
		return nil
	}
	var each *api.EachError
	if a.count > 1 && a.fate.Err != nil {
		_ = errors.As(a.fate.Err, &each)
	}
	for n := range a.count {
		if each != nil && n < len(each.Each) {
			kind, text = putFrame(a.put, each.Each[n])
		}
		if err := w.c.out.frameLocked(kind, text); err != nil {
			return err
		}
	}
	return nil
}

func putFrame(verb string, err error) (frameType, []byte) {
	if err == nil {
		return frameResponse, responseOK
	}
	code := "E_" + verb + "_FAILED"
	if errors.Is(err, outcome.ErrPartitionNotFound) {
		code = codeTopicNotExist
	}
	return frameError, []byte(code + " " + verb + " failed " + err.Error())
}

func (w *writer) deliverLocked() (int, error) {
	if w.sub == nil {
		return 0, nil
	}
	credit := w.credit()
	if credit == 0 {
		return 0, nil
	}
	began := time.Now()
	w.deliveries = w.sub.Pull(min(credit, maxBurst), w.deliveries[:0])
	n := len(w.deliveries)
	for i := range w.deliveries {
		if err := w.c.out.messageLocked(&w.deliveries[i]); err != nil {
			return i, err
		}
	}
	w.record(began)
	w.sub.Written(w.deliveries)
	clear(w.deliveries) // release the bodies, which may be large
	w.c.messages.Add(uint64(n))
	if n == min(credit, maxBurst) {
		w.c.fifo.wake.Notify() // the channel may have more messages
	}
	return n, nil
}

// record adds a burst to the metrics: its duration, and how long its first message waited in the log before its first
// delivery.
func (w *writer) record(began time.Time) {
	if len(w.deliveries) == 0 {
		return
	}
	now, first := time.Now(), &w.deliveries[0].Message
	w.c.h.backend.Metrics.Delivered(len(w.deliveries), now.Sub(began))
	if of := w.c.consumes.Load(); first.Attempts == 1 && of != nil {
		of.wait.Waited(now.Sub(time.Unix(0, max(first.Time, first.DeliverAt))))
	}
}

// credit returns how many messages may be pulled. If it is 0, the reader wakes the writer at the next FIN, REQ or RDY.
// The writer sets the flag before it checks again, so that no wake-up is lost.
func (w *writer) credit() int {
	if n := w.granted(); n > 0 {
		w.c.starved.Store(false)
		return n
	}
	w.c.starved.Store(true)
	return w.granted()
}

func (w *writer) granted() int {
	ready := int(w.c.ready.Load())
	if ready == 0 {
		return 0
	}
	return max(0, ready-w.sub.InFlight())
}

// settleLocked decides when the buffered bytes are flushed. Answers are flushed at once. Messages are flushed with
// their burst, unless the client or the operator has configured an output buffer timeout; then they stay in the buffer
// for that time, or until the credit is used up. The stock default is not applied: it would only add up to 250 ms to
// each message. Ordered channels are never delayed: each message would wait for the whole timeout, because the next one
// cannot fill the buffer.
func (w *writer) settleLocked(answered, delivered bool) error {
	if !answered && !delivered {
		return nil
	}
	delay := delivered && !answered && w.outputTimeout > 0 &&
		w.outputTimeout != stockOutputBufferTimeout && !w.sub.Ordered() && w.granted() > 0
	if !delay {
		w.delayed = false
		w.flush.Stop()
		return w.c.out.flushLocked()
	}
	if !w.delayed {
		w.delayed = true
		w.flush.Reset(w.outputTimeout)
	}
	return nil
}

func (w *writer) flushDelayed() error {
	w.c.out.mu.Lock()
	defer w.c.out.mu.Unlock()
	w.delayed = false
	return w.c.out.flushLocked()
}

// heartbeat also releases the memory of the compressor.
func (w *writer) heartbeat() error {
	if err := w.respond(frameResponse, responseHeartbeat); err != nil {
		return err
	}
	w.c.out.mu.Lock()
	defer w.c.out.mu.Unlock()
	if w.c.out.buf == nil { // nothing was written since
		w.c.out.parkLocked()
	}
	return nil
}

func (w *writer) respond(kind frameType, text []byte) error {
	o := w.c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	w.delayed = false
	return o.sendLocked(kind, text)
}
