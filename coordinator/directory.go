package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// lookupWait bounds how long Lookup waits while a partition has no leader, and
// Cluster while nobody is the controller.
const lookupWait = 1500 * time.Millisecond

// errNotRegistered and errAlone are why Ready says no.
var (
	errNotRegistered = errors.New("this broker is not registered")
	errAlone         = errors.New("this broker reaches none of the other brokers that are registered")
)

// Lookup gives a topic's channels, and for each partition its leader and a live
// in-sync follower, so that a consumer is connected to a survivor when the
// leader dies. It waits up to 1.5 s while a partition has no leader.
func (b *Broker) Lookup(ctx context.Context, topic string) ([]string, []edge.Producer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	t, ok := b.catalog.topic(topic)
	if !ok {
		return nil, nil, edge.ErrTopicNotFound
	}
	_ = b.await(ctx, func() bool { return b.led(t) }) // then the followers must do
	names := map[ident.Node]bool{}
	for n := range t.Partitions {
		p, _ := b.catalog.partition(ident.Partition{Topic: t.ID, Number: uint16(n)})
		for _, node := range b.serving(p) {
			names[node] = true
		}
	}
	var producers []edge.Producer
	for _, r := range b.catalog.lives() {
		if names[r.Name] && !b.hidden.hides(topic, address(r.NodeState)) {
			producers = append(producers, producer(r.NodeState))
		}
	}
	return b.Channels(topic), producers, nil
}

// led reports whether every partition of a topic has a live leader.
func (b *Broker) led(t meta.TopicState) bool {
	for n := range t.Partitions {
		if _, ok := b.Leader(ident.Partition{Topic: t.ID, Number: uint16(n)}); !ok {
			return false
		}
	}
	return true
}

// serving names a partition's live leader and one live in-sync follower, those
// that answer this broker first.
func (b *Broker) serving(s meta.PartitionState) []ident.Node {
	var out []ident.Node
	if b.alive(s.Leader) {
		out = append(out, s.Leader)
	}
	for _, m := range s.ISR {
		if m.Node != s.Leader && b.alive(m.Node) {
			return append(out, m.Node)
		}
	}
	return out
}

// alive reports whether a broker is registered, stays, and answers.
func (b *Broker) alive(n ident.Node) bool {
	r, ok := b.catalog.liveNode(n)
	return ok && !r.HandingOver && b.members.up(n)
}

// Topics lists the topics of the cluster, sorted.
func (b *Broker) Topics() []string { return b.catalog.topics() }

// Channels lists a topic's channels, sorted; the ephemeral ones only as far as
// this broker serves them.
func (b *Broker) Channels(topic string) []string {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return nil
	}
	names := map[string]bool{}
	for name := range b.catalog.channels(t.ID) {
		names[name] = true
	}
	for n := range t.Partitions {
		if h, ok := b.host(ident.Partition{Topic: t.ID, Number: uint16(n)}); ok && h.Leading() {
			for _, name := range h.queue.Channels() {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Nodes lists the live brokers with the topics that they serve.
func (b *Broker) Nodes() []edge.NodeEntry {
	topics := map[ident.Node]map[string]bool{}
	for _, p := range b.catalog.partitions() {
		name, ok := b.catalog.name(p.Topic)
		if !ok {
			continue
		}
		s, _ := b.catalog.partition(p)
		for _, n := range b.serving(s) {
			if topics[n] == nil {
				topics[n] = map[string]bool{}
			}
			topics[n][name] = true
		}
	}
	var out []edge.NodeEntry
	for _, r := range b.catalog.lives() {
		if !b.alive(r.Name) {
			continue
		}
		e := edge.NodeEntry{Producer: producer(r.NodeState), Topics: slices.Sorted(maps.Keys(topics[r.Name]))}
		for _, t := range e.Topics {
			e.Tombstones = append(e.Tombstones, b.hidden.hides(t, address(r.NodeState)))
		}
		out = append(out, e)
	}
	return out
}

// Ready is nil when the broker is registered, serves, and is not cut off from all
// others: what they lead it could neither be sent nor ask for.
func (b *Broker) Ready() error {
	if b.session.incarnation() == 0 || b.stopping.Load() {
		return errNotRegistered
	}
	if b.alone() {
		return errAlone
	}
	return b.Health()
}

// alone reports whether other brokers are registered and none of them answers.
func (b *Broker) alone() bool {
	others := 0
	for _, r := range b.catalog.lives() {
		if r.Name == b.self {
			continue
		}
		if b.members.up(r.Name) {
			return false
		}
		others++
	}
	return others > 0
}

func producer(n meta.NodeState) edge.Producer {
	return edge.Producer{
		RemoteAddress: address(n), Hostname: n.Hostname, BroadcastAddress: n.BroadcastAddress,
		TCPPort: n.TCPPort, HTTPPort: n.HTTPPort, Version: n.Version, TopologyZone: n.Zone, TopologyRegion: n.Region,
	}
}

// address is how /nodes and /topic/tombstone name a broker.
func address(n meta.NodeState) string {
	return net.JoinHostPort(n.BroadcastAddress, strconv.Itoa(n.HTTPPort))
}

func httpsAddress(n meta.NodeState) string {
	if n.HTTPSPort == 0 {
		return ""
	}
	return net.JoinHostPort(n.BroadcastAddress, strconv.Itoa(n.HTTPSPort))
}

// Cluster is the whole of GET /v1/cluster. Right after a start, and while the
// controller changes, it waits up to 1.5 s for one. Ends of partitions led
// elsewhere are asked for, and left at 0 where nobody answers within 300 ms.
func (b *Broker) Cluster() edge.ClusterView {
	ctx, cancel := context.WithTimeout(b.ctx, lookupWait)
	_ = b.await(ctx, func() bool { return b.catalog.controllerNode() != "" }) // else it is shown as ""
	cancel()
	v := edge.ClusterView{
		Cluster: b.o.Cluster, Controller: b.catalog.controllerNode(), Self: b.self, Level: b.catalog.cluster().Level,
		Counters: b.counters(), MetadataUnheardMS: b.metadataUnheard().Milliseconds(), Topics: []edge.TopicView{},
	}
	for _, n := range b.catalog.nodes() {
		v.Brokers = append(v.Brokers, b.brokerView(n))
	}
	told := b.collectEnds()
	for _, name := range b.catalog.topics() {
		t, ok := b.catalog.topic(name)
		if !ok {
			continue
		}
		tv := edge.TopicView{Topic: name, ID: t.ID, ReplicationFactor: t.ReplicationFactor, MinInSync: t.MinInSync, Ordered: t.Ordered,
			RetentionMS: t.Options.RetentionMS, RetentionBytes: t.Options.RetentionBytes, MaxBytes: t.Options.MaxBytes, TTLMS: t.Options.TTLMS}
		for n := range t.Partitions {
			tv.Partitions = append(tv.Partitions, b.partitionView(ident.Partition{Topic: t.ID, Number: uint16(n)}, told))
		}
		v.Topics = append(v.Topics, tv)
	}
	return v
}

func (b *Broker) brokerView(n meta.NodeState) edge.BrokerView {
	r, ok := b.catalog.liveNode(n.Name)
	leaving := n.Leaving
	if ok {
		n = r.NodeState
	}
	return edge.BrokerView{
		Leaving: leaving,
		Name:    n.Name, Alive: ok && b.members.up(n.Name), Incarnation: r.Incarnation,
		TCPAddress:  fmt.Sprintf("%s:%d", n.BroadcastAddress, n.TCPPort),
		HTTPAddress: address(n), HTTPSAddress: httpsAddress(n), RPCAddress: n.RPCAddress, Zone: n.Zone, Version: n.Version, Level: n.Level,
		LowSpace: b.space.low(n.Name),
	}
}

func (b *Broker) partitionView(p ident.Partition, told reports) edge.PartitionView {
	s, _ := b.catalog.partition(p)
	v := edge.PartitionView{Partition: int(p.Number), Epoch: s.Epoch, Replicas: s.Replicas,
		UnderReplicated: len(s.ISR) < len(s.Replicas), MinInSync: s.MinInSync, Target: s.Target}
	for _, m := range s.ISR {
		v.ISR = append(v.ISR, m.Node)
	}
	slices.SortFunc(v.ISR, func(a, b ident.Node) int { return cmp.Compare(a, b) })
	if l, ok := b.Leader(p); ok {
		v.Leader = l.Node
	}
	v.Damaged = told.damaged[p]
	if e, ok := told.ends[p]; ok {
		v.CommittedOffset, v.CommittedSequence = ident.Offset(e.CommittedOffset), ident.Sequence(e.CommittedSequence)
		v.EndOffset = ident.Offset(e.EndOffset)
	}
	return v
}
