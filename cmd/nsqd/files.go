package main

import "github.com/lockstepmq/lockstep/internal/store"

// The parts of the limit of open files.
const (
	storeFilesMax  = store.DefaultOpenFiles
	brokerFilesMin = 64 // etcd, journal, checkpoints, other brokers
	brokerFilesMax = 1536
	filesMax       = 1 << 24 // a higher limit counts as none
)

// files is the limit of open files for each part of the broker. A refused client connects to
// another broker or retries; the store and the embedded etcd would have to stop. So there are
// fewer connections than files.
type files struct{ store, tcp, http int }

// divideFiles divides the limit. HTTP has its own part, so that the probes of a supervisor are
// answered when consumers use all connections.
func divideFiles(limit uint64) files {
	n := int(min(limit, filesMax))
	ours := min(n/8, storeFilesMax)
	clients := n - ours - min(max(n/8, brokerFilesMin), brokerFilesMax)
	http := max(1, clients/4)
	return files{store: ours, tcp: max(1, clients-http), http: http}
}
