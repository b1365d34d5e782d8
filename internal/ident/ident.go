// Package ident holds the identities that every layer shares: nodes and their
// incarnations, topics, partitions, stores, epochs and positions in a log.
//
// They are distinct types so that the compiler refuses an offset where a
// sequence is meant. The package is a leaf: it imports nothing of Lockstep.
package ident

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Node is a broker's permanent name (--node-name, key nodes/<name>). It is the
// identity of a broker; its addresses may change.
type Node string

// Incarnation names one run of one broker process: the CreateRevision of its
// registration key live/<name>. Leadership never outlives an incarnation.
type Incarnation int64

// TopicID is random and never 0. A topic that was deleted and made again under
// the same name has another TopicID. It is written as 16 hex digits.
type TopicID uint64

// StoreID names the acknowledged bytes of one partition on one disk. It is
// random, never 0, and changes only when acknowledged bytes are missing or
// doubtful (DESIGN.md 4.1).
type StoreID uint64

// Epoch numbers the leaderships of a partition; the first leader has 1, and 0
// means "none yet".
type Epoch uint64

// Offset counts the bytes of a partition's batches from its beginning. File
// headers are not counted.
type Offset int64

// Sequence counts the messages of a partition from 0. Control batches take no
// sequence.
type Sequence uint64

// Partition names one partition of one topic, cluster-wide.
type Partition struct {
	Topic  TopicID
	Number uint16
}

// Position is an end: the next free place after everything before it.
type Position struct {
	Offset   Offset
	Sequence Sequence
}

// Member is one replica that may be in the in-sync set: a node together with
// the store it holds. A node that came back without its data is another member.
type Member struct {
	Node  Node    `json:"node"`
	Store StoreID `json:"store"`
}

// RequestID names one put of one edge: {edge incarnation, counter}. The zero
// value asks for no recognition of repeats.
type RequestID struct{ Producer, N uint64 }

// IsZero reports whether the put carries no request id.
func (r RequestID) IsZero() bool { return r == RequestID{} }

// String gives the 16 hex digits that name the topic in JSON, keys and paths.
func (t TopicID) String() string { return fmt.Sprintf("%016x", uint64(t)) }

// MarshalText writes 16 hex digits.
func (t TopicID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *TopicID) UnmarshalText(b []byte) error {
	n, err := parseHex(b)
	*t = TopicID(n)
	return err
}

// String gives 16 hex digits.
func (s StoreID) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// MarshalText writes 16 hex digits: JSON numbers lose bits above 2^53.
func (s StoreID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *StoreID) UnmarshalText(b []byte) error {
	n, err := parseHex(b)
	*s = StoreID(n)
	return err
}

func parseHex(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("ident: %q is not a hexadecimal id: %w", b, err)
	}
	return n, nil
}

// String gives "<topic id>/<number>".
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// NewTopicID draws a random id that is not 0.
func NewTopicID() TopicID { return TopicID(randomID()) }

// NewStoreID draws a random id that is not 0.
func NewStoreID() StoreID { return StoreID(randomID()) }

func randomID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}
