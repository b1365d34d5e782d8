package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// idleDeleter deletes topics and channels that nothing uses. It queries the leaders once for both (Idleness).
//
// It moves a topic into the trash that nothing has used for the time in its option (metadata.TopicOptions.IdleMS), as
// the leaders of all its partitions report, and once more directly before. A put or a subscription may arrive after the
// last answer and before the transaction. Then the put is in the trash with the topic, and the subscription ends and
// recreates the topic.
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
	tenure    int64 // the controller's tenure to which the announcements belong
	announced map[channelKey]announcement
}

// collect finds channels and topics that nothing uses. It does not block. fence is the controller's fence; only the
// controller calls collect, in one goroutine.
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

// removeTopic moves a topic into the trash if its leaders have reported that it is idle, and report it again.
func (i *idleDeleter) removeTopic(ctx context.Context, fence metadata.Compare, name string, s metadata.TopicState, answers idleAnswers) error {
	if !i.topicIdle(s, answers) {
		return nil
	}
	if now := i.topicCandidates()[name]; now.ID != s.ID || now.Revision != s.Revision || !i.topicIdle(s, i.ask(ctx, s.ID)) {
		return nil
	}
	err := i.Admin.TrashIdle(ctx, name, s, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker is the controller
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

// idleDeleteTimeout bounds the deletion of an idle channel: all leaders of its topic take part.
const idleDeleteTimeout = 5 * time.Second

// channelKey identifies a channel of a topic, as distinct from earlier channels of the same name.
type channelKey struct {
	topic   ident.TopicID
	channel string
	id      uint64
}

// announcement is a channel that will be deleted.
type announcement struct {
	topic string
	idle  time.Duration // the option of the topic
	at    time.Time
}

// idleCandidate is a channel that is deleted when nothing uses it.
type idleCandidate struct {
	name    string // of the topic
	topic   metadata.TopicState
	channel string
	state   metadata.ChannelState
}

func (c idleCandidate) key() channelKey { return channelKey{c.topic.ID, c.channel, c.state.ID} }

func (c idleCandidate) path() string { return c.name + "/" + c.channel }

// prune removes the announcements of an earlier tenure, and of channels that are gone or whose topic no longer has the option.
func (i *idleDeleter) prune(fence metadata.Compare, list []idleCandidate) {
	there := map[channelKey]bool{}
	for _, c := range list {
		there[c.key()] = true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.tenure != fence.Create {
		i.tenure = fence.Create
		clear(i.announced)
	}
	for key := range i.announced {
		if !there[key] {
			delete(i.announced, key)
		}
	}
}

// channelCandidates are the channels that are deleted when idle, of one topic or of all (0). A channel of a dead-letter topic
// is never idle: its messages wait for an operator.
func (i *idleDeleter) channelCandidates(of ident.TopicID) (list []idleCandidate) {
	if i.DeleteGrace <= 0 {
		return nil
	}
	for name, t := range i.topicsWith(func(o metadata.TopicOptions) bool { return o.ChannelIdleMS > 0 }) {
		if of != 0 && t.ID != of {
			continue
		}
		for channel, c := range i.Catalog.Channels(t.ID) {
			list = append(list, idleCandidate{name, t, channel, c})
		}
	}
	slices.SortFunc(list, func(a, b idleCandidate) int { return cmp.Compare(a.path(), b.path()) })
	return list
}

// judge announces a channel, ends its announcement, or deletes it.
func (i *idleDeleter) judge(ctx context.Context, fence metadata.Compare, c idleCandidate, answers idleAnswers) error {
	if c.state.Deleting { // a deletion was interrupted
		return i.delete(ctx, fence, c)
	}
	i.mu.Lock()
	a, announced := i.announced[c.key()]
	i.mu.Unlock()
	idle, known := i.channelIdle(c, answers)
	switch {
	case !known: // a leader has not answered
	case announced && (idle == 0 || idle < time.Since(a.at)):
		i.end(c)
	case idle > 0 && !announced:
		i.announce(c, idle)
	case announced && time.Since(a.at) >= i.DeleteGrace:
		return i.removeChannel(ctx, fence, c, a)
	}
	return nil
}

// channelIdle is how long nothing has used a channel, as reported by the current leaders of all partitions; 0: less than the
// time in the option, or it is in use. known is false if one of them did not answer.
func (i *idleDeleter) channelIdle(c idleCandidate, answers idleAnswers) (idle time.Duration, known bool) {
	for n := range c.topic.Span() {
		id := c.topic.Partition(n)
		p, ok := i.Catalog.Partition(id)
		if !ok || !answers.answered[p.Leader] {
			return 0, false
		}
		since := answers.channels[idleChannel{leaderOf{id, p.Leader, p.Epoch}, c.channel, c.state.ID}]
		if n == 0 || since < idle {
			idle = since
		}
	}
	return idle, true
}

func (i *idleDeleter) announce(c idleCandidate, idle time.Duration) {
	a := announcement{c.name, time.Duration(c.topic.Options.ChannelIdleMS) * time.Millisecond, time.Now()}
	i.mu.Lock()
	i.announced[c.key()] = a
	i.mu.Unlock()
	idle = idle.Round(time.Second)
	text := fmt.Sprintf("channel %s will be deleted with its messages in %s: it has had no consumer and no operation for %s (channel_idle_after)", c.path(), i.DeleteGrace, idle)
	i.note(c, "channel_idle", "degraded", text)
	i.Log.WithFields(logrus.Fields{"topic": c.name, "channel": c.channel, "for": idle, "grace": i.DeleteGrace}).Warn("idle channel will be deleted with its messages after the grace period")
}

// end ends an announcement: the channel is or was in use.
func (i *idleDeleter) end(c idleCandidate) {
	i.mu.Lock()
	delete(i.announced, c.key())
	i.mu.Unlock()
	text := fmt.Sprintf("channel %s stays: it was used, or has another leader", c.path())
	i.note(c, "channel_stays", "healthy", text)
	i.Log.WithField("topic", c.name).WithField("channel", c.channel).Info("channel is not deleted: it was used, or has another leader")
}

func (i *idleDeleter) note(c idleCandidate, code, state, text string) {
	i.Events.Add(events.Event{Kind: events.Topic, Topic: c.name, ID: ident.Partition{Topic: c.topic.ID}, Code: code, State: state, Text: text, Broker: i.Self})
}

// removeChannel deletes a channel if its leaders report again that it is idle.
func (i *idleDeleter) removeChannel(ctx context.Context, fence metadata.Compare, c idleCandidate, a announcement) error {
	now := i.channelCandidates(c.topic.ID) // read again: the deletion of another channel changes the topic's key
	at := slices.IndexFunc(now, func(x idleCandidate) bool { return x.key() == c.key() && x.state.Revision == c.state.Revision })
	if at < 0 {
		return nil
	}
	c = now[at]
	idle, known := i.channelIdle(c, i.ask(ctx, c.topic.ID))
	if !known || idle == 0 || idle < time.Since(a.at) {
		return nil
	}
	if err := i.delete(ctx, fence, c); err != nil {
		return err
	}
	idle = idle.Round(time.Second)
	text := fmt.Sprintf("channel %s was deleted: it had no consumer and no operation for %s", c.path(), idle)
	i.note(c, "channel_deleted", "healthy", text)
	i.Log.WithFields(logrus.Fields{"topic": c.name, "channel": c.channel, "for": idle}).Warn("idle channel deleted with its messages")
	i.Metrics.Add(metrics.IdleChannels, 1)
	return nil
}

func (i *idleDeleter) delete(ctx context.Context, fence metadata.Compare, c idleCandidate) error {
	ctx, cancel := context.WithTimeout(ctx, idleDeleteTimeout)
	defer cancel()
	err := i.Admin.DeleteIdle(ctx, c.name, c.topic, c.channel, c.state, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker is the controller
	}
	return err
}

// Announced lists the channels that this broker, as the controller, will delete, next deletion first. Any goroutine may call
// it.
func (i *idleDeleter) Announced() (list []api.IdleChannel) {
	if i.Catalog.Controller() != i.Self {
		return nil
	}
	i.mu.Lock()
	announced := maps.Clone(i.announced)
	i.mu.Unlock()
	for key, a := range announced {
		if c, ok := i.Catalog.Channels(key.topic)[key.channel]; !ok || c.ID != key.id || c.Deleting {
			continue // an operator or this broker has just deleted it
		}
		list = append(list, api.IdleChannel{Topic: a.topic, Channel: key.channel, IdleMS: (a.idle + time.Since(a.at)).Milliseconds(), DeletesAtMS: a.at.Add(i.DeleteGrace).UnixMilli()})
	}
	slices.SortFunc(list, func(a, b api.IdleChannel) int {
		return cmp.Or(cmp.Compare(a.DeletesAtMS, b.DeletesAtMS), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Channel, b.Channel))
	})
	return list
}
