package api

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Places is the help text of an argument that ParsePlace parses.
const Places = "earliest, latest, a sequence, or a time: RFC 3339, or a Unix time in ns"

type placeKind int

// The kinds of Place.
const (
	PlaceByRule   placeKind = iota // "": the rules of a new channel
	PlaceEarliest                  // "earliest"
	PlaceLatest                    // "latest"
	PlaceSequence
	PlaceTime
)

// Place is a position in a log as clients and operators name it: where a channel begins or moves to, or a reader
// begins.
type Place struct {
	Kind     placeKind
	Sequence ident.Sequence // of PlaceSequence
	Time     time.Time      // of PlaceTime
}

// leastUnixNS separates the two meanings of a number: from this value on a number is a time in ns. As a time in ns the
// value is March 1973. Current times in coarser units are below it, so they are read as sequences, which are beyond the
// end.
const leastUnixNS = 100_000_000_000_000_000

// ParsePlace parses a Place. Errors wrap ErrInvalid.
func ParsePlace(text string) (Place, error) {
	switch text {
	case "":
		return Place{}, nil
	case "earliest":
		return Place{Kind: PlaceEarliest}, nil
	case "latest":
		return Place{Kind: PlaceLatest}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return Place{Kind: PlaceTime, Time: at}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 0:
		return Place{}, fmt.Errorf("%w: %q is not earliest, latest, a time or a sequence", outcome.ErrInvalid, text)
	case n >= leastUnixNS:
		return Place{Kind: PlaceTime, Time: time.Unix(0, n)}, nil
	}
	return Place{Kind: PlaceSequence, Sequence: ident.Sequence(n)}, nil
}

// clockSkew is how far the clock of a client may be ahead of the broker's.
const clockSkew = time.Minute

// ToCome returns an error if the place is a time in the future. Such a time is probably mistyped, and the channel would
// skip all messages. Errors wrap ErrInvalid.
func (p Place) ToCome(now time.Time) error {
	if p.Kind != PlaceTime || !p.Time.After(now.Add(clockSkew)) {
		return nil
	}
	return fmt.Errorf("%w: %s is in the future: this broker's clock says %s; the end is latest",
		outcome.ErrInvalid, p.Time.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))
}

// Beyond returns an error if the place is a sequence beyond the end of a partition, with the time that was probably
// meant. Errors wrap ErrInvalid.
func (p Place) Beyond(partition uint16, end ident.Sequence) error {
	if p.Kind != PlaceSequence || p.Sequence <= end {
		return nil
	}
	meant := "the end is latest"
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		perSecond := int64(time.Second / unit)
		n := int64(p.Sequence)
		at := time.Unix(n/perSecond, n%perSecond*int64(unit)).UTC()
		if y := at.Year(); y >= 2000 && y < 2100 {
			meant = fmt.Sprintf("for a time write %s or %d (Unix time in ns)", at.Format(time.RFC3339Nano), at.UnixNano())
		}
	}
	return fmt.Errorf("%w: %d is a sequence beyond the end of partition %d (%d); %s", outcome.ErrInvalid, p.Sequence, partition, end, meant)
}

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

// messagePlace is the content of a message id, which belongs to a topic only if Nonce is NonceOf(topic).
type messagePlace struct {
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
func ParseMessageID(id MessageID) (messagePlace, bool) {
	var n uint64
	for _, c := range id {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return messagePlace{}, false
		}
	}
	return messagePlace{
		Nonce:     uint16(n >> (partitionBits + sequenceBits)),
		Partition: uint16(n >> sequenceBits & (MaxPartitions - 1)),
		Sequence:  ident.Sequence(n & uint64(ident.MaxSequence-1)),
	}, true
}
