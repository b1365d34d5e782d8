package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// reconcileLocked attaches the subscription where its partition is served now.
func (h *partitionSubscription) reconcileLocked(now time.Duration) {
	core := h.sub.g.core
	leads := core.Leads(h.id)
	to, known := core.Leader(h.id)
	known = known && to.Node != core.Self()
	if h.attachedLocked(leads, to, known) || h.sub.mu.over {
		return
	}
	if now < h.nextTry {
		h.sub.g.subs.scheduleAt(h.nextTry)
		return
	}
	switch {
	case leads:
		h.attachLocked(now)
	case known && h.sub.g.transport.Up(to.Node):
		h.openLocked(to)
	}
}

// attachedLocked reports whether the attachment is at the current leader, and ends it otherwise.
func (h *partitionSubscription) attachedLocked(leads bool, to Leadership, known bool) bool {
	switch {
	case h.local != nil:
		err := h.local.channel.Err(h.local.subscriber)
		if errors.Is(err, nsqd.ErrDeleted) {
			h.sub.endLocked()
			return false
		}
		if err == nil && (leads || !known) {
			return true
		}
		h.leaveLocked()
	case h.remote != nil:
		r := h.remote
		same := !known || r.to.Node == to.Node && r.to.Incarnation == to.Incarnation
		if !leads && same && h.sub.g.transport.Up(r.to.Node) {
			return true
		}
		h.sub.g.out.sendVerb(r.to.Node, wire.Verb{Kind: wire.VerbClose, Stream: r.stream, Argument: int64(wire.LeaveWithdrawn)})
		h.leaveLocked()
	}
	return false
}

// attachLocked attaches to the channel of this broker, and reclaims the messages that the client holds: they are in
// flight to it again.
func (h *partitionSubscription) attachLocked(now time.Duration) {
	s := h.sub
	channel := findChannel(s.g.core, h.id, s.request.Channel, s.request.Ordered)
	if channel == nil {
		h.missingLocked(now)
		return
	}
	subscriber := &nsqd.Subscriber{
		Wake: s.wakeUp, MsgTimeoutMS: s.request.MsgTimeoutMS, SampleRate: s.request.SampleRate, Direct: true, PullBytes: pullBytes,
	}
	if s.request.Client != nil {
		subscriber.Client = func() []api.ClientStats { return []api.ClientStats{s.request.Client()} }
	}
	if err := channel.Attach(subscriber); err != nil {
		h.waitLocked(now)
		return
	}
	h.local, h.missing, h.pause = &local{channel: channel, subscriber: subscriber}, 0, 0
	s.g.subs.unregister(h.last)
	for _, seq := range channel.Reclaim(subscriber, receiptsOf(h.heldLocked())) {
		delete(h.held, seq)
	}
	for _, v := range h.backlog {
		if err := apply(channel, subscriber, v.due(now)); err == nil {
			h.passedLocked(v)
		} else if !v.resent {
			h.refuse(v.Verb, err)
		}
	}
	h.backlog = nil
	s.wake()
}

// receiptsOf lists the deliveries that the verbs of an opening name.
func receiptsOf(verbs []wire.Verb) []nsqd.Receipt {
	list := make([]nsqd.Receipt, len(verbs))
	for i, v := range verbs {
		list[i] = receiptOf(v)
		list[i].LeftMS = max(v.Argument, 0)
	}
	return list
}

// findChannel looks a channel up here. An ephemeral channel is recreated, or made ordered: it is not replicated, so
// after a change of leader only its clients are left.
func findChannel(core Core, id ident.Partition, name string, ordered bool) *nsqd.Channel {
	p, ok := core.Queue(id)
	if !ok {
		return nil
	}
	if c, ok := p.Channel(name); ok && (!nsqd.IsEphemeral(name) || !ordered || c.Ordered()) {
		return c
	}
	if nsqd.IsEphemeral(name) {
		c, err := p.CreateChannel(context.Background(), name, nsqd.ChannelOptions{Origin: nsqd.FromLatest, Ordered: ordered})
		if err == nil {
			return c
		}
	}
	return nil
}

// missingLocked handles a leader that does not have the channel. If that persists, the channel was deleted while the
// subscription was not attached, or an operator recovered a replica that never had it.
func (h *partitionSubscription) missingLocked(now time.Duration) {
	h.waitLocked(now)
	if h.missing == 0 {
		h.missing = now
	} else if now-h.missing >= missingGrace {
		h.sub.g.core.ChannelMissing(h.id.Topic, h.sub.request.Channel)
		h.sub.endLocked()
	}
}

func (h *partitionSubscription) openLocked(to Leadership) {
	s := h.sub
	last, id := h.last, s.g.subs.register(h)
	s.g.subs.unregister(last) // not earlier: until now a leader may have returned verbs of the last stream
	credit := s.creditLocked(h)
	client, _ := json.Marshal(s.client) // plain data: it never fails
	open := &wire.Opening{
		Stream: id, Replaces: last, Topic: uint64(h.id.Topic), TopicName: s.request.Topic, Partition: h.id.Number,
		Channel: s.request.Channel, MsgTimeoutMS: s.request.MsgTimeoutMS, SampleRate: s.request.SampleRate,
		Credit: credit, Client: client, Ordered: s.request.Ordered, Partial: s.request.Partition >= 0,
	}
	items := []relayItem{{opening: open, held: h.heldLocked()}}
	for _, v := range h.backlog {
		v.Stream = id
		items = append(items, relayItem{Verb: v.due(s.g.now())})
		h.passedLocked(v)
	}
	h.backlog = nil
	h.last = id
	h.remote = &remote{stream: id, to: to, credit: credit}
	s.g.out.relay(to.Node, items...)
}

// leaveLocked ends the attachment. The messages that the client holds remain with it. The messages that wait here are
// dropped, because the leader may deliver them to others before the next opening, or finish them. It delivers the rest
// again, since the next opening does not name them.
func (h *partitionSubscription) leaveLocked() {
	if h.local != nil {
		detach(h.local.channel, h.local.subscriber, wire.LeaveWithdrawn)
		h.local = nil
	}
	if r := h.remote; r != nil {
		h.sub.freeWaitingLocked(r.buffer.bytes)
		h.remote = nil
	}
	h.resendLocked()
	h.sub.wake() // the in-flight count may have changed
}

// failedLocked ends an attachment that failed, and delays the next one.
func (h *partitionSubscription) failedLocked(now time.Duration) {
	h.leaveLocked()
	h.waitLocked(now)
}

func (h *partitionSubscription) waitLocked(now time.Duration) {
	h.pause = min(max(2*h.pause, firstAttach), maxAttach)
	h.nextTry = now + h.pause
	h.sub.g.subs.scheduleAt(h.nextTry)
	h.sub.g.wake()
}

func (h *partitionSubscription) closeLocked(how wire.Leaving) {
	if h.local != nil {
		detach(h.local.channel, h.local.subscriber, how)
		h.local = nil
	}
	if r := h.remote; r != nil {
		// Without credit the leader does not send the returned messages again. Only the messages that the client holds
		// count as attempts.
		h.setCreditLocked(0)
		h.returnLocked(r.buffer.len())
		if how != wire.LeaveWithdrawn {
			goes := int64(wire.Left)
			if how == wire.LeaveHeld {
				goes = wire.Kept
			}
			for _, seq := range slices.Sorted(maps.Keys(h.held)) {
				v := h.held[seq].verb(wire.VerbRequeue, seq)
				v.Stream, v.Argument = r.stream, goes
				h.sub.g.out.sendVerb(r.to.Node, v)
			}
		}
		v := wire.Verb{Kind: wire.VerbClose, Stream: r.stream, Argument: int64(wire.LeaveWithdrawn)}
		h.sub.g.out.sendVerb(r.to.Node, v)
		h.remote = nil
	}
	h.sub.g.subs.unregister(h.last)
	clear(h.held)
	h.backlog, h.requeued = nil, nil
}

// detach ends a subscriber's attachment. how decides what happens to its messages in flight.
func detach(c *nsqd.Channel, s *nsqd.Subscriber, how wire.Leaving) {
	if how == wire.LeaveWithdrawn {
		c.Withdraw(s)
		return
	}
	c.Detach(s, how == wire.LeaveRequeued)
}
