// Package plan plans what one broker of a cluster does for all of them:
// it drops tombstones that have done their work, gives leaderships back to the
// preferred replica, takes them from drained brokers, and brings each partition's replicas and minimum to what
// its topic, or an operator, has set.
//
// It is pure: a snapshot of the metadata in, actions out. The broker that holds
// the controller's key executes them, and compares the key in every transaction.
// Nothing here is on the path of a failover: the members of an in-sync set elect
// their leader themselves.
//
// # Invariants
//
//  1. Every action is idempotent and fenced by a revision of the snapshot; a
//     stale plan fails, it does not harm.
//  2. No broker fills, or is filled by, more than Options.Copies replicas at
//     once.
//  3. A leadership is given only to a live member of the in-sync set.
//  4. A drained broker is given neither leaderships nor replicas.
//  5. A replica goes only when all that are to stay are in sync, and an in-sync
//     set is never below the minimum: neither when a member goes nor when the
//     minimum is raised.
package plan

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Snapshot is the metadata at one moment.
type Snapshot struct {
	NowMS      int64
	Topics     []Topic
	Trash      []metadata.TopicState // deleted topics whose replicas are still there
	Partitions []Partition
	Live       []Broker     // with their load; without those that leave or are drained
	Leaving    []ident.Node // to be freed of replicas
	Gone       []ident.Node // of those that leave, the ones that do not run
	Drained    []ident.Node // to be freed of leaderships; they run
	Staying    []ident.Node // of those that leave, the ones that are drained: they stay members
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
	TombstoneMS int64 // 60,000: how long a deleted topic's key stays
	Copies      int   // 8: replicas that a broker fills, or is filled by, at once
	Actions     int   // 64: of one plan
}

// Action is one step; the set is closed. String returns its name for the log.
type Action interface{ String() string }

type (
	// DropTombstone removes the key of a deleted topic, and the keys of its channels that
	// the deletion has left.
	DropTombstone struct {
		Name     string
		ID       ident.TopicID
		Revision int64
		Trashed  bool // the channels' keys belong to the trash
	}
	// TransferLeadership asks a partition's leader to transfer its leadership to another in-sync member.
	TransferLeadership struct {
		Partition ident.Partition
		From, To  ident.Node
	}
	// Rewrite replaces a partition's key: more replicas, which join the in-sync set
	// when they have caught up; fewer; another minimum.
	Rewrite struct {
		Partition ident.Partition
		State     metadata.PartitionState // to be written at State.Revision
	}
	// Forget removes a broker that has left, and holds nothing, from the cluster.
	Forget struct{ Node ident.Node }
)

// String implements Action.
func (DropTombstone) String() string { return "drop_tombstone" }

// String implements Action.
func (TransferLeadership) String() string { return "transfer_leadership" }

// String implements Action.
func (Rewrite) String() string { return "rewrite_partition" }

// String implements Action.
func (Forget) String() string { return "forget_broker" }

// Plan lists what should be done now.
func Plan(s Snapshot, o Options) []Action {
	if o.TombstoneMS == 0 {
		o.TombstoneMS = 60_000
	}
	if o.Copies == 0 {
		o.Copies = 8
	}
	if o.Actions == 0 {
		o.Actions = 64
	}
	var out []Action
	topics := map[ident.TopicID]metadata.TopicState{}
	for _, t := range s.Trash {
		topics[t.ID] = t
	}
	for _, t := range s.Topics {
		if !t.State.Deleted {
			topics[t.State.ID] = t.State
		} else if age := s.NowMS - t.State.DeletedAtMS; age > o.TombstoneMS || -age > o.TombstoneMS { // or a clock is wrong
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
		if slices.Contains(s.Staying, n) {
			continue
		}
		if !slices.ContainsFunc(s.Partitions, func(p Partition) bool { return names(p.State, n) }) {
			out = append(out, Forget{Node: n})
		}
	}
	return out
}

func names(p metadata.PartitionState, n ident.Node) bool {
	return p.Leader == n || slices.Contains(p.Replicas, n) || slices.Contains(p.Target, n) || inSync(p, n)
}

func inSync(p metadata.PartitionState, n ident.Node) bool {
	return slices.ContainsFunc(p.ISR, func(m ident.Member) bool { return m.Node == n })
}

func (s Snapshot) leaving(n ident.Node) bool { return slices.Contains(s.Leaving, n) }

func (s Snapshot) live(n ident.Node) bool {
	return slices.ContainsFunc(s.Live, func(b Broker) bool { return b.Node == n })
}

func (s Snapshot) drained(n ident.Node) bool { return slices.Contains(s.Drained, n) }

// runs: it is live, or drained, or leaves and is not gone yet.
func (s Snapshot) runs(n ident.Node) bool {
	return s.live(n) || s.drained(n) || s.leaving(n) && !slices.Contains(s.Gone, n)
}
