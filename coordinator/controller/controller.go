// Package controller plans what one broker of a cluster does for all of them:
// it drops tombstones that have done their work, gives leaderships back to the
// preferred replica, and adds the replicas that a topic lacks.
//
// It is pure: a snapshot of the metadata in, actions out. Who carries them out
// holds the controller's key, and compares it in every transaction. Nothing
// here is on the path of a failover: the members of an in-sync set elect their
// leader themselves.
//
// # Invariants
//
//  1. Every action is idempotent and fenced by a revision of the snapshot; a
//     stale plan fails, it does not harm.
//  2. At most Options.Moves actions that move data or leaders are planned at
//     once.
//  3. A leadership is given only to a live member of the in-sync set, and a
//     replica is added only where the in-sync set is whole or cannot be.
package controller

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/placement"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Snapshot is the metadata at one moment.
type Snapshot struct {
	NowMS      int64
	Topics     []Topic
	Partitions []Partition
	Live       []placement.Broker // with their load; without those that leave
	Leaving    []ident.Node       // to be freed of replicas
}

// Topic is a topic's key, tombstones included.
type Topic struct {
	Name  string
	State meta.TopicState
}

// Partition is a partition's key.
type Partition struct {
	ID    ident.Partition
	State meta.PartitionState
}

// Options bound the plans. Zero values take the defaults.
type Options struct {
	TombstoneMS int64 // 60,000: how long a deleted topic's key stays
	Moves       int   // 8
}

// Action is one step; the set is closed.
type Action interface{ action() }

type (
	// DropTombstone removes the key of a deleted topic.
	DropTombstone struct {
		Name     string
		Revision int64
	}
	// HandOver asks a partition's leader to give its place to the preferred one.
	HandOver struct {
		Partition ident.Partition
		From, To  ident.Node
	}
	// AddReplica names one more broker in a partition's key; it joins the in-sync
	// set when it has caught up.
	AddReplica struct {
		Partition ident.Partition
		State     meta.PartitionState // to be written at State.Revision
	}
	// DropReplica takes brokers that leave out of a partition's key, when those
	// that stay are enough and in sync.
	DropReplica struct {
		Partition ident.Partition
		State     meta.PartitionState // to be written at State.Revision
	}
)

func (DropTombstone) action() {}
func (HandOver) action()      {}
func (AddReplica) action()    {}
func (DropReplica) action()   {}

// Plan lists what should be done now.
func Plan(s Snapshot, o Options) []Action {
	if o.TombstoneMS == 0 {
		o.TombstoneMS = 60_000
	}
	if o.Moves == 0 {
		o.Moves = 8
	}
	var out []Action
	factor := map[ident.TopicID]int{}
	for _, t := range s.Topics {
		if !t.State.Deleted {
			factor[t.State.ID] = t.State.ReplicationFactor
		} else if s.NowMS-t.State.DeletedAtMS > o.TombstoneMS {
			out = append(out, DropTombstone{Name: t.Name, Revision: t.State.Revision})
		}
	}
	moves := 0
	for _, p := range s.Partitions {
		if moves == o.Moves {
			break
		}
		if a := s.planPartition(p, factor[p.ID.Topic]); a != nil {
			out = append(out, a)
			moves++
		}
	}
	return out
}

func (s Snapshot) planPartition(p Partition, factor int) Action {
	staying := slices.DeleteFunc(slices.Clone(p.State.Replicas), s.leaving)
	if len(staying) < factor {
		return s.addReplica(p)
	}
	if len(staying) < len(p.State.Replicas) {
		return s.free(p, staying)
	}
	preferred := p.State.Replicas[0]
	if p.State.Leader != preferred && inSync(p.State, preferred) && s.live(preferred) && s.live(p.State.Leader) {
		return HandOver{Partition: p.ID, From: p.State.Leader, To: preferred}
	}
	return nil
}

// free takes the brokers that leave out of a partition: first its leadership goes,
// then, in one transaction, their places among the replicas and in the in-sync
// set. Before that those that stay must all be in sync.
func (s Snapshot) free(p Partition, staying []ident.Node) Action {
	for _, n := range staying {
		if !inSync(p.State, n) {
			return nil
		}
	}
	if s.leaving(p.State.Leader) {
		to := slices.IndexFunc(staying, s.live)
		if to < 0 {
			return nil
		}
		return HandOver{Partition: p.ID, From: p.State.Leader, To: staying[to]}
	}
	next := p.State.Clone()
	next.Replicas = staying
	next.ISR = slices.DeleteFunc(next.ISR, func(m ident.Member) bool { return s.leaving(m.Node) })
	if len(next.ISR) < next.MinInSync {
		return nil
	}
	return DropReplica{Partition: p.ID, State: next}
}

func inSync(p meta.PartitionState, n ident.Node) bool {
	return slices.ContainsFunc(p.ISR, func(m ident.Member) bool { return m.Node == n })
}

func (s Snapshot) leaving(n ident.Node) bool { return slices.Contains(s.Leaving, n) }

// addReplica chooses as placement does, among the brokers that have none.
func (s Snapshot) addReplica(p Partition) Action {
	zones := map[string]int{}
	var free []placement.Broker
	for _, b := range s.Live {
		if slices.Contains(p.State.Replicas, b.Node) {
			zones[b.Zone]++
		} else {
			free = append(free, b)
		}
	}
	fresh := slices.DeleteFunc(slices.Clone(free), func(b placement.Broker) bool { return zones[b.Zone] > 0 })
	if len(fresh) > 0 {
		free = fresh
	}
	chosen, err := placement.Place(free, placement.Topic{Partitions: 1, Replicas: 1})
	if err != nil {
		return nil // nobody is free
	}
	next := p.State.Clone()
	next.Replicas = append(next.Replicas, chosen[0][0])
	return AddReplica{Partition: p.ID, State: next}
}

func (s Snapshot) live(n ident.Node) bool {
	return slices.ContainsFunc(s.Live, func(b placement.Broker) bool { return b.Node == n })
}
