// Package origin reads the place where a channel begins, or moves to: earliest, latest, a
// time or a sequence, as clients and operators name it.
package origin

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// earliestTimeNS separates the two numbers that a place may be: a sequence, or a time
// since 1970 in nanoseconds (this one is in January 1970 + 11 days).
const earliestTimeNS = 1_000_000_000_000_000

// Index finds a place by its time; a partition's commit log is one.
type Index interface {
	AtTime(ms int64) (commitlog.Record, bool)
}

// Check refuses a place that no leader would understand, before any leader is asked:
// edge.ErrInvalid.
func Check(from string) error {
	switch from {
	case "", "latest", "earliest":
		return nil
	}
	_, err := parse(from)
	return err
}

// parse reads a time (RFC 3339, or unix ns) or a sequence.
func parse(from string) (uint64, error) {
	if at, err := time.Parse(time.RFC3339Nano, from); err == nil && at.UnixNano() >= earliestTimeNS {
		return uint64(at.UnixNano()), nil
	}
	n, err := strconv.ParseUint(from, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not earliest, latest, a time or a sequence", edge.ErrInvalid, from)
	}
	return n, nil
}

// Options are those of a channel that begins at a place of one partition. "" is the place
// by the rules: the first channel of a topic begins with what the topic kept, any other at
// the end.
func Options(from string, first bool, index Index) (o nsqd.ChannelOptions, err error) {
	switch from {
	case "":
		if first {
			o.Origin = nsqd.FromBacklog
		}
		return o, nil
	case "latest":
		return o, nil
	case "earliest":
		o.Origin = nsqd.FromEarliest
		return o, nil
	}
	n, err := parse(from)
	if err != nil {
		return o, err
	}
	o.Origin, o.Sequence = nsqd.FromSequence, ident.Sequence(n)
	if n < earliestTimeNS {
		return o, nil
	}
	if r, ok := index.AtTime(int64(n) / 1e6); ok {
		o.Sequence = r.First
		return o, nil
	}
	o.Origin = nsqd.FromLatest
	return o, nil
}
