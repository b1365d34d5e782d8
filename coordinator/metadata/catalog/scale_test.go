package catalog

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// manyPartitions is what the first delivery of the watch says in a cluster of a
// hundred brokers whose topics have a hundred partitions with three replicas.
func manyPartitions(keys metadata.Keys, n int) metadata.Change {
	c := metadata.Change{Reset: true}
	add := func(key string, v any) {
		c.Puts = append(c.Puts, metadata.Entry{Key: key, Value: metadata.Encode(v), Create: 1, Mod: 1})
	}
	for i := range n {
		id := ident.Partition{Topic: ident.TopicID(1 + i/100), Number: uint16(i % 100)}
		if id.Number == 0 {
			add(keys.Topic(fmt.Sprint("topic-", id.Topic)), metadata.TopicState{
				V: metadata.Version, ID: id.Topic, Partitions: 100, ReplicationFactor: 3, MinInSync: 2, Durability: metadata.DurabilitySync})
		}
		s := metadata.PartitionState{V: metadata.Version, Epoch: 1, LeaderIncarnation: 1, MinInSync: 2, Durability: metadata.DurabilitySync}
		for k := range 3 {
			node := ident.Node(fmt.Sprintf("broker-%02d", (i+k)%100))
			s.Replicas = append(s.Replicas, node)
			s.ISR = append(s.ISR, ident.Member{Node: node, Store: 1})
		}
		s.Leader = s.Replicas[0]
		add(keys.Partition(id), s)
	}
	return c
}

// BenchmarkScaleCatalog reads the metadata of many partitions as every broker of
// the cluster does at its start, whether it has replicas of them or not.
func BenchmarkScaleCatalog(b *testing.B) {
	keys := metadata.Keys{Cluster: "c"}
	for _, n := range []int{10_000, 100_000} {
		change := manyPartitions(keys, n)
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			before, c := heapInUse(), (*Catalog)(nil)
			for b.Loop() {
				c = New(keys, logrus.StandardLogger())
				c.Apply(change)
			}
			took := b.Elapsed()
			walked, began := 0, time.Now()
			for _, p := range c.Partitions() { // as the controller does before it plans
				if _, ok := c.Partition(p); ok {
					walked++
				}
			}
			b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(n), "walk-ns/partition")
			require.Equal(b, n, walked)
			b.ReportMetric(float64(heapInUse()-before)/float64(n), "heap-B/partition")
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*n), "ns/partition")
			runtime.KeepAlive(c)
		})
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
