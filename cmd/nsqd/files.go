package main

import (
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
