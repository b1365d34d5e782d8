package msgid

import (
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	sequenceBits  = ident.SequenceBits
	partitionBits = 10
	nonceBits     = 12

	// MaxPartitions is the number of partitions of one topic that message ids can name.
	MaxPartitions = 1 << partitionBits
)

const hexDigits = "0123456789abcdef"

// Place is the content of a message id: the place of the message. The id belongs to a topic only if
// Nonce equals Nonce(topic).
type Place struct {
	Nonce     uint16
	Partition uint16
	Sequence  ident.Sequence
}

// Nonce returns the 12 bits of the topic id that are part of its message ids.
func Nonce(t ident.TopicID) uint16 { return uint16(t) & (1<<nonceBits - 1) }

// Of returns the id of the message at seq of partition p.
func Of(p ident.Partition, seq ident.Sequence) edge.MessageID {
	n := uint64(Nonce(p.Topic))<<(partitionBits+sequenceBits) |
		uint64(p.Number&(MaxPartitions-1))<<sequenceBits |
		uint64(seq&(ident.MaxSequence-1))
	var id edge.MessageID
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = hexDigits[n&15]
		n >>= 4
	}
	return id
}

// Parse reads an id. False: it is not 16 lower-case hexadecimal digits, so no message has it.
func Parse(id edge.MessageID) (Place, bool) {
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
		Sequence:  ident.Sequence(n & uint64(ident.MaxSequence-1)),
	}, true
}
