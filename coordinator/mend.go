package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

const (
	// mendEvery is how often places are tried again that nobody could mend.
	mendEvery = time.Second
	// mendBytes is about how much of a log is asked for at once.
	mendBytes = 1 << 20
	// mendTimeout bounds one question.
	mendTimeout = 5 * time.Second
)

// batchesRequest asks for committed batches of a replica, the first of which
// begins at From.
type batchesRequest struct {
	Topic  uint64
	Number uint16
	From   int64
}

type batchesResponse struct{ Batches []byte }

// serveBatches gives what a replica here holds. It may be any replica: what is
// committed is the same on all of them, and who asks proves it.
func (b *Broker) serveBatches(req batchesRequest) (batchesResponse, error) {
	var r batchesResponse
	h, ok := b.host(ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Number})
	if !ok {
		return r, rpc.ErrNoPartition
	}
	batches, err := h.store.ReadAt(ident.Offset(req.From), mendBytes)
	end := h.Committed().Offset
	for i := range batches {
		if batches[i].End.Offset <= end {
			r.Batches = append(r.Batches, batches[i].Bytes...)
		}
	}
	if err == nil && len(r.Batches) == 0 {
		err = fmt.Errorf("%w: offset %d is not committed here", rpc.ErrNotReady, req.From)
	}
	return r, err
}

// keepWhole mends what reads found damaged with other replicas' copies. It
// decides nothing about replication and the machines do not know of it: a
// damaged replica is a member like any other. Started by start, ends with the
// broker.
func (b *Broker) keepWhole(ctx context.Context) {
	tick := time.NewTicker(mendEvery)
	defer tick.Stop()
	refused := map[*hosted]string{} // what was said last, to say it once
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.store.Damaged():
		case <-tick.C:
		}
		for _, h := range b.hosted() {
			why := b.mend(ctx, h)
			if why == nil {
				delete(refused, h)
			} else if refused[h] != why.Error() {
				refused[h] = why.Error()
				b.log.WithError(why).WithFields(fields(h)).Warn("DAMAGED places cannot be mended yet, trying again")
			}
		}
	}
}

// mend goes through the damaged places of one replica.
func (b *Broker) mend(ctx context.Context, h *hosted) (failed error) {
	for _, d := range h.store.Damaged() {
		end, from, err := b.mendPlace(ctx, h, d.From)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("offset %d: %w", d.From, err))
			continue
		}
		b.o.Metrics.Event(metrics.EventMended)
		b.log.WithFields(fields(h)).WithField("from", from).
			Infof("MENDED: offsets %d to %d are what they were", d.From, end)
		_, _ = h.store.ReadAt(end, 1) // if the damage goes on there it is noticed now
	}
	return failed
}

// mendPlace asks the other replicas, one after the other.
func (b *Broker) mendPlace(ctx context.Context, h *hosted, at ident.Offset) (end ident.Offset, from ident.Node, failed error) {
	s, _ := b.catalog.partition(h.id)
	failed = errNoCopy
	for _, n := range s.Replicas {
		if n == b.self || !b.members.up(n) {
			continue
		}
		end, err := b.mendFrom(ctx, h, at, n)
		if err == nil {
			return end, n, nil
		}
		failed = errors.Join(failed, err)
	}
	return 0, "", failed
}

var errNoCopy = errors.New("no other replica that can be reached has it whole")

func (b *Broker) mendFrom(ctx context.Context, h *hosted, at ident.Offset, n ident.Node) (ident.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	var resp batchesResponse
	req := batchesRequest{Topic: uint64(h.id.Topic), Number: h.id.Number, From: int64(at)}
	if err := b.rpc.Call(ctx, n, methodBatches, req, &resp); err != nil {
		return 0, err
	}
	batches, err := decodeBatches(resp.Batches)
	if err == nil && (len(batches) == 0 || batches[0].At.Offset != at) {
		err = fmt.Errorf("%w: %s sent no batch of offset %d", errFrame, n, at)
	}
	if err != nil {
		return 0, err
	}
	return h.store.Mend(batches)
}

// damagedPlace is a place in quarantine, as one broker tells another.
type damagedPlace struct {
	Topic                      uint64
	Number                     uint16
	From, To                   int64
	FirstSequence, EndSequence uint64
}

// damagedPlaces are those of all replicas here.
func (b *Broker) damagedPlaces() (out []damagedPlace) {
	for _, h := range b.hosted() {
		for _, d := range h.store.Damaged() {
			first, end := h.sequences(d)
			out = append(out, damagedPlace{
				Topic: uint64(h.id.Topic), Number: h.id.Number, From: int64(d.From), To: int64(d.To),
				FirstSequence: uint64(first), EndSequence: uint64(end),
			})
		}
	}
	return out
}

// sequences are the messages of a damaged place, as the commit log has them; 0, 0
// if it does not. A channel that seeks the end has passed it.
func (h *hosted) sequences(d queue.Damage) (first, end ident.Sequence) {
	from, ok := h.store.Index().AtOffset(d.From)
	to, ok2 := h.store.Index().AtOffset(d.To - 1)
	if !ok || !ok2 {
		return 0, 0
	}
	return from.First, to.End().Sequence
}

func (d damagedPlace) view(n ident.Node) edge.DamageView {
	return edge.DamageView{
		Node: n, From: ident.Offset(d.From), To: ident.Offset(d.To),
		FirstSequence: ident.Sequence(d.FirstSequence), EndSequence: ident.Sequence(d.EndSequence),
	}
}
