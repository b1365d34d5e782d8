package upkeep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/calls"
	"github.com/lockstepmq/lockstep/coordinator/catalog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/tasks"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/sirupsen/logrus"
)

const (
	// idleEvery is the least time between two questions to the leaders.
	idleEvery = 10 * time.Second
	// idleTimeout bounds a question; a leader that has not answered by then has not.
	idleTimeout = 2 * time.Second
	// idleAskers is how many brokers are asked at once.
	idleAskers = 16
)

// IdleOptions are all required.
type IdleOptions struct {
	Catalog *catalog.Catalog
	Caller  calls.Caller
	// Trash moves a topic into the trash, as it was read, while the fence holds. txn.ErrCompare: it
	// has changed.
	Trash func(ctx context.Context, name string, t meta.TopicState, fence ...meta.Compare) error
	Group *tasks.Group
	Log   logrus.FieldLogger
}

// IdleTopics moves topics into the trash that nothing has used for the time in their option
// (meta.TopicOptions.IdleMS): the leaders of all their partitions say so (Idleness), and once more
// directly before. A put or a subscription may come after the last answer and before the
// transaction: the put lies in the trash with the topic, the subscription ends and makes the topic
// anew. The controller alone calls Collect, in one goroutine.
type IdleTopics struct {
	o    IdleOptions
	busy atomic.Bool
	last time.Time // when the leaders were asked
}

// NewIdleTopics makes the state.
func NewIdleTopics(o IdleOptions) *IdleTopics { return &IdleTopics{o: o} }

// Collect looks for topics that nothing uses. It does not wait. fence is the controller's.
func (t *IdleTopics) Collect(fence meta.Compare) {
	if !t.last.IsZero() && time.Since(t.last) < idleEvery {
		return
	}
	t.last = time.Now()
	list := t.candidates()
	if len(list) == 0 || t.busy.Swap(true) {
		return
	}
	t.o.Group.Go(func(ctx context.Context) {
		defer t.busy.Store(false)
		answers := t.ask(ctx, 0)
		for name, state := range list {
			if !t.idle(state, answers) {
				continue
			}
			if err := t.remove(ctx, fence, name, state); err != nil && ctx.Err() == nil {
				t.o.Log.WithError(err).WithField("topic", name).Info("CONTROLLER could not delete an idle topic, trying again")
			}
		}
	})
}

// candidates are the topics that are deleted when nothing uses them. A topic that dead letters
// of others go to is none.
func (t *IdleTopics) candidates() map[string]meta.TopicState {
	list := map[string]meta.TopicState{}
	if t.o.Catalog.Cluster().Level < meta.LevelTrash {
		return nil
	}
	names := t.o.Catalog.Topics()
	for _, name := range names {
		if s, ok := t.o.Catalog.Topic(name); ok && s.Options.IdleMS > 0 && s.Growing == 0 && !nsqd.IsEphemeral(name) {
			list[name] = s
		}
	}
	if len(list) == 0 {
		return nil
	}
	for _, name := range names {
		s, _ := t.o.Catalog.Topic(name)
		t.leaveOutDeadLetters(list, s.ID)
	}
	for _, s := range t.o.Catalog.Trash() { // it may be undeleted
		t.leaveOutDeadLetters(list, s.Topic.ID)
	}
	return list
}

func (t *IdleTopics) leaveOutDeadLetters(list map[string]meta.TopicState, of ident.TopicID) {
	for _, c := range t.o.Catalog.Channels(of) {
		delete(list, c.Policy.DeadLetterTopic)
	}
}

// remove moves a topic into the trash if it is idle still.
func (t *IdleTopics) remove(ctx context.Context, fence meta.Compare, name string, s meta.TopicState) error {
	if now := t.candidates()[name]; now.ID != s.ID || now.Revision != s.Revision || !t.idle(s, t.ask(ctx, s.ID)) {
		return nil
	}
	err := t.o.Trash(ctx, name, s, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker controls
	}
	if err == nil {
		t.o.Log.WithField("topic", name).WithField("topic_id", s.ID).Infof(
			"TOPIC deleted: it has had no put, no consumer and no unfinished message for %s (idle_after); it can be undeleted (nsqctl topic undelete)", time.Duration(s.Options.IdleMS)*time.Millisecond)
	}
	return err
}

// leaderOf is the leadership of a partition.
type leaderOf struct {
	partition ident.Partition
	node      ident.Node
	epoch     ident.Epoch
}

// ask asks the brokers for how long partitions of a topic have not been used; 0 = of all topics.
func (t *IdleTopics) ask(ctx context.Context, topic ident.TopicID) map[leaderOf]time.Duration {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	nodes, answers := t.o.Catalog.LiveNodes(), map[leaderOf]time.Duration{}
	var mu sync.Mutex
	tasks.Each(len(nodes), idleAskers, func(i int) {
		n := nodes[i].Name
		reply, err := calls.Idle.Ask(ctx, t.o.Caller, n, calls.IdleRequest{Topic: uint64(topic)})
		if err != nil {
			return // its partitions are in use, for all that is known
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range reply.Partitions {
			answers[leaderOf{p.Partition(), n, ident.Epoch(p.Epoch)}] = time.Duration(p.IdleMS) * time.Millisecond
		}
	})
	return answers
}

// idle reports whether the present leaders of all partitions of a topic have said that nothing has
// used them for the time in its option.
func (t *IdleTopics) idle(s meta.TopicState, answers map[leaderOf]time.Duration) bool {
	for n := range s.Span() {
		id := ident.Partition{Topic: s.ID, Number: uint16(n)}
		p, ok := t.o.Catalog.Partition(id)
		since, answered := answers[leaderOf{id, p.Leader, p.Epoch}]
		if !ok || !answered || since < time.Duration(s.Options.IdleMS)*time.Millisecond {
			return false
		}
	}
	return true
}
