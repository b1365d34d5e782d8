package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// maxPositioned bounds the deferred messages of a channel and partition in an answer.
const maxPositioned = 50_000

// Positions lists the positions of the durable channels of a topic, by channel and partition (api.Channels).
func (c *Channels) Positions(ctx context.Context, topic string) ([]api.ChannelPosition, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	var all []api.ChannelPosition
	for n := range t.Partitions {
		req := calls.PositionsRequest{Partition: ident.Partition{Topic: t.ID, Number: uint16(n)}}
		r, err := askSoon(ctx, c.leaders, req.Partition, calls.Positions, req)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Value...)
	}
	slices.SortFunc(all, func(x, y api.ChannelPosition) int {
		return cmp.Or(cmp.Compare(x.Channel, y.Channel), cmp.Compare(x.Partition, y.Partition))
	})
	return all, nil
}

// Positions answers for a partition led here (calls.Positions).
func (q *Queues) Positions(req calls.PositionsRequest) (all []api.ChannelPosition, err error) {
	p, err := q.led(req.Partition)
	if err != nil {
		return nil, err
	}
	for _, x := range p.Queue().Positions(maxPositioned) {
		at := api.ChannelPosition{Channel: x.Channel, Partition: int(req.Number), Confirmed: x.Confirmed, Consumers: x.Consumers}
		for _, s := range x.Settled {
			at.Settled = append(at.Settled, api.SequenceSpan(s))
		}
		for _, e := range x.Deferred {
			at.Deferred = append(at.Deferred, api.DeferredPosition{Sequence: e.Seq(), DeadlineNS: e.Deadline, Attempts: e.Attempts()})
		}
		all = append(all, at)
	}
	return all, nil
}
