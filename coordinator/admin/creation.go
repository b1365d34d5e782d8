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
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	prepareTimeout = time.Second           // limit for one broker's answer; a slower broker is left out of the first in-sync set
	prepareEach    = 10 * time.Millisecond // in addition, for each partition
	connectWait    = 200 * time.Millisecond
	// makers bounds the topics that a broker creates at the same time. makers plus askers is below the number of
	// concurrent calls that a connection between brokers serves. So among a thousand simultaneous requests none is
	// refused, and none starts with fewer replicas than available.
	makers = 24
)

// errTaken means that another broker created the topic at the same time.
var errTaken = errors.New("admin: the topic was created by another broker")

// creation is a topic that is being created, over all attempts.
type creation struct {
	name     string
	topic    metadata.TopicState // as it will be
	explicit bool                // requested explicitly, not implied by a put
	first    int                 // number of the first partition; 0 unless a topic grows
	hold     time.Duration       // how long it is retried
	began    time.Time           // of the first attempt
	places   [][]ident.Node
	stores   prepared
	written  bool // or perhaps
}

// prepared holds the stores that brokers created, by node and partition number.
type prepared map[ident.Node]map[int]ident.StoreID

func (c *creation) begin() {
	if c.began.IsZero() {
		c.began = time.Now()
	}
}

// try chooses brokers, lets them prepare replicas, and writes the topic and all its partition keys in one transaction.
// It replaces the record old, which is that of a deleted topic or the zero value. nil: the topic exists.
func (t *topics) try(ctx context.Context, c *creation, old metadata.TopicState) (err error) {
	if live := len(t.catalog.LiveNodes()); live < c.topic.MinInSync {
		c.begin()
		return fmt.Errorf("%d of %d brokers are live", live, c.topic.MinInSync)
	}
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.slots }()
	c.begin()
	ctx, cancel := context.WithTimeout(ctx, time.Until(c.began.Add(c.hold)))
	defer cancel()
	if err := t.ready(ctx, c); err != nil {
		return err
	}
	puts, err := t.puts(c, old)
	if err != nil {
		return err
	}
	if old.Deleted && !old.Trashed { // without the topic's key, channels left by an interrupted deletion would never be found
		if err := txn.DeleteAll(ctx, t.store, t.keys.Channels(old.ID)); err != nil {
			return err
		}
	}
	err = t.write(ctx, c, old.Revision, puts)
	c.written = c.written || err == nil || errors.Is(err, metadata.ErrUnknown) // it may land yet
	return err
}

// ready chooses brokers, unless an earlier attempt has, and lets them prepare replicas.
func (t *topics) ready(ctx context.Context, c *creation) (err error) {
	if c.places == nil {
		replicas := c.topic.ReplicationFactor
		wish := plan.Placement{Partitions: c.topic.Partitions, Replicas: replicas}
		if c.places, err = plan.Place(t.catalog.Candidates(replicas, t.o.Low), wish); err != nil {
			return err
		}
		t.leadersFirst(c.places)
	}
	t.awaitPeers(ctx, c.places)
	c.stores = t.prepare(ctx, c)
	return nil
}

// leadersFirst moves brokers that are drained or below their disk reserve to the end, because the first replica is the
// preferred leader. Such brokers are chosen only if there are too few others.
func (t *topics) leadersFirst(places [][]ident.Node) {
	rank := func(n ident.Node) int {
		if t.catalog.Drain(n) != "" || t.o.Low(n) {
			return 1
		}
		return 0
	}
	for _, nodes := range places {
		slices.SortStableFunc(nodes, func(a, b ident.Node) int { return cmp.Compare(rank(a), rank(b)) })
	}
}

// awaitPeers waits briefly for the connections to the chosen brokers that are registered: right after a start they are
// missing, and the brokers would not be in the first in-sync set.
func (t *topics) awaitPeers(ctx context.Context, places [][]ident.Node) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	_ = t.catalog.Await(ctx, func() bool {
		for n := range byNode(places, 0) {
			if _, live := t.catalog.LiveNode(n); live && !t.o.Up(n) {
				return false
			}
		}
		return true
	})
}

// prepare asks all chosen live brokers concurrently for stores. A broker that does not answer in time is left out.
func (t *topics) prepare(ctx context.Context, c *creation) prepared {
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
			req := calls.PrepareRequest{Name: c.name, Topic: c.topic.ID, Partitions: numbers, Durability: string(c.topic.Durability)}
			resp, err := calls.Prepare.Ask(ctx, t.o.Caller, node, req)
			if err != nil || len(resp.Stores) != len(numbers) {
				t.o.Log.WithError(err).WithField("node", node).Warn("broker did not prepare its replicas")
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

// release notifies the brokers that a creation failed. They ask the metadata before they drop anything.
func (t *topics) release(ctx context.Context, c *creation) {
	if c.written || len(c.stores) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	for node, stores := range c.stores {
		req := calls.PrepareRequest{Name: c.name, Topic: c.topic.ID}
		for n := range stores {
			req.Partitions = append(req.Partitions, uint16(n))
		}
		_, _ = calls.Release.Ask(ctx, t.o.Caller, node, req) // a failure leaves an empty folder
	}
}

// byNode lists the partitions of each broker; places[0] belongs to partition first.
func byNode(places [][]ident.Node, first int) map[ident.Node][]uint16 {
	out := map[ident.Node][]uint16{}
	for n, nodes := range places {
		for _, node := range nodes {
			out[node] = append(out[node], uint16(first+n))
		}
	}
	return out
}

// puts returns the values of a new topic. The in-sync set of a partition is the brokers that have prepared a replica,
// and the first of them leads.
func (t *topics) puts(c *creation, old metadata.TopicState) ([]metadata.Put, error) {
	state := c.topic
	if !c.explicit {
		state.DeletedAtMS = old.DeletedAtMS // nsqadmin may repeat the deletion at another broker
	}
	puts := []metadata.Put{
		{Key: t.keys.Topic(c.name), Value: metadata.Encode(state)},
		{Key: t.keys.Tombstone(c.topic.ID), Delete: true}, // no-op: gives the creation as many operations as a deletion, so a topic that fits can also be deleted
	}
	return t.partitionPuts(c, puts)
}

func (t *topics) partitionPuts(c *creation, puts []metadata.Put) ([]metadata.Put, error) {
	for i, nodes := range c.places {
		n := c.first + i
		state := t.firstState(c, n, nodes)
		if len(state.ISR) < c.topic.MinInSync {
			c.places = nil // the next attempt chooses again
			return nil, fmt.Errorf("%d of %d replicas of partition %d are ready", len(state.ISR), c.topic.MinInSync, n)
		}
		puts = append(puts, metadata.Put{Key: t.keys.Partition(c.topic.Partition(n)), Value: metadata.Encode(state)})
	}
	return puts, nil
}

// firstState is the first state of a partition. Its leader is a member of the in-sync set: while a leader outside the
// set lived, no member would be elected.
func (t *topics) firstState(c *creation, n int, nodes []ident.Node) metadata.PartitionState {
	state := metadata.PartitionState{V: metadata.Version, Replicas: nodes, Epoch: 1,
		MinInSync: c.topic.MinInSync, Durability: c.topic.Durability}
	var all, roomy []ident.Member
	incarnations := map[ident.Node]ident.Incarnation{}
	for _, node := range nodes {
		st, ok := c.stores[node][n]
		r, live := t.catalog.LiveNode(node)
		if !ok || !live {
			continue
		}
		incarnations[node] = r.Incarnation
		all = append(all, ident.Member{Node: node, Store: st})
		if !t.o.Low(node) {
			roomy = append(roomy, ident.Member{Node: node, Store: st})
		}
	}
	state.ISR = all
	if len(roomy) >= state.MinInSync { // with a full disk, puts would wait for the first change of the set
		state.ISR = roomy
	}
	if len(state.ISR) > 0 {
		state.Leader = state.ISR[0].Node
		state.LeaderIncarnation = incarnations[state.Leader]
	}
	return state
}

// write runs the transaction. After an unknown outcome it reads the key.
func (t *topics) write(ctx context.Context, c *creation, revision int64, puts []metadata.Put) error {
	key := t.keys.Topic(c.name)
	short, cancel := context.WithTimeout(ctx, txn.LargeTimeout(len(puts)))
	ok, _, err := t.store.Txn(short, []metadata.Compare{{Key: key, Create: -1, Mod: revision}}, puts)
	cancel()
	if errors.Is(err, metadata.ErrInvalid) { // an external etcd with other limits than ours
		return fmt.Errorf("%w: one transaction writes %s, raise --max-txn-ops of etcd to %d: %w",
			outcome.ErrInvalid, api.Count(c.topic.Partitions, "partition"), metadata.EmbeddedMaxTxn, err)
	}
	if err == nil && ok {
		return nil
	}
	e, readErr := t.store.Get(ctx, key)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if now, decodeErr := metadata.DecodeTopic(e); decodeErr == nil && now.ID == c.topic.ID {
		return nil
	}
	return errors.Join(errTaken, err)
}
