package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Options configures a machine. The times are in milliseconds; DESIGN.md, "The times", explains each.
type Options struct {
	Self        Peer
	Partition   ident.Partition
	ISRMS       int64          // T_isr 1000: a silent or late member is proposed out of the ISR
	HoldMS      int64          // T_hold 3000: a put waits without an offset
	WriteMS     int64          // write deadline 3000: an appended put is not committed
	GraceMS     int64          // 2000: a rolled-back put waits for the marker
	RetryMS     int64          // 200: an unanswered message or transaction is repeated
	ElectionMS  int64          // 50: wait for probe replies, and the stagger of candidates
	RepeatMS    int64          // 30000: a request id is recognised for this long after its append; 0: that
	DedupeMS    int64          // 120000: the dedupe window at first; 0: that
	Identities  int            // identities of messages in the window; more are refused; 0: 1179648
	WindowBytes int            // 8 MiB in flight to one follower
	GroupBytes  int            // 1 MiB in one append
	TailBytes   int            // 16 MiB of the newest batches stay in memory for followers
	HeldBytes   int            // 64 MiB of puts wait without an offset; more are refused
	Epochs      int            // entries of the epoch table sent in a rejection; 0: 256
	Budget      *dedupe.Budget // of the identities of all partitions of the broker; nil: unbounded
	Check       bool           // verify the invariants after every Step; on in all tests
}

// DefaultRepeatMS is the default of Options.RepeatMS: no edge repeats a put for longer than its put limit, 9 s.
const DefaultRepeatMS = 30_000

// commitLog is the commit log, which the machine keeps equal to its own log. A lookup of an old record may read a page.
type commitLog interface {
	Append(r ...commitlog.Record)
	Truncate(end ident.Offset)
	// Restart empties the index; the next record begins at p.
	Restart(p ident.Position)
	// AtOffset finds the record whose batch covers byte o.
	AtOffset(o ident.Offset) (commitlog.Record, bool)
	// Start is the first position that is retained.
	Start() ident.Position
}

// register is the channel state of the partition (nsqd). Only Step calls it, in the order of the versions.
type register interface {
	// Snapshot encodes the whole current state.
	Snapshot() []byte
	// Apply applies a delta. A delta moves a channel forward only, unless it is a replicated seek.
	Apply(delta []byte)
	// Replace replaces the current state by a snapshot.
	Replace(full []byte)
	// Unlead ends deliveries here, if there are any: no change is accepted from now on.
	Unlead()
}
