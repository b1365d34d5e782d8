// Package powercut takes the power away from three brokers at once.
//
// Three brokers replicate some partitions through the real machine
// (coordinator/replica) on the real storage (nsqd/store, with its journal's
// goroutines) on three file systems in memory that know what a power cut leaves
// (vfstest.Memory). Network, metadata, clocks and clients are small models; a random
// history of puts, changes of channels, elections, rollbacks, truncations,
// checkpoints, retention, kills and failing syncs drives them. At every sync of
// any of the three disks the power of all three fails: of what is not synced
// some sectors survive. Then three new brokers start on what was left.
//
// It does not test the wire, the gateways or etcd: the metadata survive whole.
//
// # What is checked on what a cut left
//
//  1. Each store opens, with the store ids it had: a power cut is not corruption.
//  2. A log is one chain of whole batches that a client sent, from its start to
//     its end; nothing damaged is served.
//  3. Each in-sync member holds every put that was answered, at the sequence of
//     the answer, and every confirmed change of the channels; only retention may
//     have taken puts away.
//  4. No store forgets an epoch in which it answered, nor (strictly) an end that
//     it acknowledged and did not cut since.
//  5. Leaders are elected; all replicas join and hold the same bytes; what was
//     answered is committed, a repeat of it is recognised, what was reported
//     rolled back is nowhere, nothing is there twice, and new puts commit.
package powercut

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
