package admin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

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
