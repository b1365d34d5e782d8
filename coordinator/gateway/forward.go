package gateway

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// forwarded is a put of another broker's client, proposed here.
type forwarded struct {
	gateway *Gateway
	from    ident.Node
	record  putRecord
}

// Complete sends the outcome back, with what is known here of the leader if
// that is newer than what the sender knew.
func (f *forwarded) Complete(c replica.Completion) {
	r := reply{
		Request: f.record.Request, Partition: f.record.Partition,
		First: c.First, Attempt: f.record.Attempt, Outcome: c.Outcome,
	}
	var h *hint
	if c.Outcome == replica.NotLeader {
		if to, ok := f.gateway.core.Leader(f.record.Partition); ok && to.Epoch > f.record.Epoch {
			h = &hint{
				Topic: uint64(f.record.Partition.Topic), Partition: f.record.Partition.Number,
				Node: string(to.Node), Incarnation: int64(to.Incarnation), Epoch: uint64(to.Epoch),
			}
		}
	}
	f.gateway.out.reply(f.from, r, h, f.gateway.proposed.Leave())
}

// handleForward takes puts to propose here, or answers to puts sent away.
func (g *Gateway) handleForward(from ident.Node, f rpc.Received) error {
	var h forwardHeader
	if err := h.decode(f.Header); err != nil {
		return fmt.Errorf("forward header: %w", err)
	}
	switch h.Kind {
	case framePuts:
		return g.proposeAll(from, f.Payload, h.Count)
	case frameReplies:
		return g.takeReplies(h, f.Payload)
	}
	return fmt.Errorf("%w: forward kind %d", errFrame, h.Kind)
}

// proposeAll proposes the puts of one frame in order. Each is checked whole: a
// batch that followers must refuse would block the partition.
func (g *Gateway) proposeAll(from ident.Node, payload []byte, count int) error {
	records, rest, err := table(payload, count, putSize)
	if err != nil {
		return err
	}
	puts := make([]forwarded, count)
	for i := range puts {
		r := decodePut(records[i*putSize:])
		size := queue.HeaderSize + uint64(r.Length)
		if size > uint64(len(rest)) {
			return fmt.Errorf("%w: put %d of %d is cut short", errFrame, i, count)
		}
		d := queue.Draft{Bytes: rest[:size:size], Count: r.Count, PayloadCRC: r.CRC, Request: r.Request}
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

// check seals the draft for a moment, in its own room, and decodes it.
func check(d queue.Draft) error {
	if d.Request.IsZero() || d.Count == 0 {
		return fmt.Errorf("%w: a put without id or messages", errFrame)
	}
	b := d.Seal(ident.Position{}, 0, 0, 0)
	if _, n, err := queue.Decode(b.Bytes); err != nil {
		return fmt.Errorf("forwarded put: %w", err)
	} else if n != len(b.Bytes) {
		return fmt.Errorf("%w: put of %d bytes in %d", errFrame, n, len(b.Bytes))
	}
	return nil
}

// takeReplies settles the puts that a peer answers.
func (g *Gateway) takeReplies(h forwardHeader, payload []byte) error {
	records, _, err := table(payload, h.Count, replySize)
	if err != nil {
		return err
	}
	for _, h := range h.Hints {
		g.takeHint(h)
	}
	for ; len(records) > 0; records = records[replySize:] {
		r := decodeReply(records)
		if r.Outcome < replica.Committed || r.Outcome > replica.DiskFull || r.Attempt == 0 {
			return fmt.Errorf("%w: outcome %d of attempt %d", errFrame, r.Outcome, r.Attempt)
		}
		g.mu.RLock()
		l := g.mu.lanes[r.Partition]
		g.mu.RUnlock()
		if l == nil {
			continue
		}
		if p := l.find(r.Request); p != nil {
			g.settle(p, r.Attempt, r.Outcome, r.First)
		}
	}
	return nil
}

func (g *Gateway) takeHint(h hint) {
	id := ident.Partition{Topic: ident.TopicID(h.Topic), Number: h.Partition}
	g.mu.RLock()
	l := g.mu.lanes[id]
	g.mu.RUnlock()
	if l != nil {
		l.setHint(Leadership{
			Node: ident.Node(h.Node), Incarnation: ident.Incarnation(h.Incarnation), Epoch: ident.Epoch(h.Epoch),
		})
	}
}
