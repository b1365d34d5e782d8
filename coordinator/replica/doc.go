// Package replica is the replication protocol of one partition on one broker, as a pure state machine: Step(event) →
// effects. It has no goroutine, clock, socket, file, random source or map iteration inside. The daemon runs it with
// real disks and sockets, the simulator (internal/test/verify/sim) and the model (internal/test/verify/model) with
// their own.
//
// It does not place replicas (coordinator/controller/plan), does not talk to the metadata store but requests
// compare-and-swaps, and has no concept of topic names, channels or clients.
//
// DESIGN.md next to this file defines the terms and the numbered rules (AC-4, RB-6, …), and testdata/*.txt shows each
// rule in a script.
//
// # The replicated write
//
//	Propose      puts.go       repeats are recognised, the put is sealed at the end
//	Write, Send  replicate.go  the same bytes go to the journal and to every follower
//	Received     follower.go   position and checksum chain are compared, then written
//	Synced       follower.go   the follower acknowledges the durable, compared end
//	Received     replicate.go  the leader notes the acknowledgement
//	             commit.go     the least acknowledged end of the maximal ISR is committed
//	Done         puts.go       the put is answered
//
// # Invariants (checked after every Step with Options.Check)
//
//	I1  committed ≤ end; durable ≤ end; the committed end never moves back and
//	    nothing below it is ever truncated.
//	I2  No acknowledgement, and no first message of an epoch, leaves before the log
//	    and the promise that it reports are durable here.
//	I3  A replica never answers an epoch below the one it promised.
//	I4  A leader commits only what every member of the maximal ISR acknowledged
//	    durable, verified against this leader's log, in this epoch.
//	I5  An elected leader serves nothing (no put answered, nothing delivered) before
//	    the committed end has passed its marker. After a rollback of its own epoch the
//	    leader delivers what was committed in that epoch, and appends no put.
//	I6  Nothing is rolled back except under a new epoch that this leader won by
//	    compare-and-swap, and then everything above the committed end at once.
//	I7  (epoch, offset) is never used twice.
//	I8  |ISR| ≥ MinISR in every state proposed; a newcomer counts in the maximal
//	    ISR before it is proposed, and has everything up to max(committed, epoch
//	    start) and a channel-state version of this epoch.
//	I9  Every Ticket gets exactly one Completion.
//	I10 A leadership ends with the incarnation that won it.
package replica
