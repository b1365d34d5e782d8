package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// State is a situation that a series of runs must have reached: a series that
// was tame proves nothing.
type State int

// The named states.
const (
	StateElection State = iota
	StateRollback
	StateRolledBack
	StateInDoubt
	StateTruncation
	StateShrink
	StateGrow
	StateSwap
	StateLateCAS
	StateUnknownCAS
	StateMarkerPendingCrash
	StateRestartInEpoch
	StateWipedRejoin
	StateDuplicate
	StateHandOver
	StateCatchUpRead
	StateSnapshot
	StateLogRestart
	StateDiskError
	StateUnsyncedLost
	StateRegistrationLost
	StateHeldRefused
	StateMove
	StateRelocation
	StateRelocatedSeen
	StateTrimmed
	StateQuarantine
	StateRepaired
	StateShortOfSpace
	StateDiskFull
	StateCompaction
	StateMinimum
	StateCutOff
	StatePassed
	StateBeyondTables
	StateDeferred
	StatePowerLost
	StateRecovered
	StateClockSetBack
	StatePublishedAgain
	stateCount
)

// String names the state as the report prints it.
func (s State) String() string {
	return [...]string{
		"election", "rollback", "rolled back answer", "in doubt answer", "truncation",
		"ISR shrink", "ISR grow", "ISR swap", "late CAS landed", "unknown CAS",
		"crash with marker pending", "restart in the same epoch", "wiped store rejoined",
		"duplicate recognised", "hand-over", "catch-up by read", "channel snapshot",
		"log restart", "disk error", "unsynced writes lost", "registration lost",
		"held put refused", "replica moved", "messages relocated", "relocated message seen", "log trimmed",
		"quarantine", "repaired from a peer", "refused short of space", "disk full", "metadata compacted",
		"minimum changed", "leader replaced though it lives",
		"passed by retention", "compared beyond the tables", "deferred message seen", "power lost unsynced",
		"recovered uncleanly", "wall clock set back", "published again",
	}[s]
}

// Coverage counts how often each named state was reached.
type Coverage [stateCount]int

// Add sums another run's counts up.
func (c *Coverage) Add(o Coverage) {
	for i := range c {
		c[i] += o[i]
	}
}

func (c *Coverage) answer(o outcome.Outcome) {
	switch o {
	case outcome.RolledBack:
		c[StateRolledBack]++
	case outcome.InDoubt:
		c[StateInDoubt]++
	case outcome.Duplicate:
		c[StateDuplicate]++
	case outcome.Repeated:
		c[StatePublishedAgain]++
	case outcome.NotEnoughReplicas:
		c[StateHeldRefused]++
	case outcome.DiskFull:
		c[StateShortOfSpace]++
	}
}

func (c *Coverage) writes(ws []queue.Write, r replica.Role) {
	for _, w := range ws {
		switch {
		case w.Kind == queue.WriteTruncate:
			c[StateTruncation]++
		case w.Kind == queue.WriteRestart:
			c[StateLogRestart]++
		case w.Kind == queue.WriteState && w.State.Full && r == replica.Follower:
			c[StateSnapshot]++
		}
	}
}

func (c *Coverage) casLanded(x replica.CAS, landed, late bool) {
	if landed && late {
		c[StateLateCAS]++
	}
	if landed && x.TransferTarget != nil {
		c[StateHandOver]++
	}
}

// transition classifies a change of a partition's key.
func (c *Coverage) transition(w *world, old, s metadata.PartitionState) {
	if old.MinInSync != s.MinInSync {
		c[StateMinimum]++
	}
	switch {
	case old.Leader != s.Leader || old.LeaderIncarnation != s.LeaderIncarnation:
		c[StateElection]++
	case s.Epoch != old.Epoch:
		c[StateRollback]++
	case len(s.ISR) < len(old.ISR):
		c[StateShrink]++
	case len(s.ISR) > len(old.ISR):
		c[StateGrow]++
	case !slices.Equal(old.ISR, s.ISR):
		c[StateSwap]++
	}
	for _, m := range s.ISR {
		if i := slices.Index(w.replaced, m.Store); i >= 0 {
			w.replaced = slices.Delete(w.replaced, i, i+1)
			c[StateWipedRejoin]++
		}
	}
}
