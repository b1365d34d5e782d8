package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Places is the help of an argument that Place reads.
const Places = "earliest, latest, a sequence, or a time: RFC 3339, how long ago, such as 90m, or a Unix time in ns"

// Place reads a place of a log as brokers do, and also how long ago it is. It returns the text for a broker.
func Place(text string) (string, error) {
	if ago, err := time.ParseDuration(text); err == nil && text != "0" {
		at := time.Now().Add(-ago.Abs())
		if at.Year() < 2000 {
			return "", fmt.Errorf("%s is how long ago, in %d; a Unix time is written in ns, without a unit, or as RFC 3339", text, at.Year())
		}
		return strconv.FormatInt(at.UnixNano(), 10), nil
	}
	return text, nil
}

// Ends are those of the partitions that a command reads from a place.
type Ends struct {
	within bool
	beyond error
}

// Note adds the end of a partition.
func (e *Ends) Note(place string, partition int, end uint64) {
	p, _ := api.ParsePlace(place) // the broker has read it
	err := p.Beyond(uint16(partition), ident.Sequence(end))
	e.within = e.within || err == nil
	e.beyond = cmp.Or(e.beyond, err)
}

// Err is the error of a place beyond the ends of all partitions that were read. If only some partitions end before the
// place, nothing is skipped; but a command that reads nothing has not done what was asked.
func (e *Ends) Err() error {
	if e.within {
		return nil
	}
	return e.beyond
}
