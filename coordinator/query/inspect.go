package query

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Inspector reads the replicas on one broker, and messages of others'. It is
// api.Inspector and api.Stats.
type Inspector struct {
	Self    ident.Node
	Engine  *engine.Engine
	Catalog *catalog.Catalog
	Store   *store.Store
	Caller  calls.Caller
	// Holders are the other brokers that answer and have a replica, the leader first.
	Holders func(ident.Partition) []ident.Node
}

// Health is nil or why the broker cannot store (api.Stats).
func (i *Inspector) Health() error {
	if err := i.Store.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Busy is how long the present write of the journal, or pass of a core loop, has been under
// way (calls.Busy).
func (i *Inspector) Busy() calls.BusyReply {
	return calls.BusyReply{Milliseconds: max(i.Store.Busy(), slices.Max(i.Engine.Busy())).Milliseconds()}
}

// replicaOf finds the replica of a topic's partition here; the topic is known if not.
func (i *Inspector) replicaOf(topic string, partition uint16) (p *engine.Partition, known bool) {
	t, ok := i.Catalog.Topic(topic)
	if !ok {
		return nil, false
	}
	p, _ = i.Engine.Partition(ident.Partition{Topic: t.ID, Number: partition})
	return p, true
}

// Counters sums the rare events of the machines here.
func (i *Inspector) Counters() api.CounterTotals {
	var t api.CounterTotals
	for _, p := range i.Engine.Partitions() {
		c := p.View().Counters
		t.Add(api.CounterTotals{
			Elections: c.Elections, Rollbacks: c.Rollbacks, RolledBack: c.RolledBack, InDoubt: c.InDoubt,
			Truncations: c.Truncations, Shrinks: c.Shrinks, Grows: c.Grows, Swaps: c.Swaps,
		})
	}
	return t
}

// Ends reports the ends of the partitions led here, and the damaged places of all replicas
// (calls.Ends).
func (i *Inspector) Ends() calls.EndsReply {
	r := calls.EndsReply{Damaged: i.Damaged()}
	for _, p := range i.Engine.Partitions() {
		v := p.View()
		if v.Role != replica.Leader && v.Role != replica.Electing {
			continue
		}
		r.Partitions = append(r.Partitions, calls.PartitionEnd{
			Partition: p.ID(), CommittedOffset: v.Committed.Offset, CommittedSequence: v.Committed.Sequence, EndOffset: v.End.Offset,
		})
		start := p.Start()
		r.Starts = append(r.Starts, calls.PartitionStart{Partition: p.ID(), StartOffset: start.Offset, StartSequence: start.Sequence})
	}
	return r
}

// Damaged are the damaged places of the replicas here.
func (i *Inspector) Damaged() (out []calls.DamagedPlace) {
	for _, p := range i.Engine.Partitions() {
		for _, d := range p.Store().Damaged() {
			first, end := sequences(p, d)
			out = append(out, calls.DamagedPlace{
				Partition: p.ID(), From: d.From, To: d.To, FirstSequence: first, EndSequence: end,
			})
		}
	}
	return out
}

// sequences are the messages of a damaged place, as the commit log has them; 0, 0
// if it does not. A channel that seeks the end has passed it.
func sequences(p *engine.Partition, d queue.Damage) (first, end ident.Sequence) {
	from, ok := p.Store().Index().AtOffset(d.From)
	to, ok2 := p.Store().Index().AtOffset(d.To - 1)
	if !ok || !ok2 {
		return 0, 0
	}
	return from.First, to.End().Sequence
}
