package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
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
		return nil, outcome.ErrTopicNotFound
	}
	limit = min(max(limit, 0), maxListed)
	all := []api.DeferredMessage{}
	for n := range t.Partitions {
		req := calls.DeferredRequest{Partition: t.Partition(n), Channel: channel, Max: limit}
		r, err := askLeaderWithTimeout(ctx, c.leaders, req.Partition, calls.Deferred, req)
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
		r, err := askLeaderWithTimeout(ctx, c.leaders, req.Partition, calls.Deferred, req)
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

// maxPositioned bounds the deferred messages that an answer lists for a channel and partition.
const maxPositioned = 50_000

// Positions lists the positions of the durable channels of a topic, by channel and partition (api.Channels).
func (c *Channels) Positions(ctx context.Context, topic string) ([]api.ChannelPosition, error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	var all []api.ChannelPosition
	for n := range t.Partitions {
		req := calls.PositionsRequest{Partition: t.Partition(n)}
		r, err := askLeaderWithTimeout(ctx, c.leaders, req.Partition, calls.Positions, req)
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
			at.Deferred = append(at.Deferred, msgstream.DeferredPosition{Sequence: e.Seq(), DeadlineNS: e.Deadline, Attempts: e.Attempts()})
		}
		all = append(all, at)
	}
	return all, nil
}

// FinishElsewhere finishes messages of a channel in one partition, because another channel has finished their originals
// (api.Channels).
func (c *Channels) FinishElsewhere(ctx context.Context, op api.FinishElsewhere) (api.FinishedElsewhere, error) {
	if err := c.learnChannel(ctx, op.Topic, op.Channel); err != nil {
		return api.FinishedElsewhere{}, err
	}
	t, ok := c.catalog.Topic(op.Topic)
	if !ok || t.ID != op.TopicID {
		return api.FinishedElsewhere{}, outcome.ErrTopicNotFound
	}
	if err := checkPartition(t, op.Partition); err != nil {
		return api.FinishedElsewhere{}, err
	}
	req := calls.FinishRequest{Partition: t.Partition(op.Partition), Channel: op.Channel}
	for _, s := range op.Spans {
		req.Spans = append(req.Spans, uint64(s.From), uint64(s.To))
	}
	r, err := askLeaderWithTimeout(ctx, c.leaders, req.Partition, calls.FinishElsewhere, req)
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

// Trace returns the state of one message (api.Tracer).
func (c *Channels) Trace(ctx context.Context, topic string, id api.MessageID) (out api.MessageTrace, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return out, outcome.ErrTopicNotFound
	}
	place, ok := api.ParseMessageID(id)
	if !ok || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions {
		return out, fmt.Errorf("%w: %q is not a message of topic %s", outcome.ErrInvalid, id[:], topic)
	}
	p := ident.Partition{Topic: t.ID, Number: place.Partition}
	r, err := askLeaderWithTimeout(ctx, c.leaders, p, calls.Trace, calls.TraceRequest{Partition: p, Sequence: place.Sequence})
	if err != nil {
		return out, err
	}
	out = r.Value
	out.ID, out.Topic, out.Partition, out.Sequence = string(id[:]), topic, place.Partition, place.Sequence
	s, _ := c.catalog.Partition(p) // the partition exists: its leader has answered
	out.Leader, out.Epoch, out.Replicas = s.Leader, s.Epoch, s.Replicas
	for _, m := range s.ISR {
		out.ISR = append(out.ISR, m.Node)
	}
	return out, nil
}

// Trace answers for a partition led here (calls.Trace).
func (q *Queues) Trace(req calls.TraceRequest) (r api.MessageTrace, err error) {
	p, err := q.led(req.Partition)
	if err != nil {
		return r, err
	}
	r.Committed, r.Channels = p.Committed().Sequence, []api.ChannelTrace{}
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
	var header []byte
	if r.State == api.TraceCommitted || r.State == api.TraceStored {
		if header, err = readTraced(p, req.Sequence, &r); err != nil {
			return r, err
		}
	}
	if r.State == api.TraceCommitted || r.State == api.TraceRemoved {
		r.Channels = append(r.Channels, p.Queue().Trace(req.Sequence, header)...)
	}
	return r, nil
}

// readTraced reads the message from the log, and returns its header.
func readTraced(p *engine.Partition, seq ident.Sequence, r *api.MessageTrace) (header []byte, err error) {
	list, err := p.ReadUncommitted(seq, 1, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: read the message: %w", outcome.ErrUnavailable, err)
	}
	if len(list) == 0 || list[0].Seq != seq {
		return nil, nil
	}
	m := &list[0]
	r.Time, r.DeliverAt, r.Bytes = m.Time, m.DeliverAt, len(m.Body)
	if json.Valid(m.Header) {
		r.Header = m.Header
	}
	return m.Header, nil
}
