package metadata_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/stretchr/testify/require"
)

const (
	scaleBrokers   = 100
	scaleElected   = 10_000 // partitions that get another leader at once
	scaleWatchers  = 10
	perTransaction = metadata.MaxTxn - 3 // as the brokers do it
)

// scalePartition is the state of a partition with three replicas.
func scalePartition(i int, epoch ident.Epoch) metadata.PartitionState {
	s := metadata.PartitionState{V: metadata.Version, Epoch: epoch, LeaderIncarnation: 1_234_567, MinInSync: 2, Durability: metadata.DurabilitySync}
	for k := range 3 {
		n := ident.Node(fmt.Sprintf("broker-%03d", (i+k)%scaleBrokers))
		s.Replicas = append(s.Replicas, n)
		s.ISR = append(s.ISR, ident.Member{Node: n, Store: ident.StoreID(0x9e3779b97f4a7c15 * uint64(i+k+1))})
	}
	s.Leader = s.Replicas[int(epoch)%3]
	return s
}

func scaleID(i int) ident.Partition {
	return ident.Partition{Topic: ident.TopicID(0x9e3779b97f4a7c15 * uint64(1+i/100)), Number: uint16(i % 100)}
}

// scaleWrite puts n partitions, as many in a transaction as an election does.
func scaleWrite(b *testing.B, s metadata.Store, keys metadata.Keys, n int, epoch ident.Epoch) (transactions, bytes int) {
	for first := 0; first < n; first += perTransaction {
		var puts []metadata.Put
		for i := first; i < min(first+perTransaction, n); i++ {
			p := metadata.Put{Key: keys.Partition(scaleID(i)), Value: metadata.Encode(scalePartition(i, epoch))}
			bytes += len(p.Key) + len(p.Value)
			puts = append(puts, p)
		}
		ok, _, err := s.Txn(b.Context(), nil, puts)
		require.NoError(b, err)
		require.True(b, ok)
		transactions++
	}
	return transactions, bytes
}

// BenchmarkScaleEtcd writes the keys of many partitions into an embedded etcd,
// lists them, and changes ten thousand while ten brokers watch: the size of
// a cluster's metadata, the bytes that a broker reads at its start, the cost of the loss of
// brokers. 10,000 partitions; 100,000 with LOCKSTEP_LONG=1. One member, one disk.
func BenchmarkScaleEtcd(b *testing.B) {
	n := 10_000
	if env.Long() {
		n = 100_000
	}
	keys := metadata.Keys{Cluster: "scale"}
	for range b.N {
		etcd := newEtcdBackend(b)
		s, err := metadata.DialEtcd(b.Context(), metadata.Config{Endpoints: etcd.server.Endpoints(), Namespace: "scale"})
		require.NoError(b, err)
		began := b.Elapsed()
		transactions, bytes := scaleWrite(b, s, keys, n, 1)
		report(b, began, transactions, "create-ms/txn")
		b.ReportMetric(float64(bytes)/float64(n), "B/key")
		b.ReportMetric(float64(onDisk(b, etcd.options.Dir, "db"))/float64(n), "db-B/key")

		began = b.Elapsed()
		list, _, err := s.List(b.Context(), keys.Partitions())
		require.NoError(b, err)
		require.Len(b, list, n)
		report(b, began, 1, "list-ms")

		seen := watchers(b, s, keys)
		began = b.Elapsed()
		changed := min(n, scaleElected)
		transactions, bytes = scaleWrite(b, s, keys, changed, 2)
		report(b, began, transactions, "elect-ms/txn")
		report(b, began, 1, "elect-ms")
		for range scaleWatchers * changed {
			<-seen
		}
		report(b, began, 1, "all-watchers-saw-ms")
		b.ReportMetric(float64(transactions), "elect-txns")
		b.ReportMetric(float64(bytes)/float64(changed), "watch-B/change")
		require.NoError(b, s.Close())
	}
}

func report(b *testing.B, began time.Duration, n int, unit string) {
	b.ReportMetric((b.Elapsed()-began).Seconds()*1e3/float64(n), unit)
}

// watchers starts watches that have seen the current state, and sends for each change
// after that. They end with the benchmark.
func watchers(b *testing.B, s metadata.Store, keys metadata.Keys) <-chan struct{} {
	seen := make(chan struct{}, scaleWatchers*scaleElected)
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	for range scaleWatchers {
		changes := s.Watch(ctx, keys.Root())
		require.True(b, (<-changes).Reset)
		go func() {
			for c := range changes {
				for range c.Puts {
					seen <- struct{}{}
				}
			}
		}()
	}
	return seen
}

// onDisk sums the sizes of the files of a name below a directory.
func onDisk(b *testing.B, dir, name string) (total int64) {
	require.NoError(b, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != name {
			return err
		}
		info, err := d.Info()
		total += info.Size()
		return err
	}))
	return total
}
