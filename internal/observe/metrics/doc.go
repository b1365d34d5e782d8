// Package metrics defines the broker's Prometheus metrics: the duration of each stage of a put and of a delivery, the
// outcomes of puts, the events of replicas, and the state of topics, channels, partitions, disks and connections.
//
// It measures nothing itself. Events are reported to a Recorder. States (depths, lags, fill levels) are read at each scrape, so
// they cost nothing in between.
//
// All metrics are rows of one table (table.go), from which docs/metrics.md is generated. Any other metric cannot be registered.
//
// # Invariants
//
//  1. A nil *Recorder is a Recorder that does nothing.
//  2. Recording allocates nothing, takes no lock that a scrape holds for long, and never blocks.
//  3. The number of series is bounded: topics, channels and partitions beyond a limit are summed under one name or left out,
//     brokers are those of the cluster, and every other label has a fixed set of values.
//  4. A counter (suffix _total) counts the work of this process: it is reset only when the process restarts. The state
//     of the cluster is a gauge.
//
// The package starts no goroutine.
package metrics
