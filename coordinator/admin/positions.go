package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// maxPositioned bounds the deferred messages of a channel and partition in an answer.
const maxPositioned = 50_000

// Positions lists the positions of the durable channels of a topic, by channel and partition (api.Channels).
func (c *Channels) Positions(ctx context.Context, topic string) ([]api.ChannelPosition, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, api.ErrTopicNotFound
	}
	var all []api.ChannelPosition
	for n := range t.Partitions {
		req := calls.PositionsRequest{Topic: uint64(t.ID), Number: uint16(n)}
		r, err := askSoon(ctx, c.leaders, req.Partition(), calls.Positions, req)
		if err != nil {
			return nil, err
		}
		for _, x := range r.Channels {
			all = append(all, positionOf(n, x))
		}
	}
	slices.SortFunc(all, func(x, y api.ChannelPosition) int {
		return cmp.Or(cmp.Compare(x.Channel, y.Channel), cmp.Compare(x.Partition, y.Partition))
	})
	return all, nil
}

func positionOf(partition int, x calls.ChannelPosition) api.ChannelPosition {
	at := api.ChannelPosition{Channel: x.Channel, Partition: partition, Confirmed: ident.Sequence(x.Confirmed), Consumers: x.Consumers}
	for i := 0; i+1 < len(x.Settled); i += 2 {
		at.Settled = append(at.Settled, api.SequenceSpan{From: ident.Sequence(x.Settled[i]), To: ident.Sequence(x.Settled[i+1])})
	}
	for _, m := range x.Deferred {
		at.Deferred = append(at.Deferred, api.DeferredPosition{Sequence: ident.Sequence(m.Sequence), DeadlineNS: m.DeadlineNS, Attempts: m.Attempts})
	}
	return at
}

// Positions answers for a partition led here (calls.Positions).
func (q *Queues) Positions(req calls.PositionsRequest) (r calls.PositionsReply, err error) {
	p, err := q.led(req.Partition())
	if err != nil {
		return r, err
	}
	for _, x := range p.Queue().Positions(maxPositioned) {
		at := calls.ChannelPosition{Channel: x.Channel, Confirmed: uint64(x.Confirmed), Consumers: x.Consumers}
		for _, s := range x.Settled {
			at.Settled = append(at.Settled, uint64(s.From), uint64(s.To))
		}
		for _, e := range x.Deferred {
			at.Deferred = append(at.Deferred, calls.DeferredMessage{Sequence: uint64(e.Seq()), DeadlineNS: e.Deadline, Attempts: e.Attempts()})
		}
		r.Channels = append(r.Channels, at)
	}
	return r, nil
}
