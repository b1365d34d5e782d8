package catalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

// Registration is the value of live/<node>: one run of one broker.
type Registration struct {
	metadata.NodeState
	Incarnation ident.Incarnation
	Mod         int64 // ModRevision of the key
}

// Leadership is one broker's leadership of a partition.
type Leadership struct {
	Node        ident.Node
	Incarnation ident.Incarnation // the run of the leader's process
	Epoch       ident.Epoch
}

// Catalog is the state of the watched metadata.
type Catalog struct {
	keys    metadata.Keys
	log     logrus.FieldLogger
	changes *concurrency.Signal
	mu      struct {
		sync.RWMutex
		state
	}
}

// state is the metadata by key. Catalog.mu guards it.
type state struct {
	topics     map[string]metadata.TopicState // tombstones included
	names      map[ident.TopicID]string
	partitions map[ident.Partition]metadata.PartitionState
	channels   map[ident.TopicID]map[string]metadata.ChannelState
	trash      map[ident.TopicID]metadata.TrashState
	clockMS    int64                     // of the cluster, as last written
	gone       map[goneChannel]time.Time // when keys of channels were removed; at most maxGone
	deleted    map[string]deletion       // the last deletion of each topic's name
	nodes      map[ident.Node]metadata.NodeState
	live       map[ident.Node]Registration
	controller ident.Node
	cluster    metadata.ClusterState
}

// goneChannel identifies a channel whose key was removed.
type goneChannel struct {
	topic   ident.TopicID
	channel string
}

// maxGone limits the number of remembered deletions of channels. Beyond it all of them are forgotten.
const maxGone = 1 << 12

// deletion is the time in a topic's key, by the clock of the broker that deleted the topic, and when this broker saw
// it; zero: before its watch began.
type deletion struct {
	atMS int64
	seen time.Time
}

// New makes an empty catalog of one cluster's keys.
func New(keys metadata.Keys, log logrus.FieldLogger) *Catalog {
	c := &Catalog{keys: keys, log: log, changes: concurrency.NewSignal()}
	c.mu.state = emptyState()
	return c
}

func emptyState() state {
	return state{
		topics:     map[string]metadata.TopicState{},
		names:      map[ident.TopicID]string{},
		partitions: map[ident.Partition]metadata.PartitionState{},
		channels:   map[ident.TopicID]map[string]metadata.ChannelState{},
		trash:      map[ident.TopicID]metadata.TrashState{},
		gone:       map[goneChannel]time.Time{},
		deleted:    map[string]deletion{},
		nodes:      map[ident.Node]metadata.NodeState{},
		live:       map[ident.Node]Registration{},
	}
}

// Changed is closed at the next Notify: the metadata, the leadership of a partition here, or the set of brokers that answer
// has changed. Get it before reading the state.
func (c *Catalog) Changed() <-chan struct{} { return c.changes.Changed() }

// Notify wakes all goroutines that wait for a change.
func (c *Catalog) Notify() { c.changes.Notify() }

// Close ends all current and later waits.
func (c *Catalog) Close() { c.changes.Close() }

// Await waits until ok returns true, and calls it after each change. ErrUnavailable: ctx ended first, or the broker stops.
func (c *Catalog) Await(ctx context.Context, ok func() bool) error {
	err := c.changes.Await(ctx, ok)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: this broker has not received the change yet: %w", outcome.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
}
