package query

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Inspector reads the replicas on this broker, and messages of replicas on other brokers. It implements api.Inspector
// and api.Stats.
type Inspector struct {
	o         *Options
	directory *Directory
}

// Health is the reason why the broker cannot store messages, or nil (api.Stats).
func (i *Inspector) Health() error {
	if err := i.o.Store.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Disk is the space of the data path.
func (i *Inspector) Disk() (s api.DiskSample) {
	if free, err := i.o.Store.FreeBytes(); err == nil {
		s.FreeBytes, s.FreeKnown = int64(free), true
	}
	for _, p := range i.o.Store.Partitions() {
		s.DataBytes += p.DiskBytes()
	}
	return s
}

// Busy is the duration of the current write of the journal or pass of a core loop (calls.Busy).
func (i *Inspector) Busy() calls.BusyReply {
	return calls.BusyReply{Milliseconds: max(i.o.Store.Busy(), slices.Max(i.o.Engine.Busy())).Milliseconds()}
}

// replicaOf finds the replica of a topic's partition here; p is nil if there is none. known is false if the topic does
// not exist in the catalog.
func (i *Inspector) replicaOf(topic string, partition uint16) (p *engine.Partition, known bool) {
	t, ok := i.o.Catalog.Topic(topic)
	if !ok {
		return nil, false
	}
	p, _ = i.o.Engine.Partition(ident.Partition{Topic: t.ID, Number: partition})
	return p, true
}

func (i *Inspector) counters() api.CounterTotals {
	var t api.CounterTotals
	for _, p := range i.o.Engine.Partitions() {
		c := p.View().Counters
		t.Add(api.CounterTotals{
			Elections: c.Elections, Rollbacks: c.Rollbacks, RolledBack: c.RolledBack, InDoubt: c.InDoubt,
			Truncations: c.Truncations, Shrinks: c.Shrinks, Grows: c.Grows, Swaps: c.Swaps,
		})
	}
	return t
}

// Ends are the ends of the partitions led here, and the damaged ranges of all replicas (calls.Ends).
func (i *Inspector) Ends() calls.EndsReply {
	r := calls.EndsReply{Damaged: i.damaged()}
	for _, p := range i.o.Engine.Partitions() {
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

func (i *Inspector) damaged() (out []calls.DamagedPlace) {
	for _, p := range i.o.Engine.Partitions() {
		for _, d := range p.Store().Damaged() {
			first, end := sequences(p, d)
			out = append(out, calls.DamagedPlace{
				Partition: p.ID(), From: d.From, To: d.To, FirstSequence: first, EndSequence: end,
			})
		}
	}
	return out
}

// sequences returns the messages of a damaged range according to the commit log; 0, 0 if they are not in it. A channel
// that seeks to the end has passed the range.
func sequences(p *engine.Partition, d queue.Damage) (first, end ident.Sequence) {
	from, ok := p.Store().Index().AtOffset(d.From)
	to, ok2 := p.Store().Index().AtOffset(d.To - 1)
	if !ok || !ok2 {
		return 0, 0
	}
	return from.First, to.End().Sequence
}
