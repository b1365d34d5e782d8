package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Subscriber is one consumer of one channel of one partition: a client's
// connection here, or a relay for another broker's clients. The exported fields
// are set before Attach and not changed afterwards.
type Subscriber struct {
	// Wake receives when Pull may find something. Attach makes one of capacity 1
	// if it is nil; several subscribers may share one.
	Wake chan struct{}
	// Lost is closed when the channel stops serving; Err says why. Attach makes
	// it if it is nil. It must not be shared.
	Lost chan struct{}
	// Client describes the connections behind it for statistics; nil = none. It
	// is called without locks, from any goroutine.
	Client func() []edge.ClientStats
	// MsgTimeoutMS is how long a delivery may stay unfinished; 0 = the default.
	MsgTimeoutMS int64
	// SampleRate: 0 = off; otherwise a message is kept if rand(0..99) <= rate and
	// is discarded for the whole channel if not (NSQ's rule).
	SampleRate int32
	// Direct: the client is connected here. Relayed subscribers come after it,
	// and learn of expired deliveries through Channel.TakenBack.
	Direct bool

	// Guarded by Channel.mu from Attach on.
	channel  *Channel
	err      error
	flights  *flight // in flight to it, linked
	inFlight int
	want     int  // unmet credit of its last Pull
	waiting  bool // in one of Channel.hungry
	offered  bool // woken, has not pulled since
	taken    []ident.Sequence
}

// wake signals without blocking: one pending signal is as good as ten.
func (s *Subscriber) wake() {
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}
