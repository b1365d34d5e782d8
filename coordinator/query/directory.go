package query

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/liveness"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// lookupWait bounds how long Lookup waits while a partition has no leader, and Cluster while there is no controller.
const lookupWait = 1500 * time.Millisecond

// Options: all fields are required.
type Options struct {
	Cluster string
	Self    metadata.NodeState // this broker's registration
	Engine  *engine.Engine
	Catalog *catalog.Catalog
	Store   *store.Store
	Peers   *liveness.Peers
	Caller  calls.Caller
	// LowSpace reports whether a broker is below its disk reserve.
	LowSpace func(ident.Node) bool
	// Hangs reports whether a broker has reported that its disk or a core loop makes no progress, or that its store has
	// failed.
	Hangs func(ident.Node) bool
	// Unanswered reports whether a broker's address neither answers nor refuses connections.
	Unanswered func(ident.Node) bool
	// Unheard is how long the metadata has not answered; 0 while it answers.
	Unheard func() time.Duration
	// Context ends with the broker.
	Context context.Context //nolint:containedctx // used for calls by methods without a context parameter
}

// Directory describes the cluster.
type Directory struct {
	o         *Options
	inspector *Inspector
	hidden    *hiddenNodes
	topics    struct {
		sync.Mutex
		views []api.TopicView // cached topic views without damage and ends; nil = nothing cached
		until <-chan struct{} // closed when the cached views are outdated
	}
}

// New makes a directory that hides no node, and the inspector of the replicas on this broker.
func New(o Options) (*Directory, *Inspector) {
	d := &Directory{o: &o, inspector: &Inspector{o: &o}, hidden: newHiddenNodes(hiddenFor)}
	d.inspector.directory = d
	return d, d.inspector
}

// Leader is the leader of a partition according to the metadata or, if its epoch is later, the leader that the replica
// here follows; false while that incarnation is not live.
func (d *Directory) Leader(p ident.Partition) (catalog.Leadership, bool) {
	s, ok := d.o.Catalog.Partition(p)
	if !ok {
		return catalog.Leadership{}, false
	}
	if l, ok := d.followed(p, s.Epoch); ok {
		return l, true
	}
	r, live := d.o.Catalog.LiveNode(s.Leader)
	l := catalog.Leadership{Node: s.Leader, Incarnation: s.LeaderIncarnation, Epoch: s.Epoch}
	return l, live && r.Incarnation == s.LeaderIncarnation
}

// followed is the leader that the replica here follows, if its epoch is later than the known one. That happens when the
// watch lags because this broker does not reach the store, although it reaches the leader.
func (d *Directory) followed(id ident.Partition, known ident.Epoch) (catalog.Leadership, bool) {
	p, ok := d.o.Engine.Partition(id)
	if !ok {
		return catalog.Leadership{}, false
	}
	v := p.View()
	if v.Epoch <= known || v.Follows == "" {
		return catalog.Leadership{}, false
	}
	inc, up := d.o.Peers.Reached(v.Follows)
	return catalog.Leadership{Node: v.Follows, Incarnation: inc, Epoch: v.Epoch}, up
}

// Lookup returns a topic's channels, and for each partition its leader and a live in-sync follower, so that a consumer is
// connected to a survivor when the leader dies. It waits up to 1.5 s while a partition has no leader.
func (d *Directory) Lookup(ctx context.Context, topic string) ([]string, []api.Producer, error) {
	t, ok := d.awaitLeaders(ctx, topic) // for partitions without a leader, followers are returned
	if !ok {
		return nil, nil, outcome.ErrTopicNotFound
	}
	names := map[ident.Node]bool{}
	for n := range t.Partitions {
		p, _ := d.o.Catalog.Partition(ident.Partition{Topic: t.ID, Number: uint16(n)})
		for _, node := range d.serving(p) {
			names[node] = true
		}
	}
	var producers []api.Producer
	for _, r := range d.o.Catalog.LiveNodes() {
		if names[r.Name] && !d.hidden.hides(topic, address(r.NodeState)) {
			producers = append(producers, producer(r.NodeState))
		}
	}
	return d.Channels(topic), producers, nil
}

// Leaders lists the brokers that lead the partitions of a topic (api.Directory).
func (d *Directory) Leaders(ctx context.Context, topic string) ([]api.PartitionLeader, error) {
	t, ok := d.awaitLeaders(ctx, topic) // partitions without a leader are omitted
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	var all []api.PartitionLeader
	for n := range t.Partitions {
		leader, ok := d.Leader(ident.Partition{Topic: t.ID, Number: uint16(n)})
		if !ok {
			continue
		}
		if r, live := d.o.Catalog.LiveNode(leader.Node); live {
			all = append(all, api.PartitionLeader{Partition: n, Producer: producer(r.NodeState)})
		}
	}
	return all, nil
}

// awaitLeaders finds a topic, and waits up to lookupWait until all its partitions have leaders.
func (d *Directory) awaitLeaders(ctx context.Context, topic string) (metadata.TopicState, bool) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	t, ok := d.o.Catalog.Topic(topic)
	if ok {
		_ = d.o.Catalog.Await(ctx, func() bool { return d.led(t) }) // on a timeout the caller returns the leaders that exist
	}
	return t, ok
}

// led reports whether every partition of a topic has a live leader.
func (d *Directory) led(t metadata.TopicState) bool {
	for n := range t.Partitions {
		if _, ok := d.Leader(ident.Partition{Topic: t.ID, Number: uint16(n)}); !ok {
			return false
		}
	}
	return true
}

// serving names a partition's live leader and one live in-sync follower.
func (d *Directory) serving(s metadata.PartitionState) []ident.Node {
	var out []ident.Node
	if d.Alive(s.Leader) {
		out = append(out, s.Leader)
	}
	for _, m := range s.ISR {
		if m.Node != s.Leader && d.Alive(m.Node) {
			return append(out, m.Node)
		}
	}
	return out
}

// Alive reports whether a broker is registered, not stopping, and answers.
func (d *Directory) Alive(n ident.Node) bool {
	r, ok := d.o.Catalog.LiveNode(n)
	return ok && !r.Transferring && d.o.Peers.Up(n)
}

// Isolated reports whether other brokers are registered and none of them answers.
func (d *Directory) Isolated() bool {
	others := slices.DeleteFunc(d.o.Catalog.LiveNodes(), func(r catalog.Registration) bool { return r.Name == d.o.Self.Name })
	return len(others) > 0 && !slices.ContainsFunc(others, func(r catalog.Registration) bool { return d.o.Peers.Up(r.Name) })
}

// Topics lists the topics of the cluster, sorted (api.Directory).
func (d *Directory) Topics() []string { return d.o.Catalog.Topics() }

// Replicas are the other brokers that answer and have a replica of a partition, the leader first.
func (d *Directory) Replicas(p ident.Partition) []ident.Node {
	s, _ := d.o.Catalog.Partition(p)
	list := slices.DeleteFunc(slices.Clone(s.Replicas), func(n ident.Node) bool { return n == d.o.Self.Name || !d.o.Peers.Up(n) })
	l, _ := d.Leader(p)
	if at := slices.Index(list, l.Node); at > 0 {
		list = slices.Insert(slices.Delete(list, at, at+1), 0, l.Node)
	}
	return list
}

// Channels lists a topic's channels, sorted; ephemeral ones only if this broker serves them.
func (d *Directory) Channels(topic string) []string {
	t, ok := d.o.Catalog.Topic(topic)
	if !ok {
		return nil
	}
	names := map[string]bool{}
	for name := range d.o.Catalog.Channels(t.ID) {
		names[name] = true
	}
	for _, p := range d.o.Engine.PartitionsOf(t.ID, t.Partitions) {
		if p.Leading() {
			for _, name := range p.Queue().Channels() {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Nodes lists the live brokers with the topics that they serve.
func (d *Directory) Nodes() []api.NodeEntry {
	topics := map[ident.Node]map[string]bool{}
	for _, p := range d.o.Catalog.Partitions() {
		name, ok := d.o.Catalog.Name(p.Topic)
		if _, trashed := d.o.Catalog.Trashed(p.Topic); !ok || trashed {
			continue
		}
		s, _ := d.o.Catalog.Partition(p)
		for _, n := range d.serving(s) {
			if topics[n] == nil {
				topics[n] = map[string]bool{}
			}
			topics[n][name] = true
		}
	}
	var out []api.NodeEntry
	for _, r := range d.o.Catalog.LiveNodes() {
		if !d.Alive(r.Name) {
			continue
		}
		e := api.NodeEntry{Producer: producer(r.NodeState), Topics: slices.Sorted(maps.Keys(topics[r.Name]))}
		for _, t := range e.Topics {
			e.Tombstones = append(e.Tombstones, d.hidden.hides(t, address(r.NodeState)))
		}
		out = append(out, e)
	}
	return out
}

func producer(n metadata.NodeState) api.Producer {
	return api.Producer{
		RemoteAddress: address(n), Hostname: n.Hostname, BroadcastAddress: n.BroadcastAddress,
		TCPPort: n.TCPPort, HTTPPort: n.HTTPPort, Version: n.Version, TopologyZone: n.Zone, TopologyRegion: n.Region,
	}
}

// address is how /nodes and /topic/tombstone name a broker.
func address(n metadata.NodeState) string {
	return net.JoinHostPort(n.BroadcastAddress, strconv.Itoa(n.HTTPPort))
}
