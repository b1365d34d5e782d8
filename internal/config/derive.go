package config

import "strings"

// maxDefaultReplicas is the largest default of the replication factor.
const maxDefaultReplicas = 3

// ClusterSize is the number of brokers in --etcd-initial-cluster; 1 without it. With an
// external etcd only the metadata has the number.
func (o Options) ClusterSize() int {
	return max(1, len(nonEmpty(strings.Split(o.EtcdInitialCluster, ","))))
}

// Replicas is the replication factor of a new topic in a cluster of that many brokers.
func (o Options) Replicas(brokers int) int {
	if o.ReplicationFactor > 0 {
		return o.ReplicationFactor
	}
	return min(max(brokers, 1), maxDefaultReplicas)
}

// InSync is the least number of in-sync replicas of a topic with that many replicas: a
// majority of three or more, both of two.
func (o Options) InSync(replicas int) int {
	if o.MinInSync > 0 {
		return min(o.MinInSync, replicas)
	}
	return replicas/2 + 1
}

// EmbedsEtcd reports whether the broker runs an embedded etcd.
func (o Options) EmbedsEtcd() bool { return len(o.EtcdEndpoints) == 0 }
