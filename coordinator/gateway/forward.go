package gateway

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// forwarded is a put of another broker's client, proposed here.
type forwarded struct {
	gateway *Gateway
	from    ident.Node
	record  wire.Put
}

// Complete sends the outcome back. If this broker does not lead and its metadata has a higher epoch than the sender's,
// the leadership goes with it.
func (f *forwarded) Complete(c outcome.Completion) {
	r := wire.Reply{
		Request: f.record.Request, Partition: f.record.Partition,
		First: wire.ResultOf(c), Attempt: f.record.Attempt, Outcome: c.Outcome,
	}
	var h *wire.Hint
	if c.Outcome == outcome.NotLeader {
		if to, ok := f.gateway.core.Leader(f.record.Partition); ok && to.Epoch > f.record.Epoch {
			h = &wire.Hint{
				Topic: f.record.Partition.Topic, Partition: f.record.Partition.Number, Node: to.Node, Incarnation: to.Incarnation, Epoch: to.Epoch,
			}
		}
	}
	f.gateway.out.reply(f.from, r, h, f.gateway.proposed.Leave())
}

// proposeAll proposes the puts of one frame in order. Each is decoded as a check, because a batch that followers must
// refuse would block the partition.
func (g *Gateway) proposeAll(from ident.Node, payload []byte, count int) error {
	records, rest, err := wire.Table(payload, count, wire.PutSize)
	if err != nil {
		return err
	}
	puts := make([]forwarded, count)
	for i := range puts {
		r := wire.DecodePut(records[i*wire.PutSize:])
		size := queue.HeaderSize + uint64(r.Length)
		if size > uint64(len(rest)) {
			return fmt.Errorf("%w: put %d of %d is cut short", wire.ErrFrame, i, count)
		}
		d := queue.Draft{Bytes: rest[:size:size], Count: r.Count, PayloadCRC: r.CRC, Request: r.Request, Identified: r.Identified}
		rest = rest[size:]
		if err := check(d); err != nil {
			return err
		}
		puts[i] = forwarded{gateway: g, from: from, record: r}
		g.proposed.Enter()
		g.core.Propose(r.Partition, d, &puts[i])
	}
	return nil
}

// check seals the draft temporarily, in the draft's header room, and decodes it.
func check(d queue.Draft) error {
	if d.Request.IsZero() || d.Count == 0 {
		return fmt.Errorf("%w: a put without id or messages", wire.ErrFrame)
	}
	b := d.Seal(ident.Position{}, 0, 0, 0)
	if _, n, err := queue.Decode(b.Bytes); err != nil {
		return fmt.Errorf("forwarded put: %w", err)
	} else if n != len(b.Bytes) {
		return fmt.Errorf("%w: put of %d bytes in %d", wire.ErrFrame, n, len(b.Bytes))
	}
	return nil
}

// takeReplies completes the puts that a peer answers.
func (g *Gateway) takeReplies(h wire.Header, payload []byte) error {
	records, _, err := wire.Table(payload, h.Count, wire.ReplySize)
	if err != nil {
		return err
	}
	for _, h := range h.Hints {
		if q := g.knownQueue(ident.Partition{Topic: h.Topic, Number: h.Partition}); q != nil {
			q.setHint(Leadership{Node: h.Node, Incarnation: h.Incarnation, Epoch: h.Epoch})
		}
	}
	for ; len(records) > 0; records = records[wire.ReplySize:] {
		r := wire.DecodeReply(records)
		if !r.Outcome.Known() || r.Attempt == 0 {
			return fmt.Errorf("%w: outcome %d of attempt %d", wire.ErrFrame, r.Outcome, r.Attempt)
		}
		q := g.knownQueue(r.Partition)
		if q == nil {
			continue
		}
		if p := q.find(r.Request); p != nil {
			q.complete(p, r.Attempt, r.Completion())
		}
	}
	return nil
}
