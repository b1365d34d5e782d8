// Package replica is the replication protocol of one partition on one broker,
// as a pure state machine: Step(event) → effects. It has no goroutine, clock,
// socket, file, random source or map iteration inside; the daemon runs it with
// real disks and sockets, the simulator with seeded ones.
//
// It does not decide where replicas live (coordinator/placement), does not talk
// to the metadata store itself (it asks for a compare-and-swap), and knows
// nothing of topics' names, channels or clients.
//
// # The replicated write
//
//	Propose      leader.go    repeats are recognised, the put is sealed at the end
//	Write, Send  leader.go    the same bytes go to the journal and to every follower
//	Received     follower.go  position and checksum chain are compared, then written
//	Synced       follower.go  the follower acknowledges what is durable and verified
//	Received     leader.go    the least acknowledged end of the maximal ISR commits
//	Done         leader.go    the put is answered
//
// When it does not go well: isr.go (a member leaves, joins or is swapped),
// rollback.go (uncommitted puts are taken back under a new epoch), elect.go (a
// member notices that the leader is gone), reconcile.go (where two logs part).
//
// # Vocabulary
//
// The committed end is what every member of the maximal ISR holds durably; the
// maximal ISR is the ISR of the metadata joined with every ISR that was proposed
// and may still land. The epoch start is the offset of the marker, the control
// batch with which a leader opens its epoch.
//
// # Invariants (checked after every Step with Options.Check)
//
//	I1  committed ≤ end; durable ≤ end; the committed end never moves back and
//	    nothing below it is ever truncated.
//	I2  No acknowledgement, and no first message of an epoch, leaves before what
//	    it speaks of is durable here, the promise of its epoch included.
//	I3  A replica never answers an epoch below the one it promised.
//	I4  A leader commits only what every member of the maximal ISR acknowledged
//	    durable, verified against this leader's log, in this epoch.
//	I5  A leader serves nothing (no put answered, nothing delivered) before the
//	    committed end has passed its marker.
//	I6  Nothing is taken back except under a new epoch that this leader won by
//	    compare-and-swap, and then everything above the committed end at once.
//	I7  (epoch, offset) is never used twice.
//	I8  |ISR| ≥ MinISR in every state proposed; a newcomer counts in the maximal
//	    ISR before it is proposed, and has everything up to max(committed, epoch
//	    start) and a confirm version of this epoch.
//	I9  Every Ticket gets exactly one Completion.
//	I10 A leadership ends with the incarnation that won it.
package replica
