package edgetest

import (
	"context"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Health implements api.Stats.
func (c *Cluster) Health() error { c.mu.Lock(); defer c.mu.Unlock(); return c.mu.health }

// Topics implements api.Stats.
func (c *Cluster) Topics(topic, channel string, includeClients bool) []api.TopicStats {
	stats, clients := c.topics(topic, channel)
	if !includeClients {
		return stats
	}
	// Client acquires other locks: it is called without c.mu.
	for i := range stats {
		for j := range stats[i].Channels {
			ch := &stats[i].Channels[j]
			for _, client := range clients[ch.ChannelName+"\x00"+stats[i].TopicName] {
				ch.Clients = append(ch.Clients, client())
			}
		}
	}
	return stats
}

func (c *Cluster) topics(topic, channel string) ([]api.TopicStats, map[string][]func() api.ClientStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []api.TopicStats{}
	clients := map[string][]func() api.ClientStats{}
	for _, name := range slices.Sorted(maps.Keys(c.mu.topics)) {
		if topic != "" && topic != name {
			continue
		}
		t := c.mu.topics[name]
		ts := api.TopicStats{
			TopicName: name, Channels: []api.ChannelStats{}, Depth: int64(len(t.backlog)),
			MessageCount: t.messages, MessageBytes: t.bytes, Paused: t.paused,
		}
		for _, chName := range slices.Sorted(maps.Keys(t.channels)) {
			if channel != "" && channel != chName {
				continue
			}
			ch := t.channels[chName]
			ts.Channels = append(ts.Channels, ch.statsLocked())
			for _, s := range ch.consumers {
				key := chName + "\x00" + name
				clients[key] = append(clients[key], s.request.Client)
			}
		}
		out = append(out, ts)
	}
	return out, clients
}

func (ch *channel) statsLocked() api.ChannelStats {
	s := api.ChannelStats{
		ChannelName: ch.name, Depth: int64(len(ch.queue)), DeferredCount: len(ch.deferred),
		MessageCount: ch.messages, RequeueCount: ch.requeued, TimeoutCount: ch.timedOut,
		ClientCount: len(ch.consumers), Paused: ch.paused,
	}
	for _, consumer := range ch.consumers {
		s.InFlightCount += len(consumer.inFlight)
	}
	return s
}

// Directory is the lookup API's view of the cluster: one node that leads all topics.
type Directory struct{ c *Cluster }

// Directory returns the cluster's directory.
func (c *Cluster) Directory() Directory { return Directory{c} }

func (d Directory) producer() api.Producer {
	return api.Producer{
		RemoteAddress: "127.0.0.1:1", Hostname: "host", BroadcastAddress: "127.0.0.1",
		TCPPort: 4150, HTTPPort: 4151, Version: "1.3.0",
	}
}

// Leaders implements api.Directory: the one partition of a topic is led by the first producer.
func (d Directory) Leaders(ctx context.Context, topic string) ([]api.PartitionLeader, error) {
	_, producers, err := d.Lookup(ctx, topic)
	if err != nil || len(producers) == 0 {
		return nil, err
	}
	return []api.PartitionLeader{{Producer: producers[0]}}, nil
}

// Lookup implements api.Directory.
func (d Directory) Lookup(_ context.Context, topic string) ([]string, []api.Producer, error) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	t := d.c.mu.topics[topic]
	if t == nil {
		return nil, nil, outcome.ErrTopicNotFound
	}
	var producers []api.Producer
	if !d.c.mu.tombs[topic] {
		producers = append(producers, d.producer())
	}
	return slices.Sorted(maps.Keys(t.channels)), producers, nil
}

// Topics implements api.Directory.
func (d Directory) Topics() []string {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return slices.Sorted(maps.Keys(d.c.mu.topics))
}

// Channels implements api.Directory.
func (d Directory) Channels(topic string) []string {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	t := d.c.mu.topics[topic]
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.channels))
}

// Nodes implements api.Directory.
func (d Directory) Nodes() []api.NodeEntry {
	topics := d.Topics()
	tombs := make([]bool, len(topics))
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for i, t := range topics {
		tombs[i] = d.c.mu.tombs[t]
	}
	return []api.NodeEntry{{Producer: d.producer(), Tombstones: tombs, Topics: topics}}
}

// Tombstone implements api.Directory.
func (d Directory) Tombstone(topic, _ string) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.c.mu.tombs[topic] = true
	return nil
}

// TopicID is the id of all topics of a Cluster.
const TopicID ident.TopicID = 7

// TopicSettings implements api.Directory.
func (d Directory) TopicSettings(topic string) (api.TopicSettings, bool) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	_, ok := d.c.mu.topics[topic]
	return api.TopicSettings{Topic: topic, ID: TopicID, Partitions: 1, ReplicationFactor: 1, MinInSync: 1}, ok
}

// Trash implements api.Directory.
func (d Directory) Trash() []api.TrashedTopic {
	return []api.TrashedTopic{{Topic: "gone", ID: 7, DeletedAtMS: 1, By: "alice", Partitions: 2, Channels: 1, Messages: 3, Bytes: 4, RemainingMS: 5, UntilMS: 6}}
}

// Usage implements api.Directory.
func (d Directory) Usage(user string) api.Usage {
	if user != "shop" {
		return api.Usage{}
	}
	return api.Usage{Topics: 3, Partitions: 8, Channels: 5}
}

// Limits implements api.Directory.
func (d Directory) Limits() api.LimitsView {
	return api.LimitsView{Topics: api.LimitView{Used: 1, Limit: 20}, Partitions: api.LimitView{Used: 2}, Channels: api.LimitView{Used: 3, Limit: 4}}
}

// Cluster implements api.Directory.
func (d Directory) Cluster() api.ClusterView {
	return api.ClusterView{Cluster: "test", Self: "n1", Controller: "n1", Level: 3}
}

// Ready implements api.Directory.
func (d Directory) Ready() error { return d.c.Health() }
