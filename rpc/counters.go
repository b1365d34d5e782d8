package rpc

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/peerport"
)

// Counters of a Transport since it was made; the arrays are indexed by Class.
type Counters struct {
	Sent     [classes]uint64 // frames that Send took
	Dropped  [classes]uint64 // frames that Send refused
	Connects uint64          // connections dialled with success
	Corrupt  uint64          // connections closed because of a checksum

	Accepted peerport.Counts // connections that others have made
}

// counts is the source of Counters. Any goroutine adds.
type counts struct {
	sent, dropped [classes]atomic.Uint64
	connects      atomic.Uint64
	corrupt       atomic.Uint64
}

// Counters reads the counters. They are not read at one instant.
func (t *Transport) Counters() Counters {
	c := Counters{Connects: t.counts.connects.Load(), Corrupt: t.counts.corrupt.Load(), Accepted: t.gate.Counts()}
	for i := range classes {
		c.Sent[i], c.Dropped[i] = t.counts.sent[i].Load(), t.counts.dropped[i].Load()
	}
	return c
}
