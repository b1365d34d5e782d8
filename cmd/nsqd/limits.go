package main

import (
	"github.com/lockstepmq/lockstep/internal/budget"
	"github.com/lockstepmq/lockstep/internal/config"
)

const (
	// spareSeats are the seats of probes at the HTTP ports: connections above the limits.
	spareSeats = 32
	// maxFarewells bounds the refused TCP clients that still read the reason.
	maxFarewells = 16
	// addressShare is the part of all connections that one address, or one user, may have: the
	// others are for others.
	addressShare = 0.9
)

// clientLimits are the connections of clients. 0: no limit.
type clientLimits struct {
	tcp, tcpPerAddress, perUser int
	http, httpPerAddress, spare int
	farewells                   int
}

// limitClients divides the files for clients. A limit in the settings that is above what the
// files leave is that.
func limitClients(f files, o config.Options) clientLimits {
	l := clientLimits{tcp: least(f.tcp, o.MaxConnections)}
	l.spare = min(spareSeats, f.http/4)
	l.farewells = min(maxFarewells, f.http/8)
	l.http = least(f.http-l.spare-l.farewells, o.MaxHTTPConnections)
	l.tcpPerAddress = share(l.tcp, o.MaxConnectionsPerAddress)
	l.httpPerAddress = share(l.http, o.MaxConnectionsPerAddress)
	l.perUser = share(l.tcp, o.MaxConnectionsPerUser)
	return l
}

// least returns the smaller one of two limits, where 0 is none.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// share returns the limit of one client: the given one, else addressShare of the limit of all.
func share(all, given int) int {
	if given > 0 {
		return given
	}
	if all == 0 {
		return 0
	}
	return max(1, int(float64(all)*addressShare))
}

// newMemory makes the budget for what clients make the broker hold: one body always fits.
func newMemory(o config.Options) *budget.Budget {
	return budget.New(max(o.MaxClientMemory, o.MaxBodySize, o.MaxMsgSize))
}
