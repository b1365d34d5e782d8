package metrics

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

type kind string

// The kinds.
const (
	kindGauge     kind = "gauge"
	kindCounter   kind = "counter"
	kindHistogram kind = "histogram"
)

// Definition is one metric.
type definition struct {
	Name   string // without the namespace
	Kind   kind
	Labels []string
	Help   string // one or more complete sentences that are clear without context
}

// FullName is the name in /metrics.
func (d definition) FullName() string { return namespace + "_" + d.Name }

// section is a group of the table, as shown in docs/metrics.md.
type section struct {
	Title   string
	Metrics []definition
}

// Sections is the table of all metrics, in the order of docs/metrics.md.
func Sections() []section { return slices.Clone(table) }

var (
	byTopic     = []string{"topic"}
	byChannel   = []string{"topic", "channel"}
	byPartition = []string{"topic", "partition", "leader"}
	byNode      = []string{"node"}
)

var table = []section{
	{"Puts", []definition{
		{"puts_total", kindCounter, []string{"answer"}, "Puts of this broker's clients, by their answer after all retries: ok, in_doubt, and the definite refusals."},
		{"put_stage_seconds", kindHistogram, []string{"stage"}, "Time that a put spends in one stage at its leader: queue (waiting for the core loop), write (sealing and submitting to the journal), sync (until this broker's disk has it), replicate (until all in-sync replicas have it), commit (from its arrival at the leader to its answer)."},
		{"messages_put_total", kindCounter, nil, "Messages that this broker committed as the leader of their partitions."},
		{"bytes_put_total", kindCounter, nil, "Bytes of the bodies of the messages that this broker committed as the leader of their partitions."},
		{"puts_forwarded_total", kindCounter, nil, "Puts of this broker's clients that it forwarded to the broker that leads the partition. A retried put counts again."},
	}},
	{"Deliveries", []definition{
		{"messages_delivered_total", kindCounter, nil, "Messages written to clients of this broker."},
		{"messages_relayed_total", kindCounter, nil, "Messages that came from another broker, which leads their partition, for consumers of this broker."},
		{"delivery_seconds", kindHistogram, nil, "Time from pulling a burst of messages from a channel to the end of its write to the client."},
		{"message_wait_seconds", kindHistogram, byChannel, "Time from a put, or from the end of its delay, to the first delivery, for the first message of each burst to a client of this broker. The first 200 channels that are consumed at this broker have series of their own; the others are _other."},
	}},
	{"Topics and channels", []definition{
		{"topic_depth", kindGauge, byTopic, "Messages in the partitions led by this broker that no channel has received: of a topic without channels, or while the topic is paused."},
		{"topic_messages_total", kindCounter, byTopic, "Messages that this broker committed as the leader of partitions of the topic. The sum of the rates over all brokers is the rate of the topic, also across changes of leader."},
		{"topic_bytes_total", kindCounter, byTopic, "Bytes of the bodies of the messages that this broker committed as the leader of partitions of the topic."},
		{"channel_depth", kindGauge, byChannel, "Messages that wait for delivery in the partitions led by this broker: neither in flight, nor deferred, nor finished."},
		{"channel_in_flight", kindGauge, byChannel, "Messages that were delivered and not finished, requeued or timed out yet, in the partitions led by this broker."},
		{"channel_deferred", kindGauge, byChannel, "Messages that wait for the end of a delay, in the partitions led by this broker."},
		{"channel_lag_seconds", kindGauge, byChannel, "Age of the oldest message that the channel has neither finished nor deferred, or the time for which a consumer has held a message, in the partitions led by this broker; 0 if there is none. It grows while a consumer is stuck, and without any consumer."},
		{"channel_clients", kindGauge, byChannel, "Connected consumers. Each broker that leads a partition of the topic counts all of them, so the number is the largest value, not the sum."},
		{"channel_paused", kindGauge, byChannel, "1 if the channel is paused, so that it delivers nothing."},
		{"channel_requeued_total", kindCounter, byChannel, "Messages that consumers requeued (REQ) in partitions led by this broker."},
		{"channel_timed_out_total", kindCounter, byChannel, "Deliveries that were not answered within the message timeout, in partitions led by this broker."},
		{"channel_filtered_total", kindCounter, byChannel, "Messages that are not for the channel, because its filter rejected them or they are for another channel only, in partitions led by this broker: they are finished and were not delivered. No series while it is 0."},
		{"channel_expired_total", kindCounter, byChannel, "Messages that outlived their time to live in partitions led by this broker: they are finished and were not delivered, or not again. Those that had failed before go to the dead letters, if the channel has a topic for them. No series while it is 0."},
	}},
	{"Removed for idleness", []definition{
		{"idle_removed_total", kindCounter, []string{"kind"}, "Topics (topic: moved into the trash, idle_after) and channels (channel: deleted, channel_idle_after) that this broker, as the controller, removed because nothing used them."},
	}},
	{"Partitions led by this broker", []definition{
		{"replicas", kindGauge, nil, "Replicas of partitions on this broker."},
		{"partitions_led", kindGauge, nil, "Partitions that this broker leads."},
		{"partitions_under_replicated", kindGauge, nil, "Partitions led by this broker that have a replica that is not in sync."},
		{"partitions_below_min_in_sync", kindGauge, nil, "Partitions led by this broker with fewer answering in-sync replicas than the minimum: puts to them are refused."},
		{"partitions_lacking_space", kindGauge, nil, "Partitions led by this broker with fewer in-sync replicas above their disk reserve than the minimum: puts to them are refused."},
		{"partitions_single_copy", kindGauge, nil, "Partitions led by this broker that have several replicas, but no other in-sync replica that answers: acknowledged messages may be on this broker's disk alone."},
		{"puts_pending_bytes", kindGauge, nil, "Bytes of puts to partitions led by this broker that are not committed yet."},
		{"follower_lag_bytes", kindGauge, byNode, "Bytes that a replica on the named broker lacks, summed over the partitions led by this broker."},
		{"follower_lag_seconds", kindGauge, byNode, "How long a replica on the named broker has owed an acknowledgement, the longest over the partitions led by this broker; 0 if it owes none."},
		{"partition_epoch", kindGauge, byPartition, "Epoch of the partition: it rises with each election."},
		{"partition_replicas", kindGauge, byPartition, "Replicas of the partition."},
		{"partition_in_sync_replicas", kindGauge, byPartition, "Size of the partition's in-sync set."},
		{"partition_end_sequence", kindGauge, byPartition, "Messages committed in the partition since its creation, under all leaders."},
		{"partition_lag_bytes", kindGauge, byPartition, "Bytes that the slowest replica of the partition lacks."},
		{"partition_lag_seconds", kindGauge, byPartition, "How long the slowest replica of the partition has owed an acknowledgement; 0 if none does."},
		{"partitions_not_listed", kindGauge, nil, "Partitions led by this broker without series of their own, because of --metrics-max-series."},
	}},
	{"The cluster, in this broker's copy of the metadata", []definition{
		{"cluster_brokers", kindGauge, nil, "Brokers that belong to the cluster, whether they run or not."},
		{"cluster_brokers_registered", kindGauge, nil, "Brokers with a live registration."},
		{"cluster_partitions", kindGauge, nil, "Partitions of all topics of the cluster."},
		{"cluster_partitions_leaderless", kindGauge, nil, "Partitions of the cluster whose leader has no live registration: nothing can be published to them or consumed from them."},
		{"cluster_partitions_under_replicated", kindGauge, nil, "Partitions of the cluster that have a replica outside the in-sync set."},
		{"cluster_controller", kindGauge, byNode, "1 for the broker that is the controller of the cluster."},
		{"cluster_feature_level", kindGauge, nil, "Feature level of the cluster: the newest formats that all its brokers understand."},
	}},
	{"Replication and elections", []definition{
		{"events_total", kindCounter, []string{"event"}, "Events of replicas on this broker, and of the broker itself: elected, stepped_down, isr_removed, isr_joined, rollback, truncated, restarted (a replica started over at the first retained message), registered, registration_lost, alarm (a replica refused a message that violates the protocol), put_repeated (a put was stored before; a retry was recognised), mended (a damaged place was repaired)."},
		{"election_seconds", kindHistogram, nil, "Time from the detection of the loss of a partition's leader until this broker leads the partition: the queries to the other replicas, the transaction on the metadata, and the commit of the epoch's marker."},
		{"trace_spans_sent_total", kindCounter, nil, "Spans of traces that the OpenTelemetry collector accepted (--otlp-endpoint)."},
		{"trace_spans_dropped_total", kindCounter, nil, "Spans of traces that were dropped, because the collector did not accept them in time."},
		{"replica_puts_rolled_back_total", kindCounter, nil, "Uncommitted puts that this broker rolled back as a leader."},
		{"replica_puts_in_doubt_total", kindCounter, nil, "Puts that this broker left in doubt as a leader."},
	}},
	{"Disk", []definition{
		{"journal_sync_seconds", kindHistogram, nil, "Duration of one sync (fdatasync) of the journal on this broker's disk."},
		{"journal_syncs_total", kindCounter, nil, "Groups of puts that the journal made durable, by one sync each."},
		{"journal_bytes_total", kindCounter, nil, "Bytes written to the journal."},
		{"journal_busy_seconds", kindGauge, nil, "How long the current write or sync of the journal has been running; 0 if none is."},
		{"checkpoint_seconds", kindHistogram, nil, "Duration of one checkpoint: all segment files are synced, so that the journal's files can be used again."},
		{"core_loop_busy_seconds", kindGauge, nil, "How long the current pass of a core loop has been running, for the loop where that is longest; 0 if none is running."},
		{"disk_free_bytes", kindGauge, nil, "Free bytes of the file system of the data path."},
		{"disk_data_bytes", kindGauge, nil, "Bytes of the segment files of all replicas on this broker."},
		{"trash_bytes", kindGauge, nil, "Bytes of the replicas on this broker whose topics are in the trash (nsqctl topic trash); disk_data_bytes includes them."},
		{"disk_reserve_bytes", kindGauge, nil, "Free bytes below which the broker is short of disk space (--min-free-disk-bytes)."},
		{"disk_reserve_reached", kindGauge, nil, "1 while this broker is short of disk space: it leaves the in-sync sets whose other members satisfy the minimum, and gives its leaderships away."},
		{"damaged_places", kindGauge, nil, "Damaged places of the replicas on this broker that are in quarantine and not repaired yet."},
	}},
	{"Metadata", []definition{
		{"metadata_unheard_seconds", kindGauge, nil, "How long the metadata store (etcd) has not answered this broker; 0 below --session-ttl."},
		{"metadata_watch_delay_seconds", kindGauge, nil, "Time between this broker's last change of the metadata and its arrival by the watch, or the time for which the watch has not delivered a change: the age of this broker's copy of the metadata."},
		{"etcd_leader", kindGauge, nil, "1 if this broker's member leads the embedded etcd."},
		{"etcd_has_leader", kindGauge, nil, "1 if this broker's member of the embedded etcd has a leader; 0: its members have no majority."},
		{"etcd_database_bytes", kindGauge, nil, "Size of the embedded etcd's database file."},
		{"etcd_database_in_use_bytes", kindGauge, nil, "Bytes in use of the embedded etcd's database file."},
		{"etcd_quota_bytes", kindGauge, nil, "Size of the embedded etcd's database at which it refuses all writes."},
	}},
	{"Connections of clients", []definition{
		{"connections", kindGauge, []string{"port"}, "Open connections of clients, by port: tcp (the NSQ protocol) and http (all HTTP ports together)."},
		{"refused_total", kindCounter, []string{"limit"}, "Clients, requests and logins that a limit has refused or cut off, by the limit; docs/reference/limits.md lists the limits."},
		{"auth_service_unanswered_seconds", kindGauge, nil, "How long the authorization service (--auth-http-address) has given no usable answer; 0: it does, or it is not asked."},
		{"client_memory_bytes", kindGauge, []string{"use"}, "Memory that clients make the broker hold (--max-client-memory), by use; docs/ARCHITECTURE.md lists the buffers."},
		{"clients", kindGauge, []string{"state"}, "Clients at the TCP port: consumer (has subscribed), producer (has published), idle (neither); and http_consumer, sessions of /v1/consume."},
	}},
	{"Connections between brokers", []definition{
		{"rpc_up", kindGauge, byNode, "1 if the named broker is connected both ways and not silent."},
		{"rpc_queue_bytes", kindGauge, byNode, "Bytes that wait to be sent to the named broker."},
		{"rpc_sent_bytes_total", kindCounter, byNode, "Bytes sent to the named broker."},
		{"rpc_received_bytes_total", kindCounter, byNode, "Bytes received from the named broker."},
		{"rpc_frames_refused_total", kindCounter, nil, "Frames to other brokers that were not sent, because there was no connection or its window was full. They are sent again later."},
		{"rpc_connections", kindGauge, nil, "Connections that other brokers have made."},
		{"rpc_handshakes", kindGauge, nil, "Connections at the port for other brokers that have not proved to come from a broker."},
		{"rpc_refused_connections_total", kindCounter, nil, "Connections at the port for other brokers that were closed because of its limits: a flood, or a scan. The log has the addresses."},
		{"etcd_client_connections", kindGauge, nil, "Connections of brokers at the client port of the embedded etcd."},
		{"etcd_client_handshakes", kindGauge, nil, "Connections at the client port of the embedded etcd that have not proved to come from a broker."},
		{"etcd_client_refused_connections_total", kindCounter, nil, "Connections at the client port of the embedded etcd that were closed because of its limits: a flood, or a scan."},
		{"etcd_peer_connections", kindGauge, nil, "Connections of brokers at the peer port of the embedded etcd."},
		{"etcd_peer_handshakes", kindGauge, nil, "Connections at the peer port of the embedded etcd that have not proved to come from a broker."},
		{"etcd_peer_refused_connections_total", kindCounter, nil, "Connections at the peer port of the embedded etcd that were closed because of its limits: a flood, or a scan."},
		{"rpc_corrupt_connections_total", kindCounter, nil, "Connections of other brokers that were closed because of a wrong checksum: the network, a network card or memory changes bytes."},
	}},
	{"This process", []definition{
		{"ready", kindGauge, nil, "1 while the broker is registered, serves, and reaches another broker, as /readyz reports; 0 otherwise."},
		{"certificate_expiry_timestamp_seconds", kindGauge, []string{"use"}, "End of the validity of this broker's certificate, as a Unix time: client (--tls-cert), rpc (--rpc-tls-cert) and etcd (--etcd-tls-cert). 0: its files cannot be used, for example because the private key is missing."},
		{"build_info", kindGauge, []string{"version", "commit", "feature_level", "nsq_version", "node"}, "1; the labels name the build of this broker and the broker."},
	}},
}

// panels are the metrics with a panel in the row "More" of contrib/grafana/broker.json, which make reference writes. Any other
// panel is edited in Grafana.
var panels = []struct{ metric, title, unit string }{
	{"client_memory_bytes", "Memory of clients", "bytes"},
	{"trash_bytes", "Trash", "bytes"},
	{"idle_removed_total", "Removed for idleness", "ops"},
	{"auth_service_unanswered_seconds", "Authorization service silent for", "s"},
	{"rpc_frames_refused_total", "Frames not sent to other brokers", "ops"},
	{"rpc_refused_connections_total", "Refused at the port for brokers", "ops"},
}

var definitions = func() map[string]definition {
	all := map[string]definition{}
	for _, s := range table {
		for _, d := range s.Metrics {
			all[d.Name] = d
		}
	}
	return all
}()

// define finds a metric in the table. A missing metric is a bug.
func define(name string, k kind) definition {
	d, ok := definitions[name]
	if !ok || d.Kind != k {
		panic(fmt.Sprintf("metrics: %s %q is not in the table", k, name))
	}
	return d
}

func (d definition) valueType() prometheus.ValueType {
	if d.Kind == kindCounter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}
