package admin

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// finishElsewhere finishes messages of a channel in one partition, because another channel has finished their originals
// (api.Channels).
func (c *Channels) finishElsewhere(ctx context.Context, op api.FinishElsewhere) (api.FinishedElsewhere, error) {
	t, ok := c.catalog.Topic(op.Topic)
	if !ok || t.ID != op.TopicID {
		return api.FinishedElsewhere{}, outcome.ErrTopicNotFound
	}
	if err := checkPartition(t, op.Partition); err != nil {
		return api.FinishedElsewhere{}, err
	}
	req := calls.FinishRequest{Partition: ident.Partition{Topic: t.ID, Number: uint16(op.Partition)}, Channel: op.Channel}
	for _, s := range op.Spans {
		req.Spans = append(req.Spans, uint64(s.From), uint64(s.To))
	}
	r, err := askSoon(ctx, c.leaders, req.Partition, calls.FinishElsewhere, req)
	return api.FinishedElsewhere(r), err
}

// FinishElsewhere finishes messages in a partition led here (calls.FinishElsewhere).
func (q *Queues) FinishElsewhere(ctx context.Context, req calls.FinishRequest) (calls.FinishReply, error) {
	p, err := q.led(req.Partition)
	if err != nil {
		return calls.FinishReply{}, err
	}
	var spans []cursor.Span
	for i := 0; i+1 < len(req.Spans); i += 2 {
		spans = append(spans, cursor.Span{From: ident.Sequence(req.Spans[i]), To: ident.Sequence(req.Spans[i+1])})
	}
	e, err := p.Queue().FinishElsewhere(ctx, req.Channel, spans)
	return calls.FinishReply(e), queueError(err)
}
