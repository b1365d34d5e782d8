package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	// prepareTimeout bounds one broker's answer; a slower one is not in the
	// first in-sync set.
	prepareTimeout = time.Second
	prepareEach    = 10 * time.Millisecond // more for each partition
	connectWait    = 200 * time.Millisecond
	// makers is how many topics a broker makes at once: with askers fewer than a
	// connection between brokers serves calls, so that of a thousand that are requested in
	// one instant none is refused, or begins with fewer replicas than are there.
	makers = 24
)

// errTaken means that another broker created the topic at the same time.
var errTaken = errors.New("coordinator: the topic was created by another broker")

// creation is a topic on its way: the id under which stores are prepared, over
// all attempts, and where.
type creation struct {
	spec    spec
	id      ident.TopicID
	first   int           // number of the first partition; 0 unless a topic grows
	hold    time.Duration // how long it is tried
	began   time.Time     // when it was tried first
	places  [][]ident.Node
	stores  prepared
	written bool // or perhaps
}

// prepared are the stores that brokers made, by node and partition number.
type prepared map[ident.Node]map[int]ident.StoreID

func (p prepared) of(n ident.Node, partition int) (ident.StoreID, bool) {
	id, ok := p[n][partition]
	return id, ok
}

func (c *creation) begin() {
	if c.began.IsZero() {
		c.began = time.Now()
	}
}

// try chooses brokers, has them prepare replicas, and writes the topic and all its
// partition keys in one transaction. The write fails if the record of the name is no longer old, which is the
// record of a deleted topic, or the zero value. nil means that the topic exists.
func (t *Topics) try(ctx context.Context, c *creation, old metadata.TopicState) (err error) {
	if live := len(t.catalog.LiveNodes()); live < c.spec.minInSync {
		c.begin()
		return fmt.Errorf("%d of %d brokers are live", live, c.spec.minInSync)
	}
	ctx, leave, err := t.enter(ctx, c)
	if err != nil {
		return err
	}
	defer leave()
	if c.places == nil {
		wish := plan.Placement{Partitions: c.spec.partitions, Replicas: c.spec.replicas}
		if c.places, err = plan.Place(t.catalog.Candidates(c.spec.replicas, t.low), wish); err != nil {
			return err
		}
		t.leadersFirst(c.places)
	}
	t.awaitPeers(ctx, c.places)
	c.stores = t.prepare(ctx, c)
	puts, err := t.puts(c, old)
	if err != nil {
		c.places = nil // perhaps other brokers can
		return err
	}
	if old.Deleted && !old.Trashed { // its key is replaced: the channels that its deletion left would never be found later
		if err := txn.DeleteAll(ctx, t.store, t.keys.Channels(old.ID)); err != nil {
			return err
		}
	}
	err = t.write(ctx, c, old.Revision, puts)
	c.written = c.written || err == nil || errors.Is(err, metadata.ErrUnknown) // it may land yet
	return err
}

// leadersFirst makes another replica the preferred leader where a broker that is drained, or below its disk reserve,
// would be it. Such a broker is placed at all only where too few others are there.
func (t *Topics) leadersFirst(places [][]ident.Node) {
	rank := func(n ident.Node) int {
		if t.catalog.Drain(n) != "" || t.low(n) {
			return 1
		}
		return 0
	}
	for _, nodes := range places {
		slices.SortStableFunc(nodes, func(a, b ident.Node) int { return cmp.Compare(rank(a), rank(b)) })
	}
}

// enter waits for a place among the makers, and bounds the time there.
func (t *Topics) enter(ctx context.Context, c *creation) (context.Context, func(), error) {
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx, nil, ctx.Err()
	}
	c.begin()
	ctx, cancel := context.WithTimeout(ctx, time.Until(c.began.Add(c.hold)))
	return ctx, func() { cancel(); <-t.slots }, nil
}

// awaitPeers gives the chosen brokers that are registered a moment to be
// connected: right after a start they are not, and would miss the first in-sync
// set for no reason.
func (t *Topics) awaitPeers(ctx context.Context, places [][]ident.Node) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	_ = t.catalog.Await(ctx, func() bool {
		for n := range byNode(places, 0) {
			if _, live := t.catalog.LiveNode(n); live && !t.up(n) {
				return false
			}
		}
		return true
	})
}

// prepare asks all chosen live brokers at once for stores. One that does not answer in
// time is left out.
func (t *Topics) prepare(ctx context.Context, c *creation) prepared {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout+time.Duration(len(c.places))*prepareEach)
	defer cancel()
	out := prepared{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for node, numbers := range byNode(c.places, c.first) {
		if _, live := t.catalog.LiveNode(node); !live {
			continue
		}
		asked.Go(func() {
			req := calls.PrepareRequest{Name: c.spec.name, Topic: c.id, Partitions: numbers, Durability: string(c.spec.durability)}
			resp, err := calls.Prepare.Ask(ctx, t.caller, node, req)
			if err != nil || len(resp.Stores) != len(numbers) {
				t.log.WithError(err).WithField("node", node).Warn("broker did not prepare its replicas")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[node] = map[int]ident.StoreID{}
			for i, n := range numbers {
				out[node][int(n)] = resp.Stores[i]
			}
		})
	}
	asked.Wait()
	return out
}

// release notifies the brokers that a creation failed. They ask the metadata before
// they drop anything.
func (t *Topics) release(ctx context.Context, c *creation) {
	if c.written || len(c.stores) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	for node, stores := range c.stores {
		req := calls.PrepareRequest{Name: c.spec.name, Topic: c.id}
		for n := range stores {
			req.Partitions = append(req.Partitions, uint16(n))
		}
		_, _ = calls.Release.Ask(ctx, t.caller, node, req) // an empty folder is left, no more
	}
}

// byNode gives the partitions of each broker; the first of the places is that of partition first.
func byNode(places [][]ident.Node, first int) map[ident.Node][]uint16 {
	out := map[ident.Node][]uint16{}
	for n, nodes := range places {
		for _, node := range nodes {
			out[node] = append(out[node], uint16(first+n))
		}
	}
	return out
}

// puts makes the values of a new topic: the in-sync set of a partition is the brokers
// that have prepared a replica, and the first of them leads.
func (t *Topics) puts(c *creation, old metadata.TopicState) ([]metadata.Put, error) {
	s := c.spec
	state := metadata.TopicState{V: metadata.Version, ID: c.id, Partitions: s.partitions, ReplicationFactor: s.replicas,
		MinInSync: s.minInSync, Durability: s.durability, Ordered: *s.ordered, Options: t.defaults.of(s.name).Options, Owner: s.owner}
	setLimits(&state, s.options, s.durability)
	if !s.explicit {
		state.DeletedAtMS = old.DeletedAtMS // a delete may still be repeated on another broker
	}
	puts := []metadata.Put{
		{Key: t.keys.Topic(s.name), Value: metadata.Encode(state)},
		{Key: t.keys.Tombstone(c.id), Delete: true}, // not there: a topic that can be made has no more puts than its deletion
	}
	return t.partitionPuts(c, puts)
}

// partitionPuts appends the values of the partitions' keys.
func (t *Topics) partitionPuts(c *creation, puts []metadata.Put) ([]metadata.Put, error) {
	for i, nodes := range c.places {
		n := c.first + i
		state := t.firstState(c, n, nodes)
		if len(state.ISR) < c.spec.minInSync {
			return nil, fmt.Errorf("%d of %d replicas of partition %d are ready", len(state.ISR), c.spec.minInSync, n)
		}
		key := t.keys.Partition(ident.Partition{Topic: c.id, Number: uint16(n)})
		puts = append(puts, metadata.Put{Key: key, Value: metadata.Encode(state)})
	}
	return puts, nil
}

// firstState is the first state of a partition. Its leader is a member of the in-sync set: as long as a leader
// that is no member lives, no member is elected.
func (t *Topics) firstState(c *creation, n int, nodes []ident.Node) metadata.PartitionState {
	state := metadata.PartitionState{V: metadata.Version, Replicas: nodes, Epoch: 1,
		MinInSync: c.spec.minInSync, Durability: c.spec.durability}
	var all, roomy []ident.Member
	incarnations := map[ident.Node]ident.Incarnation{}
	for _, node := range nodes {
		st, ok := c.stores.of(node, n)
		r, live := t.catalog.LiveNode(node)
		if !ok || !live {
			continue
		}
		incarnations[node] = r.Incarnation
		all = append(all, ident.Member{Node: node, Store: st})
		if !t.low(node) {
			roomy = append(roomy, ident.Member{Node: node, Store: st})
		}
	}
	state.ISR = all
	if len(roomy) >= state.MinInSync { // a full disk would have the puts wait for the first change of the set
		state.ISR = roomy
	}
	if len(state.ISR) > 0 {
		state.Leader = state.ISR[0].Node
		state.LeaderIncarnation = incarnations[state.Leader]
	}
	return state
}

// write runs the transaction; an unknown answer is read back.
func (t *Topics) write(ctx context.Context, c *creation, revision int64, puts []metadata.Put) error {
	key := t.keys.Topic(c.spec.name)
	short, cancel := context.WithTimeout(ctx, txn.LargeTimeout(len(puts)))
	ok, _, err := t.store.Txn(short, []metadata.Compare{{Key: key, Create: -1, Mod: revision}}, puts)
	cancel()
	if errors.Is(err, metadata.ErrInvalid) { // an external etcd with other limits than ours
		return fmt.Errorf("%w: %d partitions are written in one transaction, raise --max-txn-ops of etcd to %d: %w",
			api.ErrInvalid, c.spec.partitions, metadata.EmbeddedMaxTxn, err)
	}
	if err == nil && ok {
		return nil
	}
	e, readErr := t.store.Get(ctx, key)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if now, decodeErr := metadata.DecodeTopic(e); decodeErr == nil && now.ID == c.id {
		return nil
	}
	return errors.Join(errTaken, err)
}
