package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/option"
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

// ClusterSize is the number of members, or 1 if none are listed. With an external etcd only the metadata has the
// number.
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

// beatsPerTimeout is the number of heartbeats that one timeout lasts: a few consecutive late ones must not count as
// silence. A lower number causes elections without a failure, and a higher one only costs CPU time.
const beatsPerTimeout = 10

// EtcdHeartbeat is the interval of the embedded etcd's heartbeats.
func (o Options) EtcdHeartbeat() time.Duration { return o.EtcdElectionTimeout / beatsPerTimeout }

// PeerHeartbeat is the interval of the heartbeats between brokers.
func (o Options) PeerHeartbeat() time.Duration { return o.PeerTimeout / beatsPerTimeout }

// RollbackGrace is the time within which a new epoch must be committed, otherwise the rolled-back puts are reported as
// in doubt. A new epoch needs the same disks and network as a put and writes less, so the time is two thirds of
// --write-timeout.
func (o Options) RollbackGrace() time.Duration { return o.WriteTimeout * 2 / 3 }

// EmbedsEtcd reports whether the broker runs an embedded etcd.
func (o Options) EmbedsEtcd() bool { return len(o.EtcdEndpoints) == 0 }

// TopicDefaults are the values of --topic-default. Load has checked them.
func (o Options) TopicDefaults() (list []option.Default) {
	for _, text := range o.TopicDefault {
		if d, err := option.ParseDefault(text); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// TopicOptions are the default options of all new topics: the settings with an option tag. Load has checked them.
func (o Options) TopicOptions() option.Topic {
	var c option.Change[option.Topic]
	for s := range settings(&o) {
		if s.option != nil {
			_ = c.Read(s.option, fmt.Sprint(s.value))
		}
	}
	return c.Values
}

func (l *loader) validateTopicDefaults(o *Options) {
	for _, text := range o.TopicDefault {
		d, err := option.ParseDefault(text)
		if err != nil {
			l.fault("--topic-default=%s: %v", text, err)
		}
		if r := d.Options.Values.NeedsGrace(); r != nil && o.DeleteGrace == 0 {
			l.fault("--topic-default=%s: %s requires a --delete-grace", text, r.Flag())
		}
	}
	for s := range settings(o) {
		if s.option == nil {
			continue
		}
		var c option.Change[option.Topic]
		if err := c.Read(s.option, fmt.Sprint(s.value)); err != nil {
			l.fault("--%s=%v %v", s.flag, s.value, err)
		}
		if r := c.Values.NeedsGrace(); r != nil && o.DeleteGrace == 0 {
			l.fault("--%s requires a --delete-grace: %s", s.flag, r.Grace)
		}
	}
}
