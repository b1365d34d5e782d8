package main

import (
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// The parts of the limit of open files.
const (
	storeFilesMax = store.DefaultOpenFiles
	// etcd's files, journal, checkpoints, and the connections that this broker makes: to each other one, some eight of
	// etcd and one of RPC
	ownFilesMin = 64
	ownFilesMax = 512
	// The part of the ports for other brokers is at least 32 handshakes at the RPC port, and at each of the two of etcd
	// 16 handshakes and 32 connections, which take three files each.
	rpcWaitingMin   = 32
	etcdWaitingMin  = 16
	etcdAdmittedMin = 32
	peerFilesMin    = rpcWaitingMin + 2*(etcdWaitingMin+3*etcdAdmittedMin)
	peerFilesMax    = 1536
	filesMax        = 1 << 24 // a higher limit counts as none
	// rpcConnections is the limit for brokers that have proved to be one: each has a single connection to this one.
	rpcConnections = 1024
)

// files is the limit of open files for each part of the broker. A refused client connects to another broker or retries;
// the store and the embedded etcd would have to stop. So there are fewer connections than files.
type files struct {
	store, tcp, http int

	rpc, etcd peertls.Limits
}

// ownFiles is the part of the limit for files that no other process makes this one open.
func ownFiles(limit int) int { return min(max(limit/16, ownFilesMin), ownFilesMax) }

// divideFiles divides the limit. HTTP has its own part, so that the probes of a supervisor are answered when consumers
// use all connections, and the ports for other brokers have theirs, so that a flood of one port takes the files of no
// other.
func divideFiles(limit uint64) files {
	n := int(min(limit, filesMax))
	ours := min(n/8, storeFilesMax)
	peers := min(max(n/8, min(n/4, peerFilesMin)), peerFilesMax)
	clients := n - ours - ownFiles(n) - peers
	http := max(1, clients/4)
	share := func(of int) int { return max(1, of*peers/peerFilesMin) }
	return files{
		store: ours, tcp: max(1, clients-http), http: http,
		rpc:  peertls.Limits{Admitted: rpcConnections, Waiting: share(rpcWaitingMin)},
		etcd: peertls.Limits{Admitted: max(etcdAdmittedMin, share(etcdAdmittedMin)), Waiting: share(etcdWaitingMin)},
	}
}

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

// least returns the smaller of two limits, where 0 means none.
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
