package edgetest

import (
	"context"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Health implements edge.Stats.
func (c *Cluster) Health() error { c.mu.Lock(); defer c.mu.Unlock(); return c.mu.health }

// Topics implements edge.Stats.
func (c *Cluster) Topics(topic, channel string, includeClients bool) []edge.TopicStats {
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

func (c *Cluster) topics(topic, channel string) ([]edge.TopicStats, map[string][]func() edge.ClientStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []edge.TopicStats{}
	clients := map[string][]func() edge.ClientStats{}
	for _, name := range slices.Sorted(maps.Keys(c.mu.topics)) {
		if topic != "" && topic != name {
			continue
		}
		t := c.mu.topics[name]
		ts := edge.TopicStats{
			TopicName: name, Channels: []edge.ChannelStats{}, Depth: int64(len(t.backlog)),
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

func (ch *channel) statsLocked() edge.ChannelStats {
	s := edge.ChannelStats{
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

func (d Directory) producer() edge.Producer {
	return edge.Producer{
		RemoteAddress: "127.0.0.1:1", Hostname: "host", BroadcastAddress: "127.0.0.1",
		TCPPort: 4150, HTTPPort: 4151, Version: "1.3.0",
	}
}

// Leaders implements edge.Directory: the one partition of a topic is led by the first producer.
func (d Directory) Leaders(ctx context.Context, topic string) ([]edge.PartitionLeader, error) {
	_, producers, err := d.Lookup(ctx, topic)
	if err != nil || len(producers) == 0 {
		return nil, err
	}
	return []edge.PartitionLeader{{Producer: producers[0]}}, nil
}

// Lookup implements edge.Directory.
func (d Directory) Lookup(_ context.Context, topic string) ([]string, []edge.Producer, error) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	t := d.c.mu.topics[topic]
	if t == nil {
		return nil, nil, edge.ErrTopicNotFound
	}
	var producers []edge.Producer
	if !d.c.mu.tombs[topic] {
		producers = append(producers, d.producer())
	}
	return slices.Sorted(maps.Keys(t.channels)), producers, nil
}

// Topics implements edge.Directory.
func (d Directory) Topics() []string {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return slices.Sorted(maps.Keys(d.c.mu.topics))
}

// Channels implements edge.Directory.
func (d Directory) Channels(topic string) []string {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	t := d.c.mu.topics[topic]
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.channels))
}

// Nodes implements edge.Directory.
func (d Directory) Nodes() []edge.NodeEntry {
	topics := d.Topics()
	tombs := make([]bool, len(topics))
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for i, t := range topics {
		tombs[i] = d.c.mu.tombs[t]
	}
	return []edge.NodeEntry{{Producer: d.producer(), Tombstones: tombs, Topics: topics}}
}

// Tombstone implements edge.Directory.
func (d Directory) Tombstone(topic, _ string) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.c.mu.tombs[topic] = true
	return nil
}

// TopicID is the id of all topics of a Cluster.
const TopicID ident.TopicID = 7

// TopicSettings implements edge.Directory.
func (d Directory) TopicSettings(topic string) (edge.TopicSettings, bool) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	_, ok := d.c.mu.topics[topic]
	return edge.TopicSettings{Topic: topic, ID: TopicID, Partitions: 1, ReplicationFactor: 1, MinInSync: 1}, ok
}

// Trash implements edge.Directory.
func (d Directory) Trash() []edge.TrashedTopic {
	return []edge.TrashedTopic{{Topic: "gone", ID: 7, DeletedAtMS: 1, By: "alice", Partitions: 2, Channels: 1, Messages: 3, Bytes: 4, RemainingMS: 5, UntilMS: 6}}
}

// Usage implements edge.Directory.
func (d Directory) Usage(user string) edge.Usage {
	if user != "shop" {
		return edge.Usage{}
	}
	return edge.Usage{Topics: 3, Partitions: 8, Channels: 5}
}

// Limits implements edge.Directory.
func (d Directory) Limits() edge.LimitsView {
	return edge.LimitsView{Topics: edge.LimitView{Used: 1, Limit: 20}, Partitions: edge.LimitView{Used: 2}, Channels: edge.LimitView{Used: 3, Limit: 4}}
}

// Cluster implements edge.Directory.
func (d Directory) Cluster() edge.ClusterView {
	return edge.ClusterView{Cluster: "test", Self: "n1", Controller: "n1", Level: 3}
}

// Ready implements edge.Directory.
func (d Directory) Ready() error { return d.c.Health() }
