// Package history judges what clients of a cluster saw: which puts were
// answered how, and which messages were delivered.
//
// It is about clients only: bodies, answers, message ids and the order of events
// at one client. It does not look into the brokers (equal replicas are checked
// by `nsqctl check`), does not measure time, and does no I/O.
//
// A good history satisfies, for bodies that are all different:
//
//  1. Every acknowledged put is delivered (P1: lost).
//  2. A delivered body was put (unexpected), and by an attempt that was not
//     refused or rolled back (P3: refused, rolled back).
//  3. A body is stored at most once for each attempt that was acknowledged or
//     in doubt (duplicate).
//  4. A message id names one body forever (P2: rewritten).
//  5. The sequences of a partition are delivered without holes from 0 (P2:
//     hole): nothing committed is passed over.
//  6. Within a partition, the puts of one producer that waited for each answer
//     are stored in the order of the puts (reordered).
//  7. A message that a consumer finished is delivered again only as often as
//     the caller allows (P5: redelivered).
package history

import (
	"fmt"
	"strconv"
)

// Answer is the answer to one attempt of a producer to put a body.
type Answer int

// Answers to an attempt.
const (
	OK         Answer = iota + 1 // stored forever
	Refused                      // definite: nothing was stored
	RolledBack                   // definite: it was written, and rolled back
	InDoubt                      // the connection broke, or the broker said so
)

// String names the answer.
func (a Answer) String() string {
	switch a {
	case OK:
		return "ok"
	case Refused:
		return "refused"
	case RolledBack:
		return "rolled back"
	case InDoubt:
		return "in doubt"
	}
	return "answer " + strconv.Itoa(int(a))
}

// Put is one body and the answers to all attempts to put it, in order. A
// producer puts one body after the other and retries until one answer is final.
type Put struct {
	Producer int // who; producers are numbered by the caller
	Body     string
	Answers  []Answer
}

// acknowledged reports whether an attempt was answered OK.
func (p Put) acknowledged() bool { return p.count(OK) > 0 }

func (p Put) count(a Answer) (n int) {
	for _, x := range p.Answers {
		if x == a {
			n++
		}
	}
	return n
}

// Delivery is one message as a consumer got it.
type Delivery struct {
	ID       string // 16 hex digits
	Body     string
	Attempts uint16
	// FinishedAt is when the consumer finished this delivery: how many deliveries
	// had arrived by then, this one counted; 0 if it never did.
	FinishedAt int
}

// History is all that the clients of one topic saw. Puts of one producer are in
// their order, deliveries in the order in which they arrived.
type History struct {
	Puts       []Put
	Deliveries []Delivery
}

// Place is where a message lies: the partition and its sequence there.
type Place struct {
	Partition uint16
	Sequence  uint64
}

const (
	partitionBits = 10
	sequenceBits  = 42
)

// ParseID takes the partition and the sequence out of a message id: 16 hex
// digits of {12-bit topic nonce, 10-bit partition, 42-bit sequence}.
func ParseID(id string) (Place, error) {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil || len(id) != 16 {
		return Place{}, fmt.Errorf("history: %q is no message id", id)
	}
	return Place{
		Partition: uint16(n >> sequenceBits & (1<<partitionBits - 1)),
		Sequence:  n & (1<<sequenceBits - 1),
	}, nil
}
