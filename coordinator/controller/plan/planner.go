package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// planner plans one partition after the other. Replicas that it has planned count as load for the following partitions.
type planner struct {
	Snapshot
	copies int
	busy   map[ident.Node]int // copies from or to a broker
}

func newPlanner(s Snapshot, o Options) *planner {
	p := &planner{Snapshot: s, copies: o.Copies, busy: map[ident.Node]int{}}
	p.Live = slices.Clone(s.Live)
	for _, x := range s.Partitions {
		if !s.runs(x.State.Leader) {
			continue // no planner copies these
		}
		for _, n := range x.State.Replicas {
			if !ident.HasMember(x.State.ISR, n) && (s.live(n) || s.drained(n)) {
				p.busy[n]++
				p.busy[x.State.Leader]++
			}
		}
	}
	return p
}

// plan returns the next action of a partition; nil if it needs no action or has to wait.
func (p *planner) plan(x Partition, t metadata.TopicState) Action {
	s := x.State
	if m := t.MinInSync; m < s.MinInSync || m > s.MinInSync && len(s.ISR) >= m {
		next := s.Clone()
		next.MinInSync = m
		return Rewrite{Partition: x.ID, State: next}
	}
	if a := p.relieve(x); a != nil {
		return a
	}
	wanted := p.wanted(s, t.ReplicationFactor)
	switch {
	case missing(wanted, s.Replicas):
		return p.fill(x, wanted)
	case len(wanted) < t.ReplicationFactor: // remove no replica before its successor is chosen
		return p.prefer(x)
	case missing(s.Replicas, wanted):
		return p.free(x, wanted)
	case !slices.Equal(s.Replicas, wanted) || len(s.Target) > 0:
		return replace(x, wanted)
	}
	return p.prefer(x)
}

// wanted lists the replicas that a partition should have: its target or, without a target, its current replicas, but
// none on a leaving broker. Replicas are dropped or added to match the replication factor, as far as there are brokers.
func (p *planner) wanted(s metadata.PartitionState, factor int) []ident.Node {
	base := s.Replicas
	if len(s.Target) > 0 {
		base = s.Target
	}
	wanted := slices.DeleteFunc(slices.Clone(base), p.leaving)
	if over := len(wanted) - factor; over > 0 {
		return fewer(wanted, s, over)
	}
	for len(wanted) < factor {
		n, ok := p.place(wanted, s.Replicas)
		if !ok {
			break
		}
		wanted = append(wanted, n)
	}
	return wanted
}

// fewer drops the given number of replicas: those that are not in sync first, then the least preferred.
func fewer(nodes []ident.Node, s metadata.PartitionState, over int) []ident.Node {
	last := slices.Clone(nodes)
	rank := func(n ident.Node) int {
		if ident.HasMember(s.ISR, n) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(last, func(a, b ident.Node) int { return cmp.Compare(rank(a), rank(b)) })
	drop := last[len(last)-over:]
	return slices.DeleteFunc(nodes, func(n ident.Node) bool { return slices.Contains(drop, n) })
}

// place chooses a broker for one more replica. A broker that has an unwanted replica is the last choice.
func (p *planner) place(wanted, has []ident.Node) (ident.Node, bool) {
	var fresh, known []Broker
	zones := map[string]bool{}
	for _, b := range p.Live {
		switch {
		case slices.Contains(wanted, b.Node):
			zones[b.Zone] = true
		case slices.Contains(has, b.Node):
			known = append(known, b)
		default:
			fresh = append(fresh, b)
		}
	}
	if len(fresh) == 0 {
		fresh = known
	}
	apart := slices.DeleteFunc(slices.Clone(fresh), func(b Broker) bool { return zones[b.Zone] })
	if len(apart) > 0 {
		fresh = apart
	}
	chosen, err := Place(fresh, Placement{Partitions: 1, Replicas: 1})
	if err != nil {
		return "", false // no broker is free
	}
	return chosen[0][0], true
}

// fill adds the missing replicas, unless one of the brokers is too busy. It writes the choice as a target, so that the next
// plan does not choose others.
func (p *planner) fill(x Partition, wanted []ident.Node) Action {
	next := x.State.Clone()
	for _, n := range wanted {
		if !slices.Contains(next.Replicas, n) {
			next.Replicas = append(next.Replicas, n)
		}
	}
	added := next.Replicas[len(x.State.Replicas):]
	for _, n := range append(slices.Clone(added), x.State.Leader) {
		if p.busy[n] >= p.copies {
			return nil
		}
	}
	for _, n := range added {
		p.busy[n]++
		p.busy[x.State.Leader]++
		if at := slices.IndexFunc(p.Live, func(b Broker) bool { return b.Node == n }); at >= 0 {
			p.Live[at].Replicas++
		}
	}
	if missing(next.Replicas, wanted) {
		next.Target = wanted
	}
	return Rewrite{Partition: x.ID, State: next}
}

// free removes unwanted replicas when all others are in sync: first it transfers the leadership away, then it removes them
// from the replicas and from the in-sync set in one transaction.
func (p *planner) free(x Partition, wanted []ident.Node) Action {
	s := x.State
	if slices.ContainsFunc(wanted, func(n ident.Node) bool { return !ident.HasMember(s.ISR, n) }) || len(wanted) < s.MinInSync {
		return nil
	}
	if !slices.Contains(wanted, s.Leader) {
		to := slices.IndexFunc(wanted, p.live)
		if to < 0 {
			return nil
		}
		return TransferLeadership{Partition: x.ID, From: s.Leader, To: wanted[to]}
	}
	return replace(x, wanted)
}

// replace removes all replicas but the wanted ones.
func replace(x Partition, wanted []ident.Node) Action {
	next := x.State.Clone()
	next.Replicas, next.Target = wanted, nil
	next.ISR = slices.DeleteFunc(next.ISR, func(m ident.Member) bool { return !slices.Contains(wanted, m.Node) })
	return Rewrite{Partition: x.ID, State: next}
}

// relieve takes the leadership from a drained broker, if another in-sync replica is live.
func (p *planner) relieve(x Partition) Action {
	s := x.State
	if !p.drained(s.Leader) {
		return nil
	}
	for _, n := range s.Replicas {
		if ident.HasMember(s.ISR, n) && p.live(n) {
			return TransferLeadership{Partition: x.ID, From: s.Leader, To: n}
		}
	}
	return nil
}

// prefer returns the leadership to the preferred replica: the first that is not drained.
func (p *planner) prefer(x Partition) Action {
	s := x.State
	at := slices.IndexFunc(s.Replicas, func(n ident.Node) bool { return !p.drained(n) })
	if at < 0 {
		return nil
	}
	preferred := s.Replicas[at]
	if s.Leader != preferred && ident.HasMember(s.ISR, preferred) && p.live(preferred) && p.live(s.Leader) {
		return TransferLeadership{Partition: x.ID, From: s.Leader, To: preferred}
	}
	return nil
}

// missing reports whether some of a are not in b.
func missing(a, b []ident.Node) bool {
	return slices.ContainsFunc(a, func(n ident.Node) bool { return !slices.Contains(b, n) })
}

// foreseeRounds bounds Foresee: a partition takes about four steps to any target.
const foreseeRounds = 16

// Foresee returns the partitions as they are when no action is left, if every replica on a running broker catches up and
// nothing else changes.
func Foresee(s Snapshot) []Partition {
	at := make(map[ident.Partition]int, len(s.Partitions))
	end := make([]Partition, len(s.Partitions))
	for i, p := range s.Partitions {
		at[p.ID], end[i] = i, Partition{ID: p.ID, State: s.caughtUp(p.State)}
	}
	s.Partitions = end
	for range foreseeRounds {
		changed := false
		for _, a := range Plan(s, Options{Copies: math.MaxInt, Actions: math.MaxInt}) {
			switch a := a.(type) {
			case Rewrite:
				end[at[a.Partition]].State, changed = s.caughtUp(a.State), true
			case TransferLeadership:
				end[at[a.Partition]].State.Leader, changed = a.To, true
			}
		}
		if !changed {
			break
		}
	}
	return end
}

// caughtUp is a partition's key when its replicas on brokers that run are in sync.
func (s Snapshot) caughtUp(p metadata.PartitionState) metadata.PartitionState {
	p = p.Clone()
	for _, n := range p.Replicas {
		if !ident.HasMember(p.ISR, n) && s.runs(n) {
			p.ISR = append(p.ISR, ident.Member{Node: n})
		}
	}
	return p
}
