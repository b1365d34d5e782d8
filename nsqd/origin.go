package nsqd

import (
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/api"
)

// StartIndex finds a place by its time; a partition's commit log is one.
type StartIndex interface {
	AtTime(ms int64) (commitlog.Record, bool)
}

// CheckStart refuses a place before any leader is asked: one that no leader would understand, and a
// time in the future. Errors wrap api.ErrInvalid.
func CheckStart(from string) (api.Place, error) {
	p, err := api.ParsePlace(from)
	if err == nil {
		err = p.ToCome(time.Now())
	}
	return p, err
}

// StartOptions are those of a channel that begins at a place of one partition. A place beyond the end is the
// end. "" is the place by the rules: the first channel of a topic begins with what the topic kept, any
// other at the end.
func StartOptions(from string, first bool, index StartIndex) (o ChannelOptions, err error) {
	p, err := api.ParsePlace(from)
	if err != nil {
		return o, err
	}
	switch p.Kind {
	case api.PlaceByRule:
		if first {
			o.Origin = FromBacklog
		}
	case api.PlaceEarliest:
		o.Origin = FromEarliest
	case api.PlaceSequence:
		o.Origin, o.Sequence = FromSequence, p.Sequence
	case api.PlaceTime:
		if r, ok := index.AtTime(p.Time.UnixMilli()); ok {
			o.Origin, o.Sequence = FromSequence, r.First
		}
	}
	return o, nil
}
