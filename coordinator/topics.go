package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/placement"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

const (
	// prepareTimeout bounds one broker's answer; who is slower is not in the
	// first in-sync set.
	prepareTimeout = time.Second
	prepareEach    = 10 * time.Millisecond // more for each partition
	writeEach      = time.Millisecond      // likewise, of the transaction
	createRetry    = 50 * time.Millisecond
	createTimeout  = 9 * time.Second // waits for others that are made included
	connectWait    = 200 * time.Millisecond
	knownTimeout   = time.Second // the first put waits no longer for KnownChannels
	// deleteRepeat is how long a repeated delete is taken for the same one:
	// nsqadmin posts it to every broker.
	deleteRepeat = 10 * time.Second
)

// topicSpec is what a topic is made with.
type topicSpec struct {
	name                            string
	partitions, replicas, minInSync int
	ordered                         bool
	explicit                        bool // asked for by name, not by a put
	durability                      meta.Durability
}

// spec fills in the defaults and checks; errors wrap edge.ErrInvalid.
func (b *Broker) spec(s topicSpec) (topicSpec, error) {
	def(&s.partitions, b.o.Partitions)
	if s.replicas == 0 {
		s.replicas = b.o.ReplicationFactor
		def(&s.minInSync, b.o.MinInSync)
	}
	def(&s.minInSync, DefaultMinInSync(s.replicas))
	def(&s.durability, b.o.Durability)
	switch {
	case !edge.ValidName(s.name): // it is a folder's name on every disk
		return s, fmt.Errorf("%w: %q is no name of a topic", edge.ErrInvalid, s.name)
	case s.partitions < 1 || s.partitions > nsqd.MaxPartitions:
		return s, fmt.Errorf("%w: partitions must be 1 to %d", edge.ErrInvalid, nsqd.MaxPartitions)
	case s.replicas < 1:
		return s, fmt.Errorf("%w: replication_factor must be at least 1", edge.ErrInvalid)
	case s.minInSync < 1 || s.minInSync > s.replicas:
		return s, fmt.Errorf("%w: min_in_sync must be 1 to the replication factor %d", edge.ErrInvalid, s.replicas)
	}
	return s, nil
}

// EnsureTopic finds a topic, or makes it with the defaults if that is allowed.
func (b *Broker) EnsureTopic(ctx context.Context, name string) (gateway.Topic, error) {
	if t, ok := b.Topic(name); ok {
		return t, nil
	}
	if b.o.NoAutoCreate {
		return gateway.Topic{}, edge.ErrTopicNotFound
	}
	s, err := b.spec(topicSpec{name: name})
	if err != nil {
		return gateway.Topic{}, err
	}
	return b.createTopic(ctx, s)
}

// createTopic returns when the topic is known here. Whoever creates it first
// wins, on whatever broker; the others find it.
func (b *Broker) createTopic(ctx context.Context, s topicSpec) (gateway.Topic, error) {
	came := time.Now()
	leave, err := b.creating.enter(ctx, s.name)
	if err != nil {
		return gateway.Topic{}, err
	}
	defer leave()
	if t, ok := b.Topic(s.name); ok {
		return t, nil // made while this waited: nobody is asked again
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout+time.Duration(s.partitions)*prepareEach)
	defer cancel()
	c := &creation{spec: s, id: ident.NewTopicID(), hold: b.o.Hold + time.Duration(s.partitions)*prepareEach}
	if time.Since(came) > createRetry { // somebody has tried it meanwhile
		c.began = came
	}
	known := b.knownChannels(ctx, s.name)
	defer func() { b.background(func(ctx context.Context) { b.releaseReplicas(ctx, c) }) }()
	for {
		if t, ok := b.Topic(s.name); ok {
			return t, nil
		}
		err := b.tryCreate(ctx, c)
		if err == nil {
			err = b.await(ctx, func() bool { _, ok := b.Topic(s.name); return ok })
		}
		if err == nil {
			b.createKnown(ctx, s.name, known)
		}
		if errors.Is(err, edge.ErrInvalid) {
			return gateway.Topic{}, err
		}
		if err != nil && (time.Since(c.began) >= c.hold || !waitFor(ctx, b.Changed(), createRetry)) {
			return gateway.Topic{}, fmt.Errorf("%w: create topic %s: %w", edge.ErrUnavailable, s.name, err)
		}
	}
}

// knownChannels are the channels that a new topic is to have before its first
// message, for only the first one begins with what the topic kept: those of
// consumers who look the topic up elsewhere and have not come yet.
func (b *Broker) knownChannels(ctx context.Context, topic string) []string {
	if b.o.KnownChannels == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	return slices.DeleteFunc(b.o.KnownChannels(ctx, topic), func(channel string) bool {
		return !edge.ValidName(channel) || nsqd.IsEphemeral(channel)
	})
}

// createKnown makes them, all from the beginning: another broker may have taken
// puts since the topic is there. One that cannot be made holds up nobody.
func (b *Broker) createKnown(ctx context.Context, topic string, channels []string) {
	for _, channel := range channels {
		if err := b.CreateChannel(ctx, topic, channel, "earliest", false); err != nil {
			b.log.WithError(err).WithField("topic", topic).WithField("channel", channel).
				Warn("cannot make a channel that others know")
		}
	}
}

// creation is a topic on its way: the id under which stores are prepared, over
// all attempts, and where.
type creation struct {
	spec    topicSpec
	id      ident.TopicID
	hold    time.Duration // how long it is tried
	began   time.Time     // when it was tried first
	places  [][]ident.Node
	stores  prepared
	written bool // or perhaps
}

func (c *creation) begin() {
	if c.began.IsZero() {
		c.began = time.Now()
	}
}

// makers is how many topics a broker makes at once: with askers fewer than a
// connection between brokers serves calls, so that of a thousand that are wanted in
// one instant none is refused, or begins with fewer replicas than are there.
const makers = 24

// turnToMake waits for a place, and bounds what is done there.
func (b *Broker) turnToMake(ctx context.Context, c *creation) (context.Context, func(), error) {
	select {
	case b.making <- struct{}{}:
	case <-ctx.Done():
		return ctx, nil, ctx.Err()
	}
	c.begin()
	ctx, cancel := context.WithTimeout(ctx, time.Until(c.began.Add(c.hold)))
	return ctx, func() { cancel(); <-b.making }, nil
}

// tryCreate chooses brokers, has them prepare replicas, and writes the topic and
// all its partition keys in one transaction. nil means that the topic exists.
func (b *Broker) tryCreate(ctx context.Context, c *creation) (err error) {
	old, _ := b.catalog.record(c.spec.name)
	if live := len(b.catalog.lives()); live < c.spec.minInSync {
		c.begin()
		return fmt.Errorf("%d of %d brokers are there", live, c.spec.minInSync)
	}
	ctx, leave, err := b.turnToMake(ctx, c)
	if err != nil {
		return err
	}
	defer leave()
	if c.places == nil {
		want := placement.Topic{Partitions: c.spec.partitions, Replicas: c.spec.replicas}
		if c.places, err = placement.Place(b.candidates(c.spec.replicas), want); err != nil {
			return err
		}
	}
	b.awaitPeers(ctx, c.places)
	c.stores = b.prepareReplicas(ctx, c)
	puts, err := b.topicPuts(c, old)
	if err != nil {
		c.places = nil // perhaps other brokers can
		return err
	}
	if old.Deleted { // its key is replaced: nobody finds later what whoever deleted it left
		if err := b.deleteChannelKeys(ctx, old.ID); err != nil {
			return err
		}
	}
	err = b.writeTopic(ctx, c, old.Revision, puts)
	c.written = c.written || err == nil || errors.Is(err, meta.ErrUnknown) // it may land yet
	return err
}

// awaitPeers gives the chosen brokers that are registered a moment to be
// connected: right after a start they are not, and would miss the first in-sync
// set for no reason.
func (b *Broker) awaitPeers(ctx context.Context, places [][]ident.Node) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	_ = b.await(ctx, func() bool {
		for n := range byNode(places) {
			if _, live := b.catalog.liveNode(n); live && !b.members.up(n) {
				return false
			}
		}
		return true
	})
}

// topicPuts makes the values of a new topic: the in-sync set of a partition is
// who has prepared a replica, and the first of them leads.
func (b *Broker) topicPuts(c *creation, old meta.TopicState) ([]meta.Put, error) {
	s := c.spec
	t := meta.TopicState{V: meta.Version, ID: c.id, Partitions: s.partitions, ReplicationFactor: s.replicas,
		MinInSync: s.minInSync, Durability: s.durability, Ordered: s.ordered, Options: b.o.TopicOptions}
	if !s.explicit {
		t.DeletedAtMS = old.DeletedAtMS // a delete may still be repeated on another broker
	}
	puts := []meta.Put{
		{Key: b.keys.Topic(s.name), Value: meta.Encode(t)},
		{Key: b.tombstoneKey(c.id), Delete: true}, // not there: what can be made has no more puts than its deletion
	}
	for n, nodes := range c.places {
		state := b.firstState(c, n, nodes)
		if len(state.ISR) < s.minInSync {
			return nil, fmt.Errorf("%d of %d replicas of partition %d are ready", len(state.ISR), s.minInSync, n)
		}
		key := b.keys.Partition(ident.Partition{Topic: c.id, Number: uint16(n)})
		puts = append(puts, meta.Put{Key: key, Value: meta.Encode(state)})
	}
	return puts, nil
}

func (b *Broker) firstState(c *creation, n int, nodes []ident.Node) meta.PartitionState {
	state := meta.PartitionState{V: meta.Version, Replicas: nodes, Epoch: 1,
		MinInSync: c.spec.minInSync, Durability: c.spec.durability}
	for _, node := range nodes {
		st, ok := c.stores.of(node, n)
		r, live := b.catalog.liveNode(node)
		if !ok || !live {
			continue
		}
		if state.Leader == "" {
			state.Leader, state.LeaderIncarnation = node, r.Incarnation
		}
		state.ISR = append(state.ISR, ident.Member{Node: node, Store: st})
	}
	return state
}

// errTaken means that somebody else created the topic at the same time.
var errTaken = errors.New("coordinator: the topic was created by another broker")

// writeTopic runs the transaction; an unknown answer is read back.
func (b *Broker) writeTopic(ctx context.Context, c *creation, revision int64, puts []meta.Put) error {
	key := b.keys.Topic(c.spec.name)
	short, cancel := context.WithTimeout(ctx, 2*txnTimeout+time.Duration(len(puts))*writeEach)
	ok, _, err := b.meta.Txn(short, []meta.Compare{{Key: key, Create: -1, Mod: revision}}, puts)
	cancel()
	if errors.Is(err, meta.ErrInvalid) { // an external etcd with other limits than ours
		return fmt.Errorf("%w: %d partitions are written in one transaction, raise --max-txn-ops of etcd to %d: %w",
			edge.ErrInvalid, c.spec.partitions, meta.EmbeddedMaxTxn, err)
	}
	if err == nil && ok {
		return nil
	}
	e, readErr := b.meta.Get(ctx, key)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if t, decodeErr := meta.DecodeTopic(e); decodeErr == nil && t.ID == c.id {
		return nil
	}
	return errors.Join(errTaken, err)
}

// candidates are the brokers to choose from, with their load: the live ones, or
// if these are fewer than the replicas wanted, all that ever registered. The
// factor never shrinks to who happens to be up; a dead broker's replica joins
// the in-sync set when it is back.
func (b *Broker) candidates(replicas int) []placement.Broker {
	load := map[ident.Node]*placement.Broker{}
	for _, n := range b.catalog.nodes() {
		if n.Leaving {
			continue
		}
		load[n.Name] = &placement.Broker{Node: n.Name, Zone: n.Zone}
	}
	for _, p := range b.catalog.partitions() {
		s, _ := b.catalog.partition(p)
		for i, n := range s.Replicas {
			if c := load[n]; c != nil {
				c.Replicas++
				if i == 0 {
					c.Leads++
				}
			}
		}
	}
	var live, away []placement.Broker
	for _, c := range load {
		if r, ok := b.catalog.liveNode(c.Node); ok && !r.HandingOver {
			live = append(live, *c)
		} else {
			away = append(away, *c)
		}
	}
	slices.SortFunc(away, func(x, y placement.Broker) int {
		return cmp.Or(cmp.Compare(x.Replicas, y.Replicas), cmp.Compare(x.Node, y.Node))
	})
	missing := max(replicas-len(live), 0) // all that run, and no more of the others than are missing
	return append(live, away[:min(missing, len(away))]...)
}
