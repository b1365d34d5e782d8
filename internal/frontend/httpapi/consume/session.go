package consume

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// stateSubscribed is the state of a consumer in /stats.
const stateSubscribed = 3

// session is one client's subscription to a channel.
type session struct {
	set     *Sessions
	key     key
	number  uint64
	request Request
	since   time.Time
	opened  chan struct{} // closed when sub or err is set
	sub     api.Subscription
	err     error
	wait    *metrics.Wait
	memory  limits.Share
	short   *atomic.Bool // set when there was no memory for messages

	taking chan struct{} // capacity 1: has an element while a poll takes messages
	freed  chan struct{} // capacity 1: there may be room for messages in flight again

	attached                    atomic.Pointer[api.Subscription]
	ready                       atomic.Int64
	messages, finished, requeue atomic.Uint64

	// mu is held over Subscription.SetReady.
	mu struct {
		sync.Mutex
		polls int // waiting, or taking messages
		used  time.Time
		over  bool
		timer *time.Timer // runs tick; nil while a session has not had a poll
	}
}

// subscribe opens the subscription. It is called once.
func (x *session) subscribe(ctx context.Context) {
	defer close(x.opened)
	r := x.request
	x.sub, x.err = x.set.subscribers.Subscribe(ctx, api.SubscribeRequest{
		Topic: r.Topic, Channel: r.Channel, Partition: -1, MsgTimeoutMS: r.MsgTimeout.Milliseconds(), Client: x.stats, Memory: x.memory,
	})
	if x.err != nil {
		x.set.remove(x)
		return
	}
	x.attached.Store(&x.sub)
	x.wait = x.set.o.Metrics.Wait(r.Topic, r.Channel)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.over { // Stop came first
		x.sub.Withdraw()
		x.err = outcome.ErrExiting
	}
}

// stats describes the session for /stats, as a connection.
func (x *session) stats() api.ClientStats {
	c := x.request.About
	c.State, c.ConnectTime, c.ReadyCount = stateSubscribed, x.since.Unix(), x.ready.Load()
	c.MessageCount, c.FinishCount, c.RequeueCount = x.messages.Load(), x.finished.Load(), x.requeue.Load()
	if sub := x.attached.Load(); sub != nil {
		c.InFlightCount = int64((*sub).InFlight())
	}
	return c
}

// consumer describes the session for operators.
func (x *session) consumer() api.ConsumerStats {
	c := api.ConsumerStats{ClientStats: x.stats()}
	if sub := x.attached.Load(); sub != nil {
		c.Oldest = (*sub).Oldest()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch c.LastActivity = x.mu.used; {
	case x.mu.polls > 0:
		c.LastActivity = time.Now()
	case x.mu.used.IsZero():
		c.LastActivity = x.since
	}
	return c
}

// enter counts a poll. It returns false if the session has ended, or its channel is deleted.
func (x *session) enter() bool {
	select {
	case <-x.sub.Closed():
		x.finish(func(sub api.Subscription) { sub.Close(false) })
		return false
	default:
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.over {
		return false
	}
	x.mu.polls++
	return true
}

// leave ends a poll. After the last one the timer withdraws the credit, and later ends the session.
func (x *session) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.polls--
	x.mu.used = time.Now()
	switch {
	case x.mu.polls > 0 || x.mu.over:
	case x.mu.timer == nil:
		x.mu.timer = time.AfterFunc(lingerTime, x.tick)
	default:
		x.mu.timer.Reset(lingerTime)
	}
}

// tick withdraws the credit of a session without polls, and ends the session at the end of its lifetime.
func (x *session) tick() {
	x.mu.Lock()
	if x.mu.polls > 0 || x.mu.over {
		x.mu.Unlock()
		return
	}
	if left := max(x.request.MsgTimeout, minLifetime) - time.Since(x.mu.used); left > 0 {
		x.readyLocked(0)
		x.mu.timer.Reset(left)
		x.mu.Unlock()
		return
	}
	x.mu.over = true // set before mu is released, so that a poll that comes now opens another session
	x.mu.Unlock()
	x.ended(func(sub api.Subscription) { sub.Close(false) })
}

// finish ends the session once. end is called to close the subscription.
func (x *session) finish(end func(api.Subscription)) {
	x.mu.Lock()
	over := x.mu.over
	x.mu.over = true
	if x.mu.timer != nil {
		x.mu.timer.Stop()
	}
	x.mu.Unlock()
	if !over {
		x.ended(end)
	}
}

// ended removes a session that is over. end is called to close the subscription.
func (x *session) ended(end func(api.Subscription)) {
	x.set.remove(x)
	if sub := x.attached.Load(); sub != nil {
		end(*sub)
	}
}

func (x *session) readyLocked(n int) {
	x.ready.Store(int64(n))
	x.sub.SetReady(n)
}

// grant gives credit for `most` messages beyond those in flight.
func (x *session) grant(maxInFlight, most int) {
	n := min(maxInFlight, x.sub.InFlight()+most)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.mu.over {
		x.readyLocked(n)
	}
}

// poll waits until no other poll takes messages, and then for messages.
func (x *session) poll(ctx context.Context, maxInFlight, most int, timeout <-chan time.Time) (*Batch, error) {
	select {
	case x.taking <- struct{}{}:
	case <-timeout:
		return &Batch{session: x}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-x.taking }()
	x.short.Store(false)
	x.grant(maxInFlight, most)
	b := &Batch{session: x}
	var gather <-chan time.Time
	for {
		b.pull(min(most-len(b.Deliveries), maxInFlight-x.sub.InFlight()))
		if len(b.Deliveries) >= most || b.bytes >= answerBytes {
			break
		}
		if len(b.Deliveries) > 0 && gather == nil {
			gather = time.After(min(gatherTime, x.request.MsgTimeout/4))
		}
		more, err := x.await(ctx, timeout, gather)
		if err != nil && len(b.Deliveries) == 0 {
			return nil, err
		}
		if err != nil && ctx.Err() != nil {
			b.Close(false)
			return nil, err
		}
		if !more {
			break
		}
	}
	if ctx.Err() != nil {
		b.Close(false)
		return nil, ctx.Err()
	}
	b.Refused = x.refusals()
	if len(b.Deliveries)+len(b.Refused) == 0 && x.short.Load() {
		x.set.o.Metrics.Add(metrics.RefusedHTTPMemory, 1)
		return nil, ErrBusy // there are messages
	}
	return b, nil
}

// await waits until there may be messages; false if the timeout expires first.
func (x *session) await(ctx context.Context, timeout, gather <-chan time.Time) (bool, error) {
	select {
	case <-x.sub.Wake():
		return true, nil
	case <-x.freed:
		return true, nil
	case <-gather:
		return false, nil
	case <-timeout:
		return false, nil
	case <-x.sub.Closed():
		return false, fmt.Errorf("%w: it has been deleted", outcome.ErrChannelNotFound)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// refusals returns the late refusals since the last call.
func (x *session) refusals() (list []api.Refusal) {
	for {
		select {
		case r := <-x.sub.Refused():
			list = append(list, r)
		default:
			return list
		}
	}
}

const maxBurst = 256

func (x *session) stream(ctx context.Context, maxInFlight int, alive time.Duration, send func(*Batch) error) error {
	x.mu.Lock()
	x.readyLocked(maxInFlight)
	x.mu.Unlock()
	if err := send(nil); err != nil { // tells the client that it is subscribed
		return err
	}
	silence := time.NewTicker(alive)
	defer silence.Stop()
	for {
		b := &Batch{session: x}
		b.pull(min(maxBurst, maxInFlight-x.sub.InFlight()))
		b.Refused = x.refusals()
		if len(b.Deliveries) > 0 || len(b.Refused) > 0 {
			err := send(b)
			b.Close(err == nil)
			if err != nil {
				return err
			}
			silence.Reset(alive)
			continue
		}
		more, err := x.await(ctx, silence.C, nil)
		if err == nil && !more {
			err = send(nil)
		}
		if err != nil {
			return err
		}
	}
}

// settle executes a verb on a delivery to this session. outcome.ErrNotInFlight: the leader of the message decides.
func (x *session) settle(do api.Settlement, r api.Receipt) (err error) {
	select {
	case <-x.opened:
	default:
		return outcome.ErrNotInFlight
	}
	if x.err != nil {
		return outcome.ErrNotInFlight
	}
	if err = x.sub.Settle(r, do); err == nil {
		x.settled(do.Verb, r.ID)
	}
	x.mu.Lock()
	x.mu.used = time.Now()
	x.mu.Unlock()
	select {
	case x.freed <- struct{}{}:
	default:
	}
	return err
}

// observer is implemented by subscriptions that record their deliveries, as tracing does. Settled reports that a verb
// was carried out on a delivery, even if a leader on another broker did it.
type observer interface {
	Settled(id api.MessageID, verb api.Verb)
}

// settled counts a delivery that was settled, here or by the leader of its message.
func (x *session) settled(verb api.Verb, id api.MessageID) {
	if traced, ok := x.sub.(observer); ok {
		traced.Settled(id, verb)
	}
	switch verb {
	case api.VerbFinish:
		x.finished.Add(1)
	case api.VerbRequeue:
		x.requeue.Add(1)
	}
}

// Batch is the messages of one answer.
type Batch struct {
	Deliveries []api.Delivery
	// Refused are receipts that were settled earlier, but then refused by the leader of their message.
	Refused []api.Refusal
	session *session
	bytes   int
	began   time.Time // before the first message was taken
}

// pull adds messages, up to the credit.
func (b *Batch) pull(credit int) {
	if credit <= 0 {
		return
	}
	had := len(b.Deliveries)
	if had == 0 {
		b.began = time.Now()
	}
	b.Deliveries = b.session.sub.Pull(credit, b.Deliveries)
	for i := had; i < len(b.Deliveries); i++ {
		b.bytes += b.Deliveries[i].Message.Size()
	}
	b.session.messages.Add(uint64(len(b.Deliveries) - had))
}

// InTime yields the indexes of the deliveries until their timeouts may be over: the rest may go to other clients.
func (b *Batch) InTime() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range b.Deliveries {
			if time.Since(b.began) >= b.session.request.MsgTimeout || !yield(i) {
				return
			}
		}
	}
}

// Receipt returns the receipt of a delivery.
func (b *Batch) Receipt(i int) Receipt {
	return Receipt{Receipt: b.Deliveries[i].Receipt(), Session: b.session.number}
}

// Close ends the answer. Messages that were not sent are requeued at once, and their attempts count; without
// Options.RequeueOnDisconnect they wait for their timeouts.
func (b *Batch) Close(sent bool) {
	if len(b.Deliveries) == 0 {
		return
	}
	b.session.sub.Written(b.Deliveries)
	if !sent {
		if !b.session.set.o.RequeueOnDisconnect {
			return
		}
		b.session.set.requeue(b)
		return
	}
	now, first := time.Now(), &b.Deliveries[0].Message
	b.session.set.o.Metrics.Delivered(len(b.Deliveries), now.Sub(b.began))
	if first.Attempts == 1 {
		b.session.wait.Waited(now.Sub(time.Unix(0, max(first.Time, first.DeliverAt))))
	}
}
