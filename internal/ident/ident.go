// Package ident defines the identifiers that all layers share: nodes and their incarnations, topics, partitions,
// stores, epochs and positions in a log. They are distinct types, so that the compiler refuses an offset in place of a
// sequence.
package ident

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// Node is a broker's permanent name (--node-name, key nodes/<name>). The broker's addresses may change.
type Node string

// Incarnation names one run of one broker process: the CreateRevision of its registration key
// live/<name>. Leadership never outlives an incarnation.
type Incarnation int64

// TopicID is a random number, never 0. A topic that is deleted and created again under the same
// name gets another TopicID. It is written as 16 hex digits.
type TopicID uint64

// StoreID names the acknowledged bytes of one partition on one disk. It is random and never 0. It
// changes only when acknowledged bytes are missing or doubtful (coordinator/replica/DESIGN.md, ID-3).
type StoreID uint64

// Epoch numbers the leaderships of a partition from 1; 0 means that there was no leader yet.
type Epoch uint64

// Offset counts the bytes of a partition's batches from its beginning.
type Offset int64

// Sequence counts the messages of a partition from 0. Control batches take no sequence.
type Sequence uint64

const (
	// SequenceBits is the number of bits of a sequence in message ids and in the state of channels.
	SequenceBits = 42
	// MaxSequence is the first sequence that message ids cannot name.
	MaxSequence Sequence = 1 << SequenceBits
)

// Partition names one partition of one topic, cluster-wide.
type Partition struct {
	Topic  TopicID
	Number uint16
}

// Compare orders partitions by topic id, then by number.
func (p Partition) Compare(q Partition) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.Number, q.Number))
}

// Position is a position in a log between two batches: the offset and the sequence of the next batch.
type Position struct {
	Offset   Offset
	Sequence Sequence
}

// Member is one replica that may be in the in-sync set: a node together with its store. A node that returns without its
// data is a different member.
type Member struct {
	Node  Node    `json:"node"`
	Store StoreID `json:"store"`
}

// HasMember reports whether an in-sync set has a replica on a broker.
func HasMember(isr []Member, n Node) bool {
	return slices.ContainsFunc(isr, func(m Member) bool { return m.Node == n })
}

// RequestID names one put of one edge: the incarnation of the edge and a counter. The zero value disables the
// recognition of repeats.
type RequestID struct{ Producer, N uint64 }

// IsZero reports whether the put has no request id.
func (r RequestID) IsZero() bool { return r == RequestID{} }

// String returns the 16 hex digits that name the topic in JSON, keys and paths.
func (t TopicID) String() string { return fmt.Sprintf("%016x", uint64(t)) }

// MarshalText returns 16 hex digits.
func (t TopicID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the form of MarshalText.
func (t *TopicID) UnmarshalText(b []byte) error {
	n, err := parseHex(b)
	*t = TopicID(n)
	return err
}

// String returns 16 hex digits.
func (s StoreID) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// MarshalText returns 16 hex digits: JSON numbers lose bits above 2^53.
func (s StoreID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the form of MarshalText.
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

// String returns "<topic id>/<number>".
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// NewTopicID returns a random id that is not 0.
func NewTopicID() TopicID { return TopicID(randomID()) }

// NewStoreID returns a random id that is not 0.
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
