package api

import (
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The form of message ids: an id is 64 bits in 16 hexadecimal digits:
//
//	bits 63–52 topic nonce: the low 12 bits of the topic id
//	bits 51–42 partition
//	bits 41–0  sequence
//
// The id is the same on every replica. A recreated topic has another nonce, so a late finish cannot affect its
// messages.

const (
	sequenceBits  = ident.SequenceBits
	partitionBits = 10
	nonceBits     = 12

	// MaxPartitions is the number of partitions of one topic that message ids can name.
	MaxPartitions = 1 << partitionBits
)

const hexDigits = "0123456789abcdef"

// MessagePlace is the content of a message id, which belongs to a topic only if Nonce is NonceOf(topic).
type MessagePlace struct {
	Nonce     uint16
	Partition uint16
	Sequence  ident.Sequence
}

// NonceOf returns the 12 bits of the topic id that are part of its message ids.
func NonceOf(t ident.TopicID) uint16 { return uint16(t) & (1<<nonceBits - 1) }

// MessageIDOf returns the id of the message at seq of partition p.
func MessageIDOf(p ident.Partition, seq ident.Sequence) MessageID {
	n := uint64(NonceOf(p.Topic))<<(partitionBits+sequenceBits) |
		uint64(p.Number&(MaxPartitions-1))<<sequenceBits |
		uint64(seq&(ident.MaxSequence-1))
	var id MessageID
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = hexDigits[n&15]
		n >>= 4
	}
	return id
}

// ParseMessageID reads an id; false: it is not 16 lower-case hexadecimal digits.
func ParseMessageID(id MessageID) (MessagePlace, bool) {
	var n uint64
	for _, c := range id {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return MessagePlace{}, false
		}
	}
	return MessagePlace{
		Nonce:     uint16(n >> (partitionBits + sequenceBits)),
		Partition: uint16(n >> sequenceBits & (MaxPartitions - 1)),
		Sequence:  ident.Sequence(n & uint64(ident.MaxSequence-1)),
	}, true
}
