package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// endsTimeout bounds what GET /v1/cluster waits for the other brokers.
const endsTimeout = 300 * time.Millisecond

// partitionEnd is how far a partition has come at its leader.
type partitionEnd struct {
	Topic             uint64
	Number            uint16
	CommittedOffset   int64
	CommittedSequence uint64
	EndOffset         int64
}

type endsResponse struct {
	Partitions []partitionEnd
	Damaged    []damagedPlace
}

// reports is what the live brokers say of the partitions.
type reports struct {
	ends    map[ident.Partition]partitionEnd
	damaged map[ident.Partition][]edge.DamageView
}

// serveEnds tells the ends of the partitions led here, and the damaged places of
// all replicas.
func (b *Broker) serveEnds() endsResponse {
	r := endsResponse{Damaged: b.damagedPlaces()}
	for _, h := range b.hosted() {
		v := h.View()
		if v.Role != replica.Leader && v.Role != replica.Electing {
			continue
		}
		r.Partitions = append(r.Partitions, partitionEnd{
			Topic: uint64(h.id.Topic), Number: h.id.Number, CommittedOffset: int64(v.Committed.Offset),
			CommittedSequence: uint64(v.Committed.Sequence), EndOffset: int64(v.End.Offset),
		})
	}
	return r
}

// collectEnds asks all live brokers at once; who does not answer is left out.
func (b *Broker) collectEnds() reports {
	ctx, cancel := context.WithTimeout(b.ctx, endsTimeout)
	defer cancel()
	out := reports{ends: map[ident.Partition]partitionEnd{}, damaged: map[ident.Partition][]edge.DamageView{}}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, r := range b.catalog.lives() {
		if !b.members.up(r.Name) {
			continue
		}
		calls.Go(func() {
			var resp endsResponse
			if b.call(ctx, r.Name, methodEnds, none{}, &resp) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range resp.Partitions {
				out.ends[ident.Partition{Topic: ident.TopicID(e.Topic), Number: e.Number}] = e
			}
			for _, d := range resp.Damaged {
				p := ident.Partition{Topic: ident.TopicID(d.Topic), Number: d.Number}
				out.damaged[p] = append(out.damaged[p], d.view(r.Name))
			}
		})
	}
	calls.Wait()
	return out
}

// counters sums the rare events of the machines here.
func (b *Broker) counters() edge.CounterTotals {
	var t edge.CounterTotals
	for _, h := range b.hosted() {
		c := h.View().Counters
		t.Add(edge.CounterTotals{
			Elections: c.Elections, Rollbacks: c.Rollbacks, RolledBack: c.RolledBack, InDoubt: c.InDoubt,
			Truncations: c.Truncations, Shrinks: c.Shrinks, Grows: c.Grows, Swaps: c.Swaps,
		})
	}
	return t
}
