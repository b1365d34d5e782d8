// Package outcome is the one table of the outcomes of puts, finishes and operations: the number between brokers, the
// error, the text for TCP clients, the HTTP status, the metric's label, and the class for callers.
//
// The package decides nothing: package replica and package engine produce the outcomes, package gateway acts on them.
// Every other place derives from the table: the protocol, the HTTP API, the frames and calls between brokers, the
// metrics.
//
// # Invariants
//
//  1. Every exported error of this package, and every Outcome, has exactly one row.
//  2. Outcomes and codes are wire format: a number is never changed and never reused.
//  3. An error whose text has "not stored" is never of the class "in doubt".
//
// # A new outcome
//
// It takes a sentinel and a row in table.go, a line in the test that freezes the numbers, and the code that produces
// it. If it travels in the answers to forwarded puts, it also takes a constant in table.go, and a feature level
// (metadata.Level rises by one): brokers of a cluster below that level are sent another outcome.
package outcome

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Outcome is the answer to a proposed put. The numbers are on the wire, in the answers to forwarded puts. 0 means none.
type Outcome uint8

// Completion answers one put, or one change of the state of channels.
type Completion struct {
	Ticket  uint64         // number of the put or change in its machine
	First   ident.Sequence // of a put; valid with Committed, Duplicate and Repeated
	Outcome Outcome
	// With NotEnoughReplicas: the number of in-sync replicas that answer, including this one, and the number that a put
	// requires. Both are 0 if there are enough replicas and puts waited for something else.
	InSync, Minimum int
}

// NotEnough is an ErrNotEnough with its numbers: InSync in-sync replicas answer, and a put requires Minimum of them.
type NotEnough struct{ InSync, Minimum int }

// Error begins as ErrNotEnough does; clients compare the beginning.
func (e NotEnough) Error() string {
	return fmt.Sprintf("not enough in-sync replicas (%d of %d), not stored", e.InSync, e.Minimum)
}

// Is makes errors.Is(e, ErrNotEnough) true.
func (e NotEnough) Is(target error) bool { return target == ErrNotEnough }

// ErrPartitionNotFound is the ErrInvalid of a request that names a partition the topic does not have; its number
// follows. (A broker that has no replica of an existing partition answers another broker rpc.ErrNoReplica.)
var ErrPartitionNotFound = fmt.Errorf("%w: the topic has no partition", ErrInvalid)

// Completer receives the outcome of one put or change, exactly once. Complete runs under a run lock: it must not block.
type Completer interface{ Complete(c Completion) }

// Code is the stable number of an error in the calls between brokers. 0 means none.
type Code uint16

// CodeUnknown is the code of an error that has no row.
const CodeUnknown Code = 1

// Class is the remedy for an error. The numbers are on the wire.
type Class uint8

// The classes of errors.
const (
	// ClassRetryHere: nothing happened; a later attempt at the same broker may succeed.
	ClassRetryHere Class = iota + 1
	// ClassRetryElsewhere: nothing happened; the caller should ask the current leader.
	ClassRetryElsewhere
	// ClassLeaveISR: the replica has to leave the in-sync set.
	ClassLeaveISR
	// ClassDefinite: nothing happened, and repeating it will not help.
	ClassDefinite
	// ClassInDoubt: it may have happened, or may yet.
	ClassInDoubt
	// ClassRolledBack: it happened and was rolled back permanently.
	ClassRolledBack
)

// String names the class.
func (c Class) String() string {
	if c < ClassRetryHere || c > ClassRolledBack {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return [...]string{"retry here", "retry elsewhere", "leave isr", "definite", "in doubt", "rolled back"}[c-1]
}

// Effect is the consequence of an Outcome for the edge whose attempt of a put ended with it. An edge that has an
// earlier attempt in doubt treats a definite outcome as Again.
type Effect uint8

// The effects of an Outcome.
const (
	// Commits: the put is stored.
	Commits Effect = iota + 1
	// Again: nothing was written; the edge tries again until the put limit.
	Again
	// AgainWhileHeld is Again while puts are held (T_hold), then definite.
	AgainWhileHeld
	// Refuses: this attempt stored nothing and never will; the edge does not try again.
	Refuses
	// Doubts: the put may be stored; the edge tries again under the same request id.
	Doubts
)

// Uses is the set of operations to which an error may be the answer.
type Uses uint8

// The operations.
const (
	OfPuts     Uses = 1 << iota // the answer to a put
	OfFinishes                  // … to FIN, REQ or TOUCH
	OfRequests                  // … to any other request of the HTTP API
	OfBrokers                   // … to another broker only
)

// httpAnswer is the HTTP answer for an error; Status 0: over HTTP it is an internal error.
type httpAnswer struct {
	Status     int
	Message    string // "": the error's text
	RetryAfter bool
}

// Row is one outcome with all its properties.
type Row struct {
	Outcome Outcome // 0: no proposal ends with it
	Effect  Effect  // of the Outcome

	Err   error      // its text is also the TCP client's, after "E_PUB_FAILED PUB failed "; nil: no error
	Code  Code       // of Err
	Class Class      // of Err
	Uses  Uses       // the operations that Err answers
	HTTP  httpAnswer // of Err
	Label string     // of the answer in puts_total; "": it is never the answer to a client's put
}

// Rows are all rows, in the order in which Find tries them.
func Rows() []Row { return slices.Clone(rows) }

var byOutcome = func() (by [lastOutcome + 1]Row) {
	for _, r := range rows {
		if r.Outcome != 0 {
			by[r.Outcome] = r
		}
	}
	return by
}()

// Known reports whether the number is an Outcome of this build.
func (o Outcome) Known() bool { return 0 < o && o <= lastOutcome }

// Row is the row of an Outcome, the zero Row if it is not Known.
func (o Outcome) Row() Row {
	if !o.Known() {
		return Row{}
	}
	return byOutcome[o]
}

// Find returns the row of an error among those of some uses: the first whose sentinel the error wraps; false if there
// is no such row.
func Find(err error, uses Uses) (Row, bool) {
	for _, r := range rows {
		if r.Err != nil && r.Uses&uses != 0 && errors.Is(err, r.Err) {
			return r, true
		}
	}
	return Row{}, false
}

// LabelOf is the label that counts the answer to a put.
func LabelOf(err error) string {
	if err == nil {
		return Committed.Row().Label
	}
	if r, ok := Find(err, OfPuts); ok {
		return r.Label
	}
	return LabelRefused
}
