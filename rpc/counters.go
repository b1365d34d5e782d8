package rpc

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// Counters of a Transport since it was made; the arrays are indexed by Class.
type Counters struct {
	Sent     [classes]uint64 // frames that Send took
	Dropped  [classes]uint64 // frames that Send refused
	Connects uint64          // connections dialled with success
	Corrupt  uint64          // connections closed because of a checksum

	Accepted peertls.Counts // connections that others have made
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

// traffic counts the bytes of one peer's connections.
type traffic struct{ sent, received atomic.Uint64 }

// peerTraffic is the traffic with one peer.
type peerTraffic struct {
	Node           ident.Node
	Up             bool
	Queued         int    // bytes in the send queue
	Sent, Received uint64 // bytes since the Transport was made
}

// Traffic lists the peers of the address book, sorted. It takes no lock that a Handler may hold.
func (t *Transport) Traffic() []peerTraffic {
	book := *t.peers.Load()
	out := make([]peerTraffic, 0, len(book))
	for n, p := range book {
		row := peerTraffic{Node: n, Up: p.isUp.Load(), Sent: p.traffic.sent.Load(), Received: p.traffic.received.Load()}
		if c := p.sender.Load(); c != nil {
			row.Queued = c.out.queuedBytes()
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b peerTraffic) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// queuedBytes is the number of bytes in the queues.
func (o *outbox) queuedBytes() (bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.mu.queued {
		bytes += n
	}
	return bytes
}
