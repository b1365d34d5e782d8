package main

import "github.com/lockstepmq/lockstep/internal/store"

// Shares of the files that the process may have open.
const (
	storeFilesMax  = store.DefaultOpenFiles
	brokerFilesMin = 64 // etcd, journal, checkpoints, other brokers
	brokerFilesMax = 1536
	filesMax       = 1 << 24 // more is no limit
)

// files is who may have how many files open. A client that is refused one goes
// elsewhere or tries again; the store and the embedded etcd must stop. So there
// are fewer seats for clients than files.
type files struct{ store, tcp, http int }

// shareFiles divides them. HTTP has seats of its own, so that the probes of a
// supervisor are answered when consumers have taken all of theirs.
func shareFiles(limit uint64) files {
	n := int(min(limit, filesMax))
	ours := min(n/8, storeFilesMax)
	clients := n - ours - min(max(n/8, brokerFilesMin), brokerFilesMax)
	http := max(1, clients/4)
	return files{store: ours, tcp: max(1, clients-http), http: http}
}
