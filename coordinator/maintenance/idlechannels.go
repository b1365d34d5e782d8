package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// idleDeleteTimeout bounds the deletion of an idle channel: all leaders of its topic take part.
const idleDeleteTimeout = 5 * time.Second

// IdleChannelOptions are all required but Metrics and Events.
type IdleChannelOptions struct {
	Self    ident.Node
	Catalog *catalog.Catalog
	Caller  calls.Caller
	// Grace is the time from the announcement to the deletion; 0: no channel is announced.
	Grace time.Duration
	// Delete deletes a channel as it and its topic were read, while the fence holds. txn.ErrCompare: one of
	// them has changed.
	Delete  func(ctx context.Context, topic string, t metadata.TopicState, channel string, c metadata.ChannelState, fence ...metadata.Compare) error
	Metrics *metrics.Recorder
	Events  *events.Recorder
	Log     logrus.FieldLogger
}

// IdleChannels deletes channels that nothing has used for the time in their topic's option
// (metadata.TopicOptions.ChannelIdleMS). A channel has no trash, so the grace comes before the deletion: the
// channel is announced when the leaders of all partitions say that nothing has used it (Idleness), and is
// deleted one grace later. A use ends the announcement. The announcements are in the memory of the
// controller: a new controller restarts each grace. IdleControl drives it.
type IdleChannels struct {
	o IdleChannelOptions

	mu        sync.Mutex
	tenure    int64 // the fence since which the announcements hold
	announced map[channelKey]announcement
}

// channelKey names a channel of a topic, and no other channel that had its name.
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

func (c idleCandidate) String() string { return c.name + "/" + c.channel }

// NewIdleChannels makes the state.
func NewIdleChannels(o IdleChannelOptions) *IdleChannels {
	return &IdleChannels{o: o, announced: map[channelKey]announcement{}}
}

// collect judges the candidates by the answers of their leaders.
func (i *IdleChannels) collect(ctx context.Context, fence metadata.Compare, list []idleCandidate, answers idleAnswers) {
	for _, c := range list {
		if err := i.judge(ctx, fence, c, answers); err != nil && ctx.Err() == nil {
			i.o.Log.WithError(err).WithFields(logrus.Fields{"action": "delete_idle_channel", "topic": c.name, "channel": c.channel}).Info("controller action failed, trying again")
		}
	}
}

// prune forgets the announcements of an earlier tenure, and of channels that are gone or whose topic no longer has
// the option.
func (i *IdleChannels) prune(fence metadata.Compare, list []idleCandidate) {
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

// candidates are the channels that are deleted when nothing uses them, of one topic or of all (0). A channel
// of a dead-letter topic is never idle: its messages wait for an operator.
func (i *IdleChannels) candidates(of ident.TopicID) (list []idleCandidate) {
	if i.o.Grace <= 0 {
		return nil
	}
	for name, t := range idleTopics(i.o.Catalog, func(o metadata.TopicOptions) bool { return o.ChannelIdleMS > 0 }) {
		if of != 0 && t.ID != of {
			continue
		}
		for channel, c := range i.o.Catalog.Channels(t.ID) {
			list = append(list, idleCandidate{name, t, channel, c})
		}
	}
	slices.SortFunc(list, func(a, b idleCandidate) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// judge announces a channel, ends its announcement, or deletes it.
func (i *IdleChannels) judge(ctx context.Context, fence metadata.Compare, c idleCandidate, answers idleAnswers) error {
	if c.state.Deleting { // a deletion was interrupted
		return i.delete(ctx, fence, c)
	}
	i.mu.Lock()
	a, announced := i.announced[c.key()]
	i.mu.Unlock()
	idle, known := i.idle(c, answers)
	switch {
	case !known: // a leader has not answered
	case announced && (idle == 0 || idle < time.Since(a.at)):
		i.end(c)
	case idle > 0 && !announced:
		i.announce(c, idle)
	case announced && time.Since(a.at) >= i.o.Grace:
		return i.remove(ctx, fence, c, a)
	}
	return nil
}

// idle is for how long nothing has used a channel, as the present leaders of all partitions have said; 0:
// for a shorter time than the option's, or it is in use. known is false if one of them did not answer.
func (i *IdleChannels) idle(c idleCandidate, answers idleAnswers) (idle time.Duration, known bool) {
	for n := range c.topic.Span() {
		id := ident.Partition{Topic: c.topic.ID, Number: uint16(n)}
		p, ok := i.o.Catalog.Partition(id)
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

func (i *IdleChannels) announce(c idleCandidate, idle time.Duration) {
	a := announcement{c.name, time.Duration(c.topic.Options.ChannelIdleMS) * time.Millisecond, time.Now()}
	i.mu.Lock()
	i.announced[c.key()] = a
	i.mu.Unlock()
	idle = idle.Round(time.Second)
	text := fmt.Sprintf("channel %s will be deleted with its messages in %s: it has had no consumer and no operation for %s (channel_idle_after)", c, i.o.Grace, idle)
	i.note(c, "channel_idle", "degraded", text)
	i.o.Log.WithFields(logrus.Fields{"topic": c.name, "channel": c.channel, "for": idle, "grace": i.o.Grace}).Warn("idle channel will be deleted with its messages after the grace period")
}

// end ends an announcement: the channel is in use, or has been.
func (i *IdleChannels) end(c idleCandidate) {
	i.mu.Lock()
	delete(i.announced, c.key())
	i.mu.Unlock()
	text := fmt.Sprintf("channel %s stays: it was used, or has another leader", c)
	i.note(c, "channel_stays", "healthy", text)
	i.o.Log.WithField("topic", c.name).WithField("channel", c.channel).Info("channel is not deleted: it was used, or has another leader")
}

func (i *IdleChannels) note(c idleCandidate, code, state, text string) {
	i.o.Events.Add(events.Event{Kind: events.Topic, Topic: c.name, ID: ident.Partition{Topic: c.topic.ID}, Code: code, State: state, Text: text, Broker: i.o.Self})
}

// remove deletes a channel if it is idle still, as its leaders say when they are asked again.
func (i *IdleChannels) remove(ctx context.Context, fence metadata.Compare, c idleCandidate, a announcement) error {
	now := i.candidates(c.topic.ID) // the topic's key has moved if another of its channels was deleted
	at := slices.IndexFunc(now, func(x idleCandidate) bool { return x.key() == c.key() && x.state.Revision == c.state.Revision })
	if at < 0 {
		return nil
	}
	c = now[at]
	idle, known := i.idle(c, askIdle(ctx, i.o.Catalog, i.o.Caller, c.topic.ID))
	if !known || idle == 0 || idle < time.Since(a.at) {
		return nil
	}
	if err := i.delete(ctx, fence, c); err != nil {
		return err
	}
	idle = idle.Round(time.Second)
	text := fmt.Sprintf("channel %s was deleted: it had no consumer and no operation for %s", c, idle)
	i.note(c, "channel_deleted", "healthy", text)
	i.o.Log.WithFields(logrus.Fields{"topic": c.name, "channel": c.channel, "for": idle}).Warn("idle channel deleted with its messages")
	i.o.Metrics.Add(metrics.IdleChannels, 1)
	return nil
}

func (i *IdleChannels) delete(ctx context.Context, fence metadata.Compare, c idleCandidate) error {
	ctx, cancel := context.WithTimeout(ctx, idleDeleteTimeout)
	defer cancel()
	err := i.o.Delete(ctx, c.name, c.topic, c.channel, c.state, fence)
	if errors.Is(err, txn.ErrCompare) {
		return nil // it has changed, or another broker controls
	}
	return err
}

// Announced lists the channels that this broker, as the controller, will delete, the first one first. Any
// goroutine may call it.
func (i *IdleChannels) Announced() (list []api.IdleChannel) {
	if i.o.Catalog.Controller() != i.o.Self {
		return nil
	}
	i.mu.Lock()
	announced := maps.Clone(i.announced)
	i.mu.Unlock()
	for key, a := range announced {
		if c, ok := i.o.Catalog.Channels(key.topic)[key.channel]; !ok || c.ID != key.id || c.Deleting {
			continue // an operator was faster, or it has just been deleted
		}
		list = append(list, api.IdleChannel{Topic: a.topic, Channel: key.channel, IdleMS: (a.idle + time.Since(a.at)).Milliseconds(), DeletesAtMS: a.at.Add(i.o.Grace).UnixMilli()})
	}
	slices.SortFunc(list, func(a, b api.IdleChannel) int {
		return cmp.Or(cmp.Compare(a.DeletesAtMS, b.DeletesAtMS), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Channel, b.Channel))
	})
	return list
}
