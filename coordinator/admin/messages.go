package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// maxListed bounds one listing of deferred messages.
const maxListed = 100_000

// Deferred lists at most limit delayed messages of a channel over all partitions, by deadline (api.Channels).
func (c *Channels) Deferred(ctx context.Context, topic, channel string, limit int) ([]api.DeferredMessage, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, api.ErrTopicNotFound
	}
	limit = min(max(limit, 0), maxListed)
	all := []api.DeferredMessage{}
	for n := range t.Partitions {
		req := calls.DeferredRequest{Topic: uint64(t.ID), Number: uint16(n), Channel: channel, Max: limit}
		r, err := askSoon(ctx, c.leaders, req.Partition(), calls.Deferred, req)
		if err != nil {
			return nil, err
		}
		for _, m := range r.Listed {
			id := api.MessageIDOf(ident.Partition{Topic: t.ID, Number: uint16(n)}, ident.Sequence(m.Sequence))
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
		return 0, api.ErrTopicNotFound
	}
	byPartition := map[uint16][]uint64{}
	for _, id := range ids {
		place, ok := api.ParseMessageID(id)
		if !ok || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions {
			return 0, fmt.Errorf("%w: %q is no message of topic %s", api.ErrInvalid, id[:], topic)
		}
		byPartition[place.Partition] = append(byPartition[place.Partition], uint64(place.Sequence))
	}
	cancelled := 0
	for n, seqs := range byPartition {
		req := calls.DeferredRequest{Topic: uint64(t.ID), Number: n, Channel: channel, Cancel: seqs}
		r, err := askSoon(ctx, c.leaders, req.Partition(), calls.Deferred, req)
		if err != nil {
			return cancelled, err
		}
		cancelled += r.Cancelled
	}
	return cancelled, nil
}

// Deferred answers for a partition led here (calls.Deferred).
func (q *Queues) Deferred(ctx context.Context, req calls.DeferredRequest) (r calls.DeferredReply, err error) {
	p, err := q.led(req.Partition())
	if err != nil {
		return r, err
	}
	c, ok := p.Queue().Channel(req.Channel)
	if !ok {
		return r, api.ErrChannelNotFound
	}
	if len(req.Cancel) == 0 {
		for _, d := range c.Deferred(min(req.Max, maxListed)) {
			r.Listed = append(r.Listed, calls.DeferredMessage{Sequence: uint64(d.Sequence), DeadlineNS: d.DeadlineNS, Attempts: d.Attempts})
		}
		return r, nil
	}
	seqs := make([]ident.Sequence, len(req.Cancel))
	for i, n := range req.Cancel {
		seqs[i] = ident.Sequence(n)
	}
	r.Cancelled, err = p.Queue().CancelDeferred(ctx, req.Channel, seqs)
	return r, queueError(err)
}

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

// finishElsewhere finishes messages of a channel in one partition, because another channel has finished their originals
// (api.Channels).
func (c *Channels) finishElsewhere(ctx context.Context, op api.FinishElsewhere) (api.FinishedElsewhere, error) {
	t, ok := c.catalog.Topic(op.Topic)
	if !ok || t.ID != op.TopicID {
		return api.FinishedElsewhere{}, api.ErrTopicNotFound
	}
	if err := checkPartition(t, op.Partition); err != nil {
		return api.FinishedElsewhere{}, err
	}
	req := calls.FinishRequest{Topic: uint64(t.ID), Number: uint16(op.Partition), Channel: op.Channel}
	for _, s := range op.Spans {
		req.Spans = append(req.Spans, uint64(s.From), uint64(s.To))
	}
	r, err := askSoon(ctx, c.leaders, req.Partition(), calls.FinishElsewhere, req)
	return api.FinishedElsewhere(r), err
}

// FinishElsewhere finishes messages in a partition led here (calls.FinishElsewhere).
func (q *Queues) FinishElsewhere(ctx context.Context, req calls.FinishRequest) (calls.FinishReply, error) {
	p, err := q.led(req.Partition())
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

// Trace gives the state of one message (api.Tracer).
func (c *Channels) Trace(ctx context.Context, topic string, id api.MessageID) (out api.MessageTrace, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return out, api.ErrTopicNotFound
	}
	place, ok := api.ParseMessageID(id)
	if !ok || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions {
		return out, fmt.Errorf("%w: %q is no message of topic %s", api.ErrInvalid, id[:], topic)
	}
	req := calls.TraceRequest{Topic: uint64(t.ID), Number: place.Partition, Sequence: place.Sequence}
	r, err := askSoon(ctx, c.leaders, req.Partition(), calls.Trace, req)
	if err != nil {
		return out, err
	}
	out = api.MessageTrace{
		ID: string(id[:]), Topic: topic, Partition: place.Partition, Sequence: place.Sequence, State: r.State,
		Time: r.Time, DeliverAt: r.DeliverAt, Bytes: r.Bytes, Committed: r.Committed, Channels: r.Edge(),
	}
	if json.Valid(r.Header) {
		out.Header = json.RawMessage(r.Header)
	}
	s, _ := c.catalog.Partition(req.Partition()) // there is one: its leader has answered
	out.Leader, out.Epoch, out.Replicas = s.Leader, s.Epoch, s.Replicas
	for _, m := range s.ISR {
		out.ISR = append(out.ISR, m.Node)
	}
	return out, nil
}

// Trace answers for a partition led here (calls.Trace).
func (q *Queues) Trace(req calls.TraceRequest) (r calls.TraceReply, err error) {
	p, err := q.led(req.Partition())
	if err != nil {
		return r, err
	}
	r.Committed = p.Committed().Sequence
	switch {
	case req.Sequence < p.Start().Sequence:
		r.State = api.TraceRemoved
	case req.Sequence < r.Committed:
		r.State = api.TraceCommitted
	case req.Sequence < p.View().End.Sequence:
		r.State = api.TraceStored
	default:
		r.State = api.TraceAbsent
	}
	if r.State == api.TraceCommitted || r.State == api.TraceStored {
		if err := readTraced(p, req.Sequence, &r); err != nil {
			return r, err
		}
	}
	if r.State == api.TraceCommitted || r.State == api.TraceRemoved {
		r.Channels = calls.ChannelTracesOf(p.Queue().Trace(req.Sequence, r.Header))
	}
	return r, nil
}

func readTraced(p *engine.Partition, seq ident.Sequence, r *calls.TraceReply) error {
	list, err := p.ReadUncommitted(seq, 1, nil)
	if err != nil {
		return fmt.Errorf("%w: read the message: %w", api.ErrUnavailable, err)
	}
	if len(list) == 1 && list[0].Seq == seq {
		m := &list[0]
		r.Time, r.DeliverAt, r.Bytes, r.Header = m.Time, m.DeliverAt, len(m.Body), m.Header
	}
	return nil
}
