package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
)

const (
	methodDeferred = "queue.deferred"
	// maxListed bounds one listing of deferred messages.
	maxListed = 100_000
)

// deferredRequest asks a partition's leader for delayed messages of a channel,
// or to finish some.
type deferredRequest struct {
	Topic   uint64
	Number  uint16
	Channel string
	Max     int
	Cancel  []uint64
}

// deferredReply is its answer.
type deferredReply struct {
	Listed    []listedMessage
	Cancelled int
}

type listedMessage struct {
	Sequence   uint64
	DeadlineNS int64
	Attempts   uint16
}

// Deferred lists at most limit delayed messages of a channel over all
// partitions, by deadline (edge.Channels).
func (b *Broker) Deferred(ctx context.Context, topic, channel string, limit int) ([]edge.DeferredMessage, error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return nil, edge.ErrTopicNotFound
	}
	limit = min(max(limit, 0), maxListed)
	all := []edge.DeferredMessage{}
	for n := range t.Partitions {
		req := deferredRequest{Topic: uint64(t.ID), Number: uint16(n), Channel: channel, Max: limit}
		r, err := b.askDeferred(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, m := range r.Listed {
			id := nsqd.ID(ident.Partition{Topic: t.ID, Number: uint16(n)}, ident.Sequence(m.Sequence))
			all = append(all, edge.DeferredMessage{ID: string(id[:]), Partition: n, DeadlineNS: m.DeadlineNS, Attempts: m.Attempts})
		}
	}
	slices.SortStableFunc(all, func(x, y edge.DeferredMessage) int { return cmp.Compare(x.DeadlineNS, y.DeadlineNS) })
	return all[:min(len(all), limit)], nil
}

// CancelDeferred finishes delayed messages of a channel and returns how many it
// were; others are left alone (edge.Channels).
func (b *Broker) CancelDeferred(ctx context.Context, topic, channel string, ids []edge.MessageID) (int, error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return 0, edge.ErrTopicNotFound
	}
	byPartition := map[uint16][]uint64{}
	for _, id := range ids {
		place, ok := nsqd.ParseID(id)
		if !ok || place.Nonce != nsqd.Nonce(t.ID) || int(place.Partition) >= t.Partitions {
			return 0, fmt.Errorf("%w: %q is no message of topic %s", edge.ErrInvalid, id[:], topic)
		}
		byPartition[place.Partition] = append(byPartition[place.Partition], uint64(place.Sequence))
	}
	cancelled := 0
	for n, seqs := range byPartition {
		r, err := b.askDeferred(ctx, deferredRequest{Topic: uint64(t.ID), Number: n, Channel: channel, Cancel: seqs})
		if err != nil {
			return cancelled, err
		}
		cancelled += r.Cancelled
	}
	return cancelled, nil
}

func (b *Broker) askDeferred(ctx context.Context, req deferredRequest) (r deferredReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Number}
	err = b.askLeader(ctx, p, methodDeferred, req, &r)
	return r, err
}

// serveDeferred answers for a partition led here.
func (b *Broker) serveDeferred(ctx context.Context, req deferredRequest) (deferredReply, error) {
	h, ok := b.host(ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Number})
	if !ok {
		return deferredReply{}, rpc.ErrNoPartition
	}
	if !h.Leading() {
		return deferredReply{}, rpc.ErrNotLeader
	}
	c, ok := h.queue.Channel(req.Channel)
	if !ok {
		return deferredReply{}, edge.ErrChannelNotFound
	}
	var r deferredReply
	if len(req.Cancel) == 0 {
		for _, d := range c.Deferred(min(req.Max, maxListed)) {
			r.Listed = append(r.Listed, listedMessage{Sequence: uint64(d.Sequence), DeadlineNS: d.DeadlineNS, Attempts: d.Attempts})
		}
		return r, nil
	}
	seqs := make([]ident.Sequence, len(req.Cancel))
	for i, n := range req.Cancel {
		seqs[i] = ident.Sequence(n)
	}
	n, err := h.queue.CancelDeferred(ctx, req.Channel, seqs)
	r.Cancelled = n
	return r, queueError(err)
}
