package rpc

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Counters of a Transport since it was made; the arrays are indexed by Class.
type Counters struct {
	Sent     [classes]uint64 // frames that Send took
	Dropped  [classes]uint64 // frames that Send refused
	Connects uint64          // connections dialled with success
}

// counts is what Counters is read from. Any goroutine adds.
type counts struct {
	sent, dropped [classes]atomic.Uint64
	connects      atomic.Uint64
}

// Counters reads the counters. They are not read at one instant.
func (t *Transport) Counters() Counters {
	c := Counters{Connects: t.counts.connects.Load()}
	for i := range classes {
		c.Sent[i], c.Dropped[i] = t.counts.sent[i].Load(), t.counts.dropped[i].Load()
	}
	return c
}

// Queued gives the bytes of a class that wait to be written to a peer.
func (t *Transport) Queued(n ident.Node, c Class) int {
	if s := t.sender(n); s != nil && int(c) < classes {
		return s.out.waiting(c)
	}
	return 0
}
