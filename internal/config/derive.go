package config

import "strings"

// maxDefaultReplicas is what a replication factor of 0 stops at.
const maxDefaultReplicas = 3

// ClusterSize is the number of brokers in --etcd-initial-cluster; 1 without it.
// With an external etcd the size shows only in the metadata.
func (o Options) ClusterSize() int {
	return max(1, len(nonEmpty(strings.Split(o.EtcdInitialCluster, ","))))
}

// Replicas is the replication factor of a new topic in a cluster of so many
// brokers.
func (o Options) Replicas(brokers int) int {
	if o.ReplicationFactor > 0 {
		return o.ReplicationFactor
	}
	return min(max(brokers, 1), maxDefaultReplicas)
}

// InSync is the least number of in-sync replicas for a topic with so many
// replicas: a majority where there is one to spare, both of two.
func (o Options) InSync(replicas int) int {
	if o.MinInSync > 0 {
		return min(o.MinInSync, replicas)
	}
	return replicas/2 + 1
}

// EmbedsEtcd says whether the broker runs an etcd of its own.
func (o Options) EmbedsEtcd() bool { return len(o.EtcdEndpoints) == 0 }
