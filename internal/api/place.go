package api

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Places is the help of an argument that ParsePlace reads.
const Places = "earliest, latest, a sequence, or a time: RFC 3339, or a Unix time in ns"

// PlaceKind is the form of a place.
type PlaceKind int

// The kinds of places.
const (
	PlaceByRule   PlaceKind = iota // "": the rules of a new channel
	PlaceEarliest                  // "earliest"
	PlaceLatest                    // "latest"
	PlaceSequence
	PlaceTime
)

// Place is a position in a log as clients and operators name it: where a channel begins or moves to, or a reader
// begins.
type Place struct {
	Kind     PlaceKind
	Sequence ident.Sequence // of PlaceSequence
	Time     time.Time      // of PlaceTime
}

// leastUnixNS separates the two meanings of a number: from here on it is a time in ns. The number is March 1973 in ns.
// Present times in other units are below it: they are sequences beyond the end.
const leastUnixNS = 100_000_000_000_000_000

// ParsePlace reads a place. Errors wrap ErrInvalid.
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

// ToCome returns an error if the place is a time in the future, probably a mistyped one: the channel would skip all
// messages. Errors wrap ErrInvalid.
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
