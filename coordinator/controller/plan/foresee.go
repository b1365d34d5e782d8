package plan

import (
	"math"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

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
