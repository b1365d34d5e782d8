package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	peekMessages = 1000 // in one answer
	peekBytes    = 4 << 20
	peekWait     = 5 * time.Second // for another broker
)

// Peek reads messages of a replica, and changes no channel (api.Inspector). If the request names no broker and this
// broker has no replica, it forwards the request to a broker that has one. Errors wrap ErrTopicNotFound,
// ErrBrokerNotFound, ErrInvalid and outcome.ErrUnavailable.
func (i *Inspector) Peek(ctx context.Context, req api.PeekRequest) (api.Peeked, error) {
	p, known := i.replicaOf(req.Topic, req.Partition)
	switch {
	case !known:
		return api.Peeked{}, outcome.ErrTopicNotFound
	case req.Node == i.o.Self.Name || req.Node == "" && p != nil:
		return i.PeekHere(req)
	case req.Node == "":
		return i.peekElsewhere(ctx, req)
	case !slices.ContainsFunc(i.o.Catalog.Nodes(), func(s metadata.NodeState) bool { return s.Name == req.Node }):
		return api.Peeked{}, fmt.Errorf("%w: %q", outcome.ErrBrokerNotFound, req.Node)
	}
	return i.ask(ctx, req.Node, req)
}

// peekElsewhere queries the brokers that have a replica, the leader first.
func (i *Inspector) peekElsewhere(ctx context.Context, req api.PeekRequest) (api.Peeked, error) {
	t, ok := i.o.Catalog.Topic(req.Topic)
	if !ok || int(req.Partition) >= t.Partitions {
		return api.Peeked{}, fmt.Errorf("%w: no partition %d", outcome.ErrTopicNotFound, req.Partition)
	}
	err := fmt.Errorf("%w: no broker with a replica of partition %d answers", outcome.ErrUnavailable, req.Partition)
	for _, n := range i.directory.Replicas(ident.Partition{Topic: t.ID, Number: req.Partition}) {
		var out api.Peeked
		if out, err = i.ask(ctx, n, req); err == nil || errors.Is(err, outcome.ErrInvalid) {
			return out, err
		}
	}
	return api.Peeked{}, err
}

func (i *Inspector) ask(ctx context.Context, n ident.Node, req api.PeekRequest) (api.Peeked, error) {
	ctx, cancel := context.WithTimeout(ctx, peekWait)
	defer cancel()
	req.Node = n
	out, err := calls.Peek.Ask(ctx, i.o.Caller, n, calls.JSON[api.PeekRequest]{Value: req})
	if err != nil && !errors.Is(err, outcome.ErrInvalid) && !errors.Is(err, outcome.ErrTopicNotFound) {
		err = fmt.Errorf("%w: ask %s: %w", outcome.ErrUnavailable, n, err)
	}
	return out.Value, err
}

// PeekHere reads the replica on this broker (calls.Peek).
func (i *Inspector) PeekHere(req api.PeekRequest) (api.Peeked, error) {
	p, _ := i.replicaOf(req.Topic, req.Partition)
	if p == nil {
		return api.Peeked{}, fmt.Errorf("%w: no replica of partition %d on %s", outcome.ErrTopicNotFound, req.Partition, i.o.Self.Name)
	}
	if req.Leader && !p.Leading() {
		return api.Peeked{}, fmt.Errorf("%w: %s does not serve as the leader of partition %d", outcome.ErrUnavailable, i.o.Self.Name, req.Partition)
	}
	out := api.Peeked{Start: p.Start().Sequence, End: p.Committed().Sequence, Messages: []api.PeekedMessage{}}
	readNext := p.Read
	if req.Uncommitted {
		out.End, readNext = p.View().End.Sequence, p.ReadUncommitted
	}
	from, err := peekFrom(p, req.From, out)
	if err != nil {
		return out, err
	}
	limit, size := min(max(req.Limit, 0), peekMessages), 0
	if from < out.Start && limit > 0 { // retention may have removed a deferred message's original position, but kept the message
		read, err := p.Queue().Read(from, 1, nil)
		if err == nil && len(read) == 1 && read[0].Seq == from {
			size += len(read[0].Body)
			out.Messages = append(out.Messages, peeked(p.ID(), &read[0]))
		}
	}
	out.Next = max(from, out.Start)
	out.Mark, out.NextMark = markBefore(p, from, out.End), markBefore(p, out.Next, out.End)
	for len(out.Messages) < limit && size < peekBytes && out.Next < out.End {
		read, err := readNext(out.Next, limit-len(out.Messages), nil)
		if err != nil || len(read) == 0 {
			return out, err
		}
		for k := range read {
			size += len(read[k].Body)
			out.Messages = append(out.Messages, peeked(p.ID(), &read[k]))
			out.Next = read[k].Seq + 1
		}
		out.NextMark = markBefore(p, out.Next, out.End)
	}
	return out, nil
}

// markBefore identifies the log up to the message before seq (api.Peeked): the position and the checksum of its batch,
// which covers all batches before it. The index has them: no message is read.
func markBefore(p *engine.Partition, seq, end ident.Sequence) string {
	if seq == 0 || seq > end {
		return ""
	}
	r, ok := p.Store().Index().AtSequence(seq - 1)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x-%08x", int64(r.Offset), r.CRC)
}

// peekFrom finds the first message to read. A sequence beyond the end is valid: a reader that has all messages requests
// the next one, perhaps from a replica that lags.
func peekFrom(p *engine.Partition, from string, of api.Peeked) (ident.Sequence, error) {
	if _, err := nsqd.CheckStart(from); err != nil {
		return 0, err
	}
	o, err := nsqd.StartOptions(from, false, p.Store().Index())
	switch {
	case err != nil:
		return 0, err
	case o.Origin == nsqd.FromSequence:
		return o.Sequence, nil
	case o.Origin == nsqd.FromLatest && from != "":
		return of.End, nil
	}
	return of.Start, nil
}

func peeked(p ident.Partition, m *queue.Message) api.PeekedMessage {
	id := api.MessageIDOf(p, m.Seq)
	out := api.PeekedMessage{ID: string(id[:]), Partition: p.Number, Sequence: m.Seq, Time: m.Time, DeliverAt: m.DeliverAt, Trace: m.Trace}
	if text, err := json.Marshal(json.RawMessage(m.Header)); err == nil && len(m.Header) > 0 {
		out.Header = m.Header
		if !bytes.Equal(text, m.Header) {
			out.HeaderBytes = m.Header
		}
	} else if len(m.Header) > 0 {
		out.HeaderBytes = m.Header
	}
	if utf8.Valid(m.Body) {
		out.Body = string(m.Body)
	} else {
		out.Bytes = m.Body
	}
	return out
}
