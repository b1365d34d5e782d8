// Package plan plans the work of the cluster's controller: it drops old tombstones, returns leaderships to the
// preferred replica, takes them from drained brokers, and brings each partition's replicas and minimum to what its
// topic, or an operator, has set.
//
// It is pure: a snapshot of the metadata in, actions out. The broker that holds the controller's key executes them, and
// compares the key in every transaction. Failovers do not depend on it: the members of an in-sync set elect their leader
// themselves.
//
// # Invariants
//
//  1. Every action is idempotent and fenced by a revision of the snapshot; a stale plan fails without harm.
//  2. No broker is the source or target of more than Options.Copies copies at once.
//  3. A leadership moves only to a live member of the in-sync set.
//  4. A drained broker gets neither leaderships nor replicas.
//  5. A replica is removed only when all remaining ones are in sync. An in-sync set is never below the minimum: neither when a
//     member is removed nor when the minimum is raised.
package plan

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Snapshot is the metadata at one moment.
type Snapshot struct {
	NowMS      int64
	Topics     []Topic
	Trash      []metadata.TopicState // deleted topics that still have replicas
	Partitions []Partition
	Live       []Broker     // with their load; neither leaving nor drained
	Leaving    []ident.Node // brokers that are to lose their replicas
	Gone       []ident.Node // leaving, and not running
	Drained    []ident.Node // running brokers that are to lose their leaderships
	Staying    []ident.Node // leaving, but only drained: they stay members
}

// Topic is a topic's key, tombstones included.
type Topic struct {
	Name  string
	State metadata.TopicState
}

// Partition is a partition's key.
type Partition struct {
	ID    ident.Partition
	State metadata.PartitionState
}

// Options bound the plans. Zero values take the defaults.
type Options struct {
	TombstoneMS int64 // 60,000: lifetime of a deleted topic's key
	Copies      int   // 8: copies from or to one broker at once
	Actions     int   // 64: in one plan
}

// Action is a DropTombstone, TransferLeadership, Rewrite or Forget.
type Action any

type (
	// DropTombstone removes the key of a deleted topic, and remaining keys of its channels.
	DropTombstone struct {
		Name     string
		ID       ident.TopicID
		Revision int64
		Trashed  bool // the topic is in the trash, which owns the channels' keys
	}
	// TransferLeadership asks a partition's leader to transfer to another in-sync member.
	TransferLeadership struct {
		Partition ident.Partition
		From, To  ident.Node
	}
	// Rewrite replaces a partition's key: it adds replicas, which join the in-sync set when they have caught up,
	// removes some, or changes the minimum.
	Rewrite struct {
		Partition ident.Partition
		State     metadata.PartitionState // to be written at State.Revision
	}
	// Forget removes a broker without replicas that has left the cluster.
	Forget struct{ Node ident.Node }
)

// Plan lists what should be done now.
func Plan(s Snapshot, o Options) []Action {
	o.TombstoneMS, o.Copies, o.Actions = cmp.Or(o.TombstoneMS, 60_000), cmp.Or(o.Copies, 8), cmp.Or(o.Actions, 64)
	var out []Action
	topics := map[ident.TopicID]metadata.TopicState{}
	for _, t := range s.Trash {
		topics[t.ID] = t
	}
	for _, t := range s.Topics {
		if !t.State.Deleted {
			topics[t.State.ID] = t.State
		} else if age := s.NowMS - t.State.DeletedAtMS; age > o.TombstoneMS || -age > o.TombstoneMS { // old enough, or a clock is wrong
			out = append(out, DropTombstone{Name: t.Name, ID: t.State.ID, Revision: t.State.Revision, Trashed: t.State.Trashed})
		}
	}
	p := newPlanner(s, o)
	for _, partition := range s.Partitions {
		if len(out) >= o.Actions {
			return out
		}
		if t, ok := topics[partition.ID.Topic]; ok {
			if a := p.plan(partition, t); a != nil {
				out = append(out, a)
			}
		}
	}
	return append(out, s.forget()...)
}

// forget lists the brokers that have left and are named by no partition.
func (s Snapshot) forget() (out []Action) {
	for _, n := range s.Gone {
		named := slices.ContainsFunc(s.Partitions, func(p Partition) bool { return names(p.State, n) })
		if !named && !slices.Contains(s.Staying, n) {
			out = append(out, Forget{Node: n})
		}
	}
	return out
}

func names(p metadata.PartitionState, n ident.Node) bool {
	return p.Leader == n || slices.Contains(p.Replicas, n) || slices.Contains(p.Target, n) || ident.HasMember(p.ISR, n)
}

func (s Snapshot) leaving(n ident.Node) bool { return slices.Contains(s.Leaving, n) }

func (s Snapshot) live(n ident.Node) bool {
	return slices.ContainsFunc(s.Live, func(b Broker) bool { return b.Node == n })
}

func (s Snapshot) drained(n ident.Node) bool { return slices.Contains(s.Drained, n) }

// runs reports whether a broker is live or drained, or leaving and not gone yet.
func (s Snapshot) runs(n ident.Node) bool {
	return s.live(n) || s.drained(n) || s.leaving(n) && !slices.Contains(s.Gone, n)
}
