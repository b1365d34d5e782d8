package maintenance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

// idleDeleter deletes topics and channels that nothing uses. It asks the leaders once for both (Idleness).
//
// It moves a topic into the trash that nothing has used for the time in its option (metadata.TopicOptions.IdleMS), as the
// leaders of all its partitions report, and once more directly before. A put or a subscription may come after the last answer
// and before the transaction: the put is in the trash with the topic, the subscription ends and recreates the topic.
//
// It deletes a channel that nothing has used for the time in its topic's option (ChannelIdleMS). A channel has no trash, so
// the grace comes before the deletion: the channel is announced when the leaders of all partitions report that nothing has
// used it, and is deleted one grace later. A use ends the announcement. The announcements are in the memory of the controller:
// a new controller restarts each grace.
type idleDeleter struct {
	*Broker
	busy atomic.Bool
	last time.Time // when the leaders were asked

	mu        sync.Mutex
	tenure    int64 // the fence since which the announcements are valid
	announced map[channelKey]announcement
}

// collect finds channels and topics that nothing uses. It does not wait. fence is the controller's, which alone calls it, in
// one goroutine.
func (i *idleDeleter) collect(fence metadata.Compare) {
	if !i.last.IsZero() && time.Since(i.last) < idleEvery {
		return
	}
	i.last = time.Now()
	channels, topics := i.channelCandidates(0), i.topicCandidates()
	i.prune(fence, channels)
	if len(channels)+len(topics) == 0 || i.busy.Swap(true) {
		return
	}
	i.Group.Go(func(ctx context.Context) {
		defer i.busy.Store(false)
		answers := i.ask(ctx, 0)
		for _, c := range channels {
			if err := i.judge(ctx, fence, c, answers); err != nil && ctx.Err() == nil {
				i.Log.WithError(err).WithFields(logrus.Fields{"action": "delete_idle_channel", "topic": c.name, "channel": c.channel}).Info("controller action failed, trying again")
			}
		}
		for name, state := range topics {
			if err := i.removeTopic(ctx, fence, name, state, answers); err != nil && ctx.Err() == nil {
				i.Log.WithError(err).WithField("action", "delete_idle_topic").WithField("topic", name).Info("controller action failed, trying again")
			}
		}
	})
}

const (
	idleEvery   = 10 * time.Second // least time between two requests to the leaders
	idleTimeout = 2 * time.Second  // of a request
	idleAskers  = 16               // concurrent requests
)

// topicCandidates are the topics that are deleted when idle. A dead-letter topic is never idle.
func (i *idleDeleter) topicCandidates() map[string]metadata.TopicState {
	return i.topicsWith(func(o metadata.TopicOptions) bool { return o.IdleMS > 0 })
}

// topicsWith are the topics with an option by which they, or their channels, are deleted when idle.
func (i *idleDeleter) topicsWith(option func(metadata.TopicOptions) bool) map[string]metadata.TopicState {
	list := map[string]metadata.TopicState{}
	c := i.Catalog
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

// removeTopic moves a topic into the trash if its leaders have reported that it is idle, and do so again.
func (i *idleDeleter) removeTopic(ctx context.Context, fence metadata.Compare, name string, s metadata.TopicState, answers idleAnswers) error {
	if !i.topicIdle(s, answers) {
		return nil
	}
	if now := i.topicCandidates()[name]; now.ID != s.ID || now.Revision != s.Revision || !i.topicIdle(s, i.ask(ctx, s.ID)) {
		return nil
	}
	err := i.Admin.TrashIdle(ctx, name, s, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker controls
	}
	if err == nil {
		i.Metrics.Add(metrics.IdleTopics, 1)
		i.Log.WithFields(logrus.Fields{"topic": name, "topic_id": s.ID, "for": time.Duration(s.Options.IdleMS) * time.Millisecond}).
			Info("idle topic deleted: it had no put, no consumer and no unfinished message (idle_after); nsqctl topic undelete restores it")
	}
	return err
}

type leaderOf struct {
	partition ident.Partition
	node      ident.Node
	epoch     ident.Epoch
}

type idleChannel struct {
	leaderOf
	channel string
	id      uint64
}

type idleAnswers struct {
	answered   map[ident.Node]bool
	partitions map[leaderOf]time.Duration
	channels   map[idleChannel]time.Duration
}

// ask asks the brokers how long partitions of a topic (0: of all), and channels in them, have not been used.
func (i *idleDeleter) ask(ctx context.Context, topic ident.TopicID) idleAnswers {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	nodes := i.Catalog.LiveNodes()
	answers := idleAnswers{map[ident.Node]bool{}, map[leaderOf]time.Duration{}, map[idleChannel]time.Duration{}}
	var mu sync.Mutex
	concurrency.Each(len(nodes), idleAskers, func(k int) {
		n := nodes[k].Name
		reply, err := calls.Idle.Ask(ctx, i.Caller, n, calls.IdleRequest{Topic: topic})
		if err != nil {
			return // its partitions may be in use
		}
		mu.Lock()
		defer mu.Unlock()
		answers.answered[n] = true
		for _, p := range reply.Partitions {
			answers.partitions[leaderOf{p.Partition, n, p.Epoch}] = time.Duration(p.IdleMS) * time.Millisecond
		}
		for _, x := range reply.Channels {
			answers.channels[idleChannel{leaderOf{x.Partition, n, x.Epoch}, x.Channel, x.ID}] = time.Duration(x.IdleMS) * time.Millisecond
		}
	})
	return answers
}

// topicIdle reports whether the current leaders of all partitions of a topic report that nothing has used them for the time in
// its option.
func (i *idleDeleter) topicIdle(s metadata.TopicState, answers idleAnswers) bool {
	for n := range s.Span() {
		id := s.Partition(n)
		p, ok := i.Catalog.Partition(id)
		since, answered := answers.partitions[leaderOf{id, p.Leader, p.Epoch}]
		if !ok || !answered || since < time.Duration(s.Options.IdleMS)*time.Millisecond {
			return false
		}
	}
	return true
}
