package edgetest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// channel is a queue with consumers; Cluster.mu guards all of its state.
type channel struct {
	topic, name string
	queue       []*message
	deferred    map[*message]*time.Timer
	consumers   []*subscription
	paused      bool
	messages    uint64
	requeued    uint64
	timedOut    uint64
}

// delivery is a message in flight to a consumer.
type delivery struct {
	message *message
	number  uint64
	since   time.Time
	timer   *time.Timer
}

func newChannel(topic, name string) *channel {
	return &channel{topic: topic, name: name, deferred: map[*message]*time.Timer{}}
}

func (ch *channel) putLocked(c *Cluster, m *message) {
	ch.messages++
	if delay := time.Duration(m.deliverAt - time.Now().UnixNano()); m.deliverAt != 0 && delay > 0 {
		ch.deferLocked(c, m, delay)
		return
	}
	ch.queueLocked(m)
}

func (ch *channel) queueLocked(m *message) {
	ch.queue = append(ch.queue, m)
	ch.wakeLocked()
}

func (ch *channel) deferLocked(c *Cluster, m *message, delay time.Duration) {
	ch.deferred[m] = time.AfterFunc(delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := ch.deferred[m]; ok && !c.mu.closed {
			delete(ch.deferred, m)
			ch.queueLocked(m)
		}
	})
}

func (ch *channel) wakeLocked() {
	for _, s := range ch.consumers {
		s.signal()
	}
}

// emptyLocked drops every message, including those in flight and deferred.
func (ch *channel) emptyLocked() {
	ch.queue = nil
	for m, timer := range ch.deferred {
		timer.Stop()
		delete(ch.deferred, m)
	}
	for _, s := range ch.consumers {
		s.forgetLocked()
		s.signal()
	}
}

func (ch *channel) stopLocked() { ch.emptyLocked() }

// subscription implements api.Subscription.
type subscription struct {
	c        *Cluster
	ch       *channel
	request  api.SubscribeRequest
	wake     chan struct{}
	closed   chan struct{}
	refused  chan api.Refusal
	inFlight map[api.MessageID]*delivery
	ready    int
	gone     bool
	memory   limits.Tally
}

func newSubscription(c *Cluster, ch *channel, r api.SubscribeRequest) *subscription {
	return &subscription{
		c: c, ch: ch, request: r,
		wake: make(chan struct{}, 1), closed: make(chan struct{}), refused: make(chan api.Refusal, 1),
		inFlight: map[api.MessageID]*delivery{}, memory: r.Memory.Tally(limits.Deliveries),
	}
}

// Written implements api.Subscription.
func (s *subscription) Written(list []api.Delivery) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for i := range list {
		if !s.gone {
			s.memory.Give(list[i].Message.Size())
		}
	}
}

func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) Wake() <-chan struct{}       { return s.wake }
func (s *subscription) Closed() <-chan struct{}     { return s.closed }
func (s *subscription) Refused() <-chan api.Refusal { return s.refused }
func (s *subscription) Ordered() bool               { return s.request.Ordered }
func (s *subscription) InFlight() int               { s.c.mu.Lock(); defer s.c.mu.Unlock(); return len(s.inFlight) }
func (s *subscription) Oldest() (oldest *api.HeldMessage) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	now := time.Now()
	for id, f := range s.inFlight {
		if age := now.Sub(f.since); oldest == nil || age > oldest.For {
			oldest = &api.HeldMessage{ID: id, Attempts: f.message.attempts, For: age}
		}
	}
	return oldest
}
func (s *subscription) SetReady(n int) { s.c.mu.Lock(); s.ready = n; s.c.mu.Unlock() }
func (s *subscription) sampledOut() bool {
	return s.request.SampleRate > 0 && rand.Int32N(100) > s.request.SampleRate
}

func (s *subscription) Pull(credit int, dst []api.Delivery) []api.Delivery {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.gone || s.ch.paused {
		return dst
	}
	for ; credit > 0 && len(s.ch.queue) > 0; credit-- {
		m := s.ch.queue[0]
		if !s.memory.Take(len(m.header) + len(m.body)) {
			break
		}
		s.ch.queue = s.ch.queue[1:]
		if s.sampledOut() {
			credit++
			s.memory.Give(len(m.header) + len(m.body))
			continue
		}
		m.attempts++
		s.c.mu.number++
		f := &delivery{message: m, number: s.c.mu.number, since: time.Now()}
		s.inFlight[m.id] = f
		s.armLocked(f, time.Duration(s.request.MsgTimeoutMS)*time.Millisecond)
		dst = append(dst, api.Delivery{ID: m.id, Epoch: 1, Number: f.number, Message: queue.Message{
			Time: m.timeNS, Attempts: m.attempts, Trace: m.trace, Header: m.header, Body: m.body, Seq: m.sequence,
		}})
	}
	return dst
}

func (s *subscription) armLocked(f *delivery, timeout time.Duration) {
	f.timer = time.AfterFunc(timeout, func() {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		if s.inFlight[f.message.id] == f && !s.c.mu.closed {
			delete(s.inFlight, f.message.id)
			s.ch.timedOut++
			s.ch.queueLocked(f.message)
		}
	})
}

// takeLocked removes a message from those in flight.
func (s *subscription) takeLocked(id api.MessageID) (*message, error) {
	f := s.inFlight[id]
	if f == nil {
		for _, other := range s.ch.consumers {
			if other.inFlight[id] != nil {
				return nil, outcome.ErrNotOwner
			}
		}
		return nil, outcome.ErrNotInFlight
	}
	f.timer.Stop()
	delete(s.inFlight, id)
	return f.message, nil
}

// Settle implements api.Subscription.
func (s *subscription) Settle(r api.Receipt, do api.Settlement) error {
	s.c.mu.Lock()
	f := s.inFlight[r.ID]
	s.c.mu.Unlock()
	switch {
	case f != nil && f.number != r.Number:
		return outcome.ErrNotOwner
	case do.Verb == api.VerbFinish:
		return s.Finish(r.ID)
	case do.Verb == api.VerbRequeue:
		return s.Requeue(r.ID, do.DelayMS)
	}
	return s.Touch(r.ID)
}

func (s *subscription) Finish(id api.MessageID) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	_, err := s.takeLocked(id)
	return err
}

func (s *subscription) Requeue(id api.MessageID, delayMS int64) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	m, err := s.takeLocked(id)
	if err != nil {
		return err
	}
	s.ch.requeued++
	if delayMS > 0 {
		s.ch.deferLocked(s.c, m, time.Duration(delayMS)*time.Millisecond)
	} else {
		s.ch.queueLocked(m)
	}
	return nil
}

func (s *subscription) Touch(id api.MessageID) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	f := s.inFlight[id]
	if f == nil {
		_, err := s.takeLocked(id)
		return err
	}
	f.timer.Stop()
	left := time.Until(f.since.Add(s.c.MaxMsgTimeout))
	s.armLocked(f, min(left, time.Duration(s.request.MsgTimeoutMS)*time.Millisecond))
	return nil
}

func (s *subscription) forgetLocked() {
	for id, f := range s.inFlight {
		f.timer.Stop()
		delete(s.inFlight, id)
	}
}

// Withdraw implements api.Subscription.
func (s *subscription) Withdraw() {
	s.c.mu.Lock()
	for _, f := range s.inFlight {
		f.message.attempts--
	}
	s.c.mu.Unlock()
	s.Close(true)
}

func (s *subscription) Close(requeue bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.gone = true
	s.memory.Give(s.memory.Held())
	s.ch.consumers = slices.DeleteFunc(s.ch.consumers, func(o *subscription) bool { return o == s })
	if requeue {
		for _, f := range s.inFlight {
			s.ch.queueLocked(f.message)
		}
		s.forgetLocked()
	}
	if len(s.ch.consumers) == 0 && strings.HasSuffix(s.ch.name, "#ephemeral") {
		if t := s.c.mu.topics[s.ch.topic]; t != nil {
			delete(t.channels, s.ch.name)
		}
		s.ch.emptyLocked()
	}
}
