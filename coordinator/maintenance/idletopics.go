package maintenance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
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

// IdleOptions are all required but Metrics.
type IdleOptions struct {
	Catalog *catalog.Catalog
	Caller  calls.Caller
	// Trash moves a topic into the trash, as it was read, while the fence holds. txn.ErrCompare: it
	// has changed.
	Trash   func(ctx context.Context, name string, t metadata.TopicState, fence ...metadata.Compare) error
	Metrics *metrics.Recorder // nil = nothing is recorded
	Log     logrus.FieldLogger
}

// IdleTopics moves topics into the trash that nothing has used for the time in their option
// (metadata.TopicOptions.IdleMS): the leaders of all their partitions say so (Idleness), and once more
// directly before. A put or a subscription may come after the last answer and before the
// transaction: the put lies in the trash with the topic, the subscription ends and recreates the topic.
// IdleControl drives it.
type IdleTopics struct{ o IdleOptions }

// NewIdleTopics makes the state.
func NewIdleTopics(o IdleOptions) *IdleTopics { return &IdleTopics{o: o} }

// collect judges the candidates by the answers of their leaders.
func (t *IdleTopics) collect(ctx context.Context, fence metadata.Compare, list map[string]metadata.TopicState, answers idleAnswers) {
	for name, state := range list {
		if !t.idle(state, answers) {
			continue
		}
		if err := t.remove(ctx, fence, name, state); err != nil && ctx.Err() == nil {
			t.o.Log.WithError(err).WithField("action", "delete_idle_topic").WithField("topic", name).Info("controller action failed, trying again")
		}
	}
}

// candidates are the topics that are deleted when nothing uses them. A topic that dead letters
// of other topics go to is never idle.
func (t *IdleTopics) candidates() map[string]metadata.TopicState {
	return idleTopics(t.o.Catalog, func(o metadata.TopicOptions) bool { return o.IdleMS > 0 })
}

// idleTopics are the topics with an option by which they, or their channels, are deleted when nothing uses
// them.
func idleTopics(c *catalog.Catalog, option func(metadata.TopicOptions) bool) map[string]metadata.TopicState {
	list := map[string]metadata.TopicState{}
	names := c.Topics()
	for _, name := range names {
		if s, ok := c.Topic(name); ok && option(s.Options) && s.Growing == 0 && !nsqd.IsEphemeral(name) {
			list[name] = s
		}
	}
	if len(list) == 0 {
		return nil
	}
	for _, name := range names {
		s, _ := c.Topic(name)
		leaveOutDeadLetters(c, list, s.ID)
	}
	for _, s := range c.Trash() { // it may be undeleted
		leaveOutDeadLetters(c, list, s.Topic.ID)
	}
	return list
}

func leaveOutDeadLetters(c *catalog.Catalog, list map[string]metadata.TopicState, of ident.TopicID) {
	for _, channel := range c.Channels(of) {
		delete(list, channel.Policy.DeadLetterTopic)
	}
}

// remove moves a topic into the trash if it is idle still.
func (t *IdleTopics) remove(ctx context.Context, fence metadata.Compare, name string, s metadata.TopicState) error {
	if now := t.candidates()[name]; now.ID != s.ID || now.Revision != s.Revision || !t.idle(s, askIdle(ctx, t.o.Catalog, t.o.Caller, s.ID)) {
		return nil
	}
	err := t.o.Trash(ctx, name, s, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker controls
	}
	if err == nil {
		t.o.Metrics.Add(metrics.IdleTopics, 1)
		t.o.Log.WithFields(logrus.Fields{"topic": name, "topic_id": s.ID, "for": time.Duration(s.Options.IdleMS) * time.Millisecond}).
			Info("idle topic deleted: it had no put, no consumer and no unfinished message (idle_after); nsqctl topic undelete restores it")
	}
	return err
}

// leaderOf is the leadership of a partition.
type leaderOf struct {
	partition ident.Partition
	node      ident.Node
	epoch     ident.Epoch
}

// idleChannel is a channel at the leader of a partition.
type idleChannel struct {
	leaderOf
	channel string
	id      uint64
}

// idleAnswers are the answers of the brokers that have answered.
type idleAnswers struct {
	answered   map[ident.Node]bool
	partitions map[leaderOf]time.Duration
	channels   map[idleChannel]time.Duration
}

// askIdle asks the brokers for how long partitions of a topic, and channels in them, have not been used; 0 =
// of all topics.
func askIdle(ctx context.Context, c *catalog.Catalog, caller calls.Caller, topic ident.TopicID) idleAnswers {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	nodes := c.LiveNodes()
	answers := idleAnswers{map[ident.Node]bool{}, map[leaderOf]time.Duration{}, map[idleChannel]time.Duration{}}
	var mu sync.Mutex
	concurrency.Each(len(nodes), idleAskers, func(i int) {
		n := nodes[i].Name
		reply, err := calls.Idle.Ask(ctx, caller, n, calls.IdleRequest{Topic: uint64(topic)})
		if err != nil {
			return // its partitions are in use, for all that is known
		}
		mu.Lock()
		defer mu.Unlock()
		answers.answered[n] = true
		for _, p := range reply.Partitions {
			answers.partitions[leaderOf{p.Partition(), n, ident.Epoch(p.Epoch)}] = time.Duration(p.IdleMS) * time.Millisecond
		}
		for _, x := range reply.Channels {
			answers.channels[idleChannel{leaderOf{x.Partition(), n, ident.Epoch(x.Epoch)}, x.Channel, x.ID}] = time.Duration(x.IdleMS) * time.Millisecond
		}
	})
	return answers
}

// idle reports whether the present leaders of all partitions of a topic have said that nothing has
// used them for the time in its option.
func (t *IdleTopics) idle(s metadata.TopicState, answers idleAnswers) bool {
	for n := range s.Span() {
		id := ident.Partition{Topic: s.ID, Number: uint16(n)}
		p, ok := t.o.Catalog.Partition(id)
		since, answered := answers.partitions[leaderOf{id, p.Leader, p.Epoch}]
		if !ok || !answered || since < time.Duration(s.Options.IdleMS)*time.Millisecond {
			return false
		}
	}
	return true
}
