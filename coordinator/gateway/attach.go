package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// reconcileLocked attaches the share where its partition is served now.
func (h *share) reconcileLocked(now time.Duration) {
	core := h.sub.g.core
	leads := core.Leads(h.id)
	to, known := core.Leader(h.id)
	known = known && to.Node != core.Self()
	if h.attachedLocked(leads, to, known) || h.sub.mu.over {
		return
	}
	if now < h.nextTry {
		h.sub.g.subs.lookAt(h.nextTry)
		return
	}
	switch {
	case leads:
		h.attachLocked(now)
	case known && h.sub.g.transport.Up(to.Node):
		h.openLocked(to)
	}
}

// attachedLocked reports whether the present attachment is still the right one,
// and ends it if it is not.
func (h *share) attachedLocked(leads bool, to Leadership, known bool) bool {
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
		h.sub.g.out.say(r.to.Node, verb{Kind: verbClose, Stream: r.stream, Argument: int64(withdrawn)})
		h.leaveLocked()
	}
	return false
}

// attachLocked attaches to the channel of this broker, and takes back into
// flight what the client still holds.
func (h *share) attachLocked(now time.Duration) {
	s := h.sub
	channel := findChannel(s.g.core, h.id, s.request.Channel, s.request.Ordered)
	if channel == nil {
		h.missingLocked(now)
		return
	}
	h.spare = arrivals{} // the channel delivers them again
	subscriber := &nsqd.Subscriber{
		Wake: s.wakeUp, MsgTimeoutMS: s.request.MsgTimeoutMS, SampleRate: s.request.SampleRate, Direct: true,
	}
	if s.request.Client != nil {
		subscriber.Client = func() []edge.ClientStats { return []edge.ClientStats{s.request.Client()} }
	}
	if err := channel.Attach(subscriber); err != nil {
		h.waitLocked(now)
		return
	}
	h.local, h.missing, h.pause = &local{channel: channel, subscriber: subscriber}, 0, 0
	s.g.subs.unregister(h.last)
	for _, seq := range channel.Reclaim(subscriber, heldOf(h.heldLocked())) {
		delete(h.held, seq)
	}
	for _, v := range h.backlog {
		if err := apply(channel, subscriber, v); err != nil {
			h.refuse(v, err)
		}
	}
	h.backlog = nil
	s.nudge()
}

// heldOf is what the verbs of an opening say the client holds.
func heldOf(verbs []verb) []nsqd.Held {
	list := make([]nsqd.Held, len(verbs))
	for i, v := range verbs {
		list[i] = nsqd.Held{Sequence: v.Sequence, Attempts: uint16(v.Argument)}
	}
	return list
}

// findChannel looks a channel up here. An ephemeral one is made anew, or made ordered: it
// is not replicated, and after a change of leader its clients are all that is left.
func findChannel(core Core, id ident.Partition, name string, ordered bool) *nsqd.Channel {
	p, ok := core.Queue(id)
	if !ok {
		return nil
	}
	if c, ok := p.Channel(name); ok && (!nsqd.IsEphemeral(name) || !ordered || c.Ordered()) {
		return c
	}
	if nsqd.IsEphemeral(name) {
		// It does not wait: nothing is replicated.
		c, err := p.CreateChannel(context.Background(), name, nsqd.ChannelOptions{Origin: nsqd.FromLatest, Ordered: ordered})
		if err == nil {
			return c
		}
	}
	return nil
}

// missingLocked: the partition is served but the channel is not known there.
// If that lasts, the channel was deleted while we were not attached, or an operator
// went on with a replica that never had it.
func (h *share) missingLocked(now time.Duration) {
	h.waitLocked(now)
	if h.missing == 0 {
		h.missing = now
	} else if now-h.missing >= missingGrace {
		h.sub.g.core.ChannelMissing(h.id.Topic, h.sub.request.Channel)
		h.sub.endLocked()
	}
}

// openLocked opens a stream at the leader.
func (h *share) openLocked(to Leadership) {
	s := h.sub
	last, id := h.last, s.g.subs.register(h)
	s.g.subs.unregister(last) // until now: it may have been giving back what it could not do
	credit := s.creditLocked(h)
	open := &opening{
		Stream: id, Replaces: last, Topic: uint64(h.id.Topic), TopicName: s.request.Topic, Partition: h.id.Number,
		Channel: s.request.Channel, MsgTimeoutMS: s.request.MsgTimeoutMS, SampleRate: s.request.SampleRate,
		Credit: credit, Client: s.client, Ordered: s.request.Ordered,
	}
	if h.spareFrom != to {
		h.spare = arrivals{} // another leader delivers them again
	}
	items := []relayItem{{opening: open, held: h.heldLocked()}}
	for _, v := range h.backlog {
		v.Stream = id
		items = append(items, relayItem{verb: v})
	}
	h.backlog = nil
	h.last = id
	h.remote = &remote{stream: id, to: to, credit: credit, buffer: h.spare}
	h.spare = arrivals{}
	s.g.out.relay(to.Node, items...)
}

// leaveLocked ends the attachment. What the client holds stays held.
func (h *share) leaveLocked() {
	if h.local != nil {
		withdrawn.detach(h.local.channel, h.local.subscriber)
		h.local = nil
	}
	if r := h.remote; r != nil {
		h.spare, h.spareFrom, h.remote = r.buffer, r.to, nil
	}
	h.sub.nudge() // the in-flight count may be another now
}

// failedLocked ends an attachment that did not work; the next waits a little.
func (h *share) failedLocked(now time.Duration) {
	h.leaveLocked()
	h.waitLocked(now)
}

// waitLocked puts the next attachment off, and lets the keeper know.
func (h *share) waitLocked(now time.Duration) {
	h.pause = min(max(2*h.pause, firstAttach), maxAttach)
	h.nextTry = now + h.pause
	h.sub.g.subs.lookAt(h.nextTry)
	h.sub.g.wake()
}

func (h *share) closeLocked(how leaving) {
	if h.local != nil {
		how.detach(h.local.channel, h.local.subscriber)
		h.local = nil
	}
	if r := h.remote; r != nil {
		h.setCreditLocked(0)           // or the leader sends again what is given back,
		h.returnLocked(r.buffer.len()) // which the client was not sent
		if how != withdrawn {          // nor was it sent what is on the way here: only what it holds counts
			goes := int64(left)
			if how == leaveHeld {
				goes = kept
			}
			for _, seq := range slices.Sorted(maps.Keys(h.held)) {
				h.sub.g.out.say(r.to.Node, verb{Kind: verbRequeue, Stream: r.stream, Sequence: seq, Epoch: h.held[seq].epoch, Argument: goes})
			}
		}
		v := verb{Kind: verbClose, Stream: r.stream, Argument: int64(withdrawn)}
		h.sub.g.out.say(r.to.Node, v)
		h.remote = nil
	}
	h.sub.g.subs.unregister(h.last)
	clear(h.held)
	h.backlog = nil
}
