// Package origin finds the place where a channel begins, or moves to, in a partition: edge.Place as a
// position of its log.
package origin

import (
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd"
)

// Index finds a place by its time; a partition's commit log is one.
type Index interface {
	AtTime(ms int64) (commitlog.Record, bool)
}

// Check refuses a place before any leader is asked: one that no leader would understand, and a
// time in the future. Errors wrap edge.ErrInvalid.
func Check(from string) (edge.Place, error) {
	p, err := edge.ParsePlace(from)
	if err == nil {
		err = p.ToCome(time.Now())
	}
	return p, err
}

// Options are those of a channel that begins at a place of one partition. A place beyond the end is the
// end. "" is the place by the rules: the first channel of a topic begins with what the topic kept, any
// other at the end.
func Options(from string, first bool, index Index) (o nsqd.ChannelOptions, err error) {
	p, err := edge.ParsePlace(from)
	if err != nil {
		return o, err
	}
	switch p.Kind {
	case edge.PlaceByRule:
		if first {
			o.Origin = nsqd.FromBacklog
		}
	case edge.PlaceEarliest:
		o.Origin = nsqd.FromEarliest
	case edge.PlaceSequence:
		o.Origin, o.Sequence = nsqd.FromSequence, p.Sequence
	case edge.PlaceTime:
		if r, ok := index.AtTime(p.Time.UnixMilli()); ok {
			o.Origin, o.Sequence = nsqd.FromSequence, r.First
		}
	}
	return o, nil
}
