package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// maxListed bounds one listing of deferred messages.
const maxListed = 100_000

// Deferred lists at most limit delayed messages of a channel over all partitions, by deadline (api.Channels).
func (c *Channels) Deferred(ctx context.Context, topic, channel string, limit int) ([]api.DeferredMessage, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	limit = min(max(limit, 0), maxListed)
	all := []api.DeferredMessage{}
	for n := range t.Partitions {
		req := calls.DeferredRequest{Partition: ident.Partition{Topic: t.ID, Number: uint16(n)}, Channel: channel, Max: limit}
		r, err := askSoon(ctx, c.leaders, req.Partition, calls.Deferred, req)
		if err != nil {
			return nil, err
		}
		for _, m := range r.Listed {
			id := api.MessageIDOf(req.Partition, m.Sequence)
			all = append(all, api.DeferredMessage{ID: string(id[:]), Partition: n, DeadlineNS: m.DeadlineNS, Attempts: m.Attempts})
		}
	}
	slices.SortStableFunc(all, func(x, y api.DeferredMessage) int { return cmp.Compare(x.DeadlineNS, y.DeadlineNS) })
	return all[:min(len(all), limit)], nil
}

// CancelDeferred finishes delayed messages of a channel and returns their number (api.Channels).
func (c *Channels) CancelDeferred(ctx context.Context, topic, channel string, ids []api.MessageID) (int, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return 0, outcome.ErrTopicNotFound
	}
	byPartition := map[uint16][]ident.Sequence{}
	for _, id := range ids {
		place, ok := api.ParseMessageID(id)
		if !ok || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions {
			return 0, fmt.Errorf("%w: %q is not a message of topic %s", outcome.ErrInvalid, id[:], topic)
		}
		byPartition[place.Partition] = append(byPartition[place.Partition], place.Sequence)
	}
	cancelled := 0
	for n, seqs := range byPartition {
		req := calls.DeferredRequest{Partition: ident.Partition{Topic: t.ID, Number: n}, Channel: channel, Cancel: seqs}
		r, err := askSoon(ctx, c.leaders, req.Partition, calls.Deferred, req)
		if err != nil {
			return cancelled, err
		}
		cancelled += r.Cancelled
	}
	return cancelled, nil
}

// Deferred answers for a partition led here (calls.Deferred).
func (q *Queues) Deferred(ctx context.Context, req calls.DeferredRequest) (r calls.DeferredReply, err error) {
	p, err := q.led(req.Partition)
	if err != nil {
		return r, err
	}
	c, ok := p.Queue().Channel(req.Channel)
	if !ok {
		return r, outcome.ErrChannelNotFound
	}
	if len(req.Cancel) == 0 {
		for _, d := range c.Deferred(min(req.Max, maxListed)) {
			r.Listed = append(r.Listed, calls.DeferredMessage{Sequence: d.Seq(), DeadlineNS: d.Deadline, Attempts: d.Attempts()})
		}
		return r, nil
	}
	r.Cancelled, err = p.Queue().CancelDeferred(ctx, req.Channel, req.Cancel)
	return r, queueError(err)
}
