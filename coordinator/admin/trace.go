package admin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Trace gives the state of one message (api.Tracer).
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
	r, err := askSoon(ctx, c.leaders, p, calls.Trace, calls.TraceRequest{Partition: p, Sequence: place.Sequence})
	if err != nil {
		return out, err
	}
	out = r.Value
	out.ID, out.Topic, out.Partition, out.Sequence = string(id[:]), topic, place.Partition, place.Sequence
	s, _ := c.catalog.Partition(p) // there is one: its leader has answered
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
