package coordinator

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// report adds the metrics that are read at each scrape. Its functions run on the scrape's goroutine.
func (b *Broker) report() {
	m := b.o.Metrics
	m.Queues(b.Inspector.TopicMetrics)
	b.reportReplication()
	m.Gauge("metadata_watch_delay_seconds", func() float64 { return b.delayed.delay().Seconds() })
	m.Gauge("ready", func() float64 { return one(b.Directory.Ready() == nil) })
	m.Source([]string{
		"cluster_brokers", "cluster_brokers_registered", "cluster_partitions", "cluster_partitions_leaderless",
		"cluster_partitions_under_replicated", "cluster_controller", "cluster_feature_level",
	}, func(emit metrics.Emit) {
		c := b.catalog.Census()
		emit("cluster_brokers", float64(c.Brokers))
		emit("cluster_brokers_registered", float64(c.Registered))
		emit("cluster_partitions", float64(c.Partitions))
		emit("cluster_partitions_leaderless", float64(c.Leaderless))
		emit("cluster_partitions_under_replicated", float64(c.UnderReplicated))
		emit("cluster_feature_level", float64(b.catalog.Cluster().Level))
		if n := b.catalog.Controller(); n != "" {
			emit("cluster_controller", 1, string(n))
		}
	})
	m.Source([]string{
		"trash_bytes", "disk_free_bytes", "disk_data_bytes", "disk_reserve_bytes", "disk_reserve_reached", "partitions_lacking_space",
	}, func(emit metrics.Emit) {
		emit("trash_bytes", float64(b.work.Space.TrashBytes()))
		disk := b.Inspector.Disk()
		if disk.FreeKnown {
			emit("disk_free_bytes", float64(disk.FreeBytes))
		}
		emit("disk_data_bytes", float64(disk.DataBytes))
		emit("disk_reserve_bytes", float64(b.o.Maintenance.MinFreeBytes))
		emit("disk_reserve_reached", one(b.work.Space.Low(b.self)))
		emit("partitions_lacking_space", float64(b.work.Space.Lacking()))
	})
	m.Source([]string{
		"rpc_up", "rpc_queue_bytes", "rpc_sent_bytes_total", "rpc_received_bytes_total", "rpc_frames_refused_total",
		"rpc_connections", "rpc_handshakes", "rpc_refused_connections_total", "rpc_corrupt_connections_total",
	}, func(emit metrics.Emit) {
		for _, p := range b.rpc.Traffic() {
			n := string(p.Node)
			emit("rpc_up", one(p.Up), n)
			emit("rpc_queue_bytes", float64(p.Queued), n)
			emit("rpc_sent_bytes_total", float64(p.Sent), n)
			emit("rpc_received_bytes_total", float64(p.Received), n)
		}
		c, dropped := b.rpc.Counters(), uint64(0)
		for _, d := range c.Dropped {
			dropped += d
		}
		emit("rpc_frames_refused_total", float64(dropped))
		emit("rpc_connections", float64(c.Accepted.Admitted))
		emit("rpc_handshakes", float64(c.Accepted.Waiting))
		emit("rpc_refused_connections_total", float64(c.Accepted.Displaced+c.Accepted.Refused))
		emit("rpc_corrupt_connections_total", float64(c.Corrupt))
	})
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// sameScrape is how long a result is shared by the collectors of one scrape.
const sameScrape = 50 * time.Millisecond

// reportReplication shares one examination of all partitions between two collectors.
func (b *Broker) reportReplication() {
	var mu sync.Mutex
	var last query.Replication
	var at time.Time
	read := func() query.Replication {
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() || time.Since(at) > sameScrape {
			last, at = b.Inspector.Replication(), time.Now()
		}
		return last
	}
	b.o.Metrics.Partitions(func() []metrics.Partition { return read().Partitions })
	b.o.Metrics.Source([]string{
		"replicas", "partitions_led", "partitions_under_replicated", "partitions_below_min_in_sync", "partitions_single_copy",
		"puts_pending_bytes", "follower_lag_bytes", "follower_lag_seconds",
	}, func(emit metrics.Emit) {
		r := read()
		emit("replicas", float64(r.Hosted))
		emit("partitions_led", float64(r.Led))
		emit("partitions_under_replicated", float64(r.UnderReplicated))
		emit("partitions_below_min_in_sync", float64(r.BelowMin))
		emit("partitions_single_copy", float64(r.SingleCopy))
		emit("puts_pending_bytes", float64(r.PendingBytes))
		for n, bytes := range r.LagBytes {
			emit("follower_lag_bytes", float64(bytes), string(n))
			emit("follower_lag_seconds", r.LagTime[n].Seconds(), string(n))
		}
	})
}
