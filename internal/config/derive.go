package config

import (
	"strings"
	"time"
)

// maxDefaultReplicas is the largest default of the replication factor.
const maxDefaultReplicas = 3

// Members returns the names in --etcd-initial-cluster.
func (o Options) Members() (names []string) {
	for _, member := range nonEmpty(strings.Split(o.EtcdInitialCluster, ",")) {
		name, _, _ := strings.Cut(strings.TrimSpace(member), "=")
		names = append(names, name)
	}
	return names
}

// ClusterSize is the number of members; 1 without any. With an external etcd only the metadata has the number.
func (o Options) ClusterSize() int { return max(1, len(o.Members())) }

// Replicas is the replication factor of a new topic in a cluster of that many brokers.
func (o Options) Replicas(brokers int) int {
	if o.ReplicationFactor > 0 {
		return o.ReplicationFactor
	}
	return min(max(brokers, 1), maxDefaultReplicas)
}

// InSync is the least number of in-sync replicas of a topic with that many replicas: a majority of three or more, both
// of two.
func (o Options) InSync(replicas int) int {
	if o.MinInSync > 0 {
		return min(o.MinInSync, replicas)
	}
	return replicas/2 + 1
}

// beatsPerTimeout is the number of heartbeats that one timeout lasts: a few that are late in a row are no silence.
// Fewer make elections without a failure, and more cost processor time only.
const beatsPerTimeout = 10

// EtcdHeartbeat is the interval of the embedded etcd's heartbeats.
func (o Options) EtcdHeartbeat() time.Duration { return o.EtcdElectionTimeout / beatsPerTimeout }

// PeerHeartbeat is the interval of the heartbeats between brokers.
func (o Options) PeerHeartbeat() time.Duration { return o.PeerTimeout / beatsPerTimeout }

// RollbackGrace is the time within which a new epoch must be committed, else the rolled-back puts are reported as in
// doubt. It needs the same disks and network as a put, and has less to write: two thirds of --write-timeout.
func (o Options) RollbackGrace() time.Duration { return o.WriteTimeout * 2 / 3 }

// EmbedsEtcd reports whether the broker runs an embedded etcd.
func (o Options) EmbedsEtcd() bool { return len(o.EtcdEndpoints) == 0 }
