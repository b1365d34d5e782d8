package main

import (
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
)

const (
	// spareConnections is the number of HTTP connections above the limits that probes may use.
	spareConnections = 32
	// maxRefusals bounds the refused TCP clients that are still sent the reason.
	maxRefusals = 16
	// addressShare is the part of all connections that one address, or one user, may have.
	addressShare = 0.9
	// waitingShare is the part of all connections that may wait for their login, at least manyLogins of them if that is
	// not more than a half: so many clients may connect at the same moment, after a restart.
	waitingShare = 4
	manyLogins   = 256
)

// clientLimits are the connections of clients. 0: no limit.
type clientLimits struct {
	tcp, tcpPerAddress, perUser int
	http, httpPerAddress, spare int
	farewells                   int
	tcpWaiting, httpWaiting     int // before their login
}

// limitClients divides the files for clients. Limits in the settings can only lower what the files leave.
func limitClients(f files, o config.Options) clientLimits {
	l := clientLimits{tcp: least(f.tcp, o.MaxConnections)}
	l.spare = min(spareConnections, f.http/4)
	l.farewells = min(maxRefusals, f.http/8)
	l.http = least(f.http-l.spare-l.farewells, o.MaxHTTPConnections)
	l.tcpPerAddress = share(l.tcp, o.MaxConnectionsPerAddress)
	l.httpPerAddress = share(l.http, o.MaxConnectionsPerAddress)
	l.perUser = share(l.tcp, o.MaxConnectionsPerUser)
	l.tcpWaiting, l.httpWaiting = waiting(l.tcp), waiting(l.http)
	return l
}

// least returns the smaller one of two limits, where 0 means none.
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

// waiting returns the limit of connections before their login; 0: no limit.
func waiting(all int) int {
	if all == 0 {
		return 0
	}
	return max(1, all/waitingShare, min(manyLogins, all/2))
}

// newMemory returns the budget of --max-client-memory: one body always fits.
func newMemory(o config.Options) *limits.Budget {
	return limits.New(max(o.MaxClientMemory, o.MaxBodySize, o.MaxMsgSize))
}
