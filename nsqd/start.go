package nsqd

import (
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// origin is the place at which a channel begins.
type origin uint8

// The origins of a channel.
const (
	// FromLatest is the committed end: the channel gets new messages only.
	FromLatest origin = iota
	// FromBacklog is the first message that the topic kept for its first channel.
	FromBacklog
	// FromEarliest is the first message that the log still has.
	FromEarliest
	// FromSequence is ChannelOptions.Sequence, or the start of the log if that is later.
	FromSequence
)

// ChannelOptions describe a new channel.
type ChannelOptions struct {
	Origin   origin
	Sequence ident.Sequence // with FromSequence
	// ID distinguishes the channel from earlier and later ones of the same name. 0: ephemeral.
	ID uint64
	// Ordered channels have one message in flight, and deliver the next one when its finish is on all in-sync
	// replicas. A message that was published with a delay comes when it is due. No message overtakes a failed one.
	Ordered bool
}

// CheckStart parses a place before any leader is asked. It refuses a time in the future. Errors wrap ErrInvalid.
func CheckStart(from string) (api.Place, error) {
	p, err := api.ParsePlace(from)
	if err == nil {
		err = p.ToCome(time.Now())
	}
	return p, err
}

// StartOptions returns the options of a channel that begins at the position from in one partition, or at the end if from is
// beyond it. If from is "", the first channel of a topic begins with the messages that the topic kept, any other at the end.
func StartOptions(from string, first bool, index *commitlog.Log) (o ChannelOptions, err error) {
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
