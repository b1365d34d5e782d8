package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// A message id is 64 bits in 16 hexadecimal digits:
//
//	bits 63–52 topic nonce: the low 12 bits of the topic id
//	bits 51–42 partition
//	bits 41–0  sequence
//
// It is the same on every replica, and another one after the topic was deleted
// and made again, so that a late finish does not hit a stranger.
const (
	sequenceBits  = 42
	partitionBits = 10
	nonceBits     = 12

	// MaxPartitions is how many partitions of one topic message ids can name.
	MaxPartitions = 1 << partitionBits
	// MaxSequence is the first sequence that message ids cannot name.
	MaxSequence ident.Sequence = 1 << sequenceBits
)

const hexDigits = "0123456789abcdef"

// Place is what a message id says: where the message lies. Nonce must equal
// Nonce(topic) for the id to be of that topic.
type Place struct {
	Nonce     uint16
	Partition uint16
	Sequence  ident.Sequence
}

// Nonce gives the 12 bits of the topic id that its message ids carry.
func Nonce(t ident.TopicID) uint16 { return uint16(t) & (1<<nonceBits - 1) }

// ID makes the id of the message at seq of partition p.
func ID(p ident.Partition, seq ident.Sequence) edge.MessageID {
	n := uint64(Nonce(p.Topic))<<(partitionBits+sequenceBits) |
		uint64(p.Number&(MaxPartitions-1))<<sequenceBits |
		uint64(seq&(MaxSequence-1))
	var id edge.MessageID
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = hexDigits[n&15]
		n >>= 4
	}
	return id
}

// ParseID reads an id. False: it is not 16 lower-case hexadecimal digits, so no
// message has it.
func ParseID(id edge.MessageID) (Place, bool) {
	var n uint64
	for _, c := range id {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return Place{}, false
		}
	}
	return Place{
		Nonce:     uint16(n >> (partitionBits + sequenceBits)),
		Partition: uint16(n >> sequenceBits & (MaxPartitions - 1)),
		Sequence:  ident.Sequence(n & uint64(MaxSequence-1)),
	}, true
}
