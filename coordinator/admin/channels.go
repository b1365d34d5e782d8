package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Channels creates, changes and deletes channels.
type Channels struct {
	*records
	leaders *leaders
	topics  *topics
	locks   *txn.KeyedLock
	quotas  *quota.Quotas
	pending *pendingChannels
	created *createdChannels
}

// CreateChannel creates a channel unless it exists, and decides in one transaction which channel is a topic's first. It
// returns when every partition's leader has replicated the position, so that nothing published later is missed.
// Idempotent.
func (c *Channels) CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error {
	return c.createWith(ctx, topic, channel, from, ordered, "")
}

// createWith is CreateChannel with a filter. An existing channel keeps its own filter.
func (c *Channels) createWith(ctx context.Context, topic, channel, from string, ordered bool, filter string) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	place, err := nsqd.CheckStart(from)
	if err != nil {
		return err
	}
	if err := c.topics.Ensure(ctx, topic); err != nil {
		return err
	}
	if err := c.checkPlace(ctx, topic, channel, from, place); err != nil {
		return err
	}
	if t, ok := c.catalog.Topic(topic); ok && t.Ordered {
		ordered = true
	}
	op := calls.QueueOp{Verb: calls.ChannelCreate, Channel: channel, From: from, Ordered: ordered}
	if nsqd.IsEphemeral(channel) {
		t, ok := c.catalog.Topic(topic)
		if !ok {
			return outcome.ErrTopicNotFound
		}
		return c.leaders.onAll(ctx, t, 0, op)
	}
	for {
		err := c.create(ctx, topic, op, filter)
		if !errors.Is(err, outcome.ErrChannelNotFound) {
			return err
		}
	}
}

// checkPlace refuses a new channel that would begin with a sequence beyond the end of one of the given partitions (none
// given: of all), before the channel's key is written.
func (c *Channels) checkPlace(ctx context.Context, topic, channel, from string, place api.Place, numbers ...uint16) error {
	t, known, ok, err := c.known(topic, channel)
	if err != nil || place.Kind != api.PlaceSequence || ok && !known.Deleting {
		return err
	}
	s := seeker{leaders: c.leaders, op: calls.QueueOp{Partition: ident.Partition{Topic: t.ID}, From: from}}
	if len(numbers) == 0 {
		numbers = numbersOf(t)
	}
	return s.check(ctx, numbers)
}

// create creates the channel's key, and the channel at every leader. ErrChannelNotFound: it was deleted.
func (c *Channels) create(ctx context.Context, topic string, op calls.QueueOp, filter string) error {
	t, state, err := c.ensureKey(ctx, topic, op.Channel, metadata.ChannelState{From: op.From, Ordered: op.Ordered, Policy: option.Policy{Filter: filter}})
	if err != nil {
		return err
	}
	if op.Ordered && !state.Ordered { // it exists and becomes ordered
		if err := c.order(ctx, topic, op.Channel, true); err != nil {
			return err
		}
		state.Ordered = true
	}
	if c.created.has(t.ID, op.Channel, state.ID) {
		return nil
	}
	unlock, err := lock(ctx, c.locks, "place "+op.Channel+" of "+topic)
	if err != nil {
		return err
	}
	defer unlock()
	if c.created.has(t.ID, op.Channel, state.ID) { // while this waited
		return nil
	}
	op.ID, op.From, op.First, op.Ordered, op.Paused = state.ID, state.From, state.First, state.Ordered, state.Paused
	if err := c.leaders.onAll(ctx, t, 0, op); err != nil {
		return err
	}
	c.created.add(t.ID, op.Channel, state.ID)
	return nil
}

// ChannelViews lists a topic's channels by name (api.Channels).
func (c *Channels) ChannelViews(topic string) (views []api.ChannelView, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	channels := c.catalog.Channels(t.ID)
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		if s := channels[name]; !s.Deleting {
			views = append(views, api.ChannelView{Channel: name, Ordered: s.Ordered, Paused: s.Paused, From: s.From, Filter: s.Policy.Filter})
		}
	}
	return views, nil
}

// ChannelMissing makes the next CreateChannel query the leaders again, because one of them does not have the channel.
func (c *Channels) ChannelMissing(t ident.TopicID, channel string) { c.created.forget(t, channel) }

// EnsureDeadLetters creates, unless they exist, a dead-letter topic and the channel that retains its dead letters. The
// channel receives no other messages.
func (c *Channels) EnsureDeadLetters(ctx context.Context, topic string) error {
	if topic == "" {
		return outcome.ErrTopicNotFound
	}
	if err := c.createWith(ctx, topic, deadLetterChannel, "", false, nsqd.RedriveFilter); err != nil {
		return fmt.Errorf("dead-letter topic %s: %w", topic, err)
	}
	return nil
}

// ensureKey finds or writes the channel's key. If the channel is being deleted, this broker completes the deletion
// first.
func (c *Channels) ensureKey(ctx context.Context, topic, channel string, state metadata.ChannelState) (metadata.TopicState, metadata.ChannelState, error) {
	done, first, err := c.quotas.Channel(ctx, topic, channel)
	if err != nil {
		return metadata.TopicState{}, state, err
	}
	defer done()
	state.Owner = api.RequesterOf(ctx).User
	defer c.pending.add(topic, channel, state)()
	for {
		t, known, ok, err := c.known(topic, channel)
		if err != nil || ok && !known.Deleting {
			if first && err == nil {
				c.quotas.Implied(ctx, "created channel "+topic+"/"+channel)
			}
			return t, known, err
		}
		if ok {
			err = c.finishDelete(ctx, topic, channel, t, known.ID)
		} else {
			err = c.makeKeys(ctx, topic, channel)
		}
		if err != nil {
			return t, state, err
		}
	}
}

// known reads a topic and a channel from the catalog.
func (c *Channels) known(topic, channel string) (t metadata.TopicState, state metadata.ChannelState, known bool, err error) {
	t, ok := c.catalog.Topic(topic)
	if !ok {
		return t, state, false, outcome.ErrTopicNotFound
	}
	state, known = c.catalog.Channels(t.ID)[channel]
	return t, state, known, nil
}

// makeKeys writes, in one transaction, the keys of a channel and of the channels of the same topic that other callers
// on this broker wait for. It returns when the catalog has the outcome.
func (c *Channels) makeKeys(ctx context.Context, topic, channel string) error {
	unlock, err := lock(ctx, c.locks, "channels of "+topic) // each creation and deletion changes the topic's key
	if err != nil {
		return err
	}
	defer unlock()
	t, _, ok, err := c.known(topic, channel)
	if err != nil || ok { // created while this waited
		return err
	}
	answered, err := c.tryKeys(ctx, topic, t, c.pending.with(topic, channel, c.catalog.Channels(t.ID)))
	if err != nil {
		return fmt.Errorf("%w: create channel %s: %w", outcome.ErrUnavailable, channel, err)
	}
	short := ctx
	if !answered { // perhaps nothing has changed
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, txn.Retry)
		defer cancel()
	}
	err = c.catalog.Await(short, func() bool {
		now, _, there, err := c.known(topic, channel)
		return there || err != nil || now.Revision != t.Revision
	})
	if err != nil && (answered || ctx.Err() != nil) {
		return err
	}
	return nil
}

// tryKeys writes the keys of channels, if they and the topic have not changed. The topic's key changes whenever
// channels are created or deleted: a broker that counts them at a revision of the key has all of them.
func (c *Channels) tryKeys(ctx context.Context, topic string, t metadata.TopicState, channels []pendingChannel) (answered bool, err error) {
	before := t.Revision
	var puts []metadata.Put
	var cmp []metadata.Compare
	for _, p := range channels {
		s := p.state
		s.V, s.ID, s.First = metadata.Version, rand.Uint64()|1, t.FirstChannel == ""
		if s.First {
			t.FirstChannel = p.name
		}
		key := c.keys.Channel(t.ID, p.name)
		puts = append(puts, metadata.Put{Key: key, Value: metadata.Encode(s)})
		cmp = append(cmp, metadata.Compare{Key: key})
	}
	t.V = metadata.Version
	puts = append(puts, metadata.Put{Key: c.keys.Topic(topic), Value: metadata.Encode(t)})
	cmp = append(cmp, metadata.Compare{Key: c.keys.Topic(topic), Create: -1, Mod: before})
	_, rev, err := txn.Try(ctx, c.store, cmp, puts)
	return rev != 0, err
}

func lock(ctx context.Context, locks *txn.KeyedLock, name string) (unlock func(), err error) {
	unlock, err = locks.Lock(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
	}
	return unlock, nil
}

// createExplicitly creates a channel as requested. outcome.ErrConflict: it exists with other settings. An ephemeral channel
// has no record to compare with.
func (c *Channels) createExplicitly(ctx context.Context, op api.CreateChannel) error {
	place, err := nsqd.CheckStart(op.From)
	if err != nil {
		return err
	}
	t, ok := c.catalog.Topic(op.Topic)
	if !ok {
		return outcome.ErrTopicNotFound
	}
	ordered := t.Ordered
	if op.Ordered != nil {
		ordered = *op.Ordered
	}
	if t.Ordered && !ordered {
		return fmt.Errorf("%w: topic %s is ordered, and so are all of its channels", outcome.ErrInvalid, op.Topic)
	}
	if op.Filter != "" && nsqd.IsEphemeral(op.Channel) {
		return fmt.Errorf("%w: an ephemeral channel has no filter", outcome.ErrInvalid)
	}
	if !nsqd.IsEphemeral(op.Channel) {
		if err := c.forgetDeleted(ctx, op.Topic, t.ID, op.Channel); err != nil {
			return err
		}
		if err := c.checkPlace(ctx, op.Topic, op.Channel, op.From, place); err != nil {
			return err
		}
		_, state, err := c.ensureKey(ctx, op.Topic, op.Channel, metadata.ChannelState{From: op.From, Ordered: ordered, Policy: option.Policy{Filter: op.Filter}})
		if err == nil {
			err = channelConflict(state, op)
		}
		if err != nil {
			return err
		}
		ordered = state.Ordered
	}
	return c.CreateChannel(ctx, op.Topic, op.Channel, op.From, ordered)
}

// forgetDeleted waits, if another broker has deleted the channel, until the catalog has the deletion: a creation is
// answered by the current metadata.
func (c *Channels) forgetDeleted(ctx context.Context, topic string, t ident.TopicID, channel string) error {
	known, ok := c.catalog.Channels(t)[channel]
	if !ok {
		return nil // a transaction creates it
	}
	now, err := c.topic(ctx, topic)
	if err != nil {
		return err
	}
	_, state, there, err := c.channel(ctx, t, channel)
	if err != nil || there && now.ID == t && state.ID == known.ID && state.Deleting == known.Deleting {
		return err
	}
	return c.catalog.Await(ctx, func() bool {
		now, ok := c.catalog.Topic(topic)
		return !ok || now.ID != t || c.catalog.Channels(t)[channel].ID != known.ID || c.catalog.Channels(t)[channel].Deleting
	})
}

func channelConflict(s metadata.ChannelState, op api.CreateChannel) error {
	var differ []string
	if op.From != "" && op.From != s.From {
		differ = append(differ, fmt.Sprintf("from=%s", op.From))
	}
	if op.Ordered != nil && *op.Ordered != s.Ordered {
		differ = append(differ, fmt.Sprintf("ordered=%v", *op.Ordered))
	}
	if op.Filter != "" && op.Filter != s.Policy.Filter {
		differ = append(differ, fmt.Sprintf("filter=%q", op.Filter))
	}
	if differ == nil {
		return nil
	}
	filter := ""
	if s.Policy.Filter != "" || op.Filter != "" {
		filter = fmt.Sprintf(" filter=%q", s.Policy.Filter)
	}
	return fmt.Errorf("%w: channel %s of topic %s has from=%q ordered=%v%s, not %s (/v1/channel/seek moves it, /channel/setorder changes its order, /v1/channel/policy its filter)",
		outcome.ErrConflict, op.Channel, op.Topic, s.From, s.Ordered, filter, strings.Join(differ, " "))
}

// pendingChannels has the channels without a key that callers on this broker wait for, by topic. Each creation changes
// the topic's key, so of a thousand concurrent transactions only one would succeed. Therefore a caller creates the
// channels of the others too.
type pendingChannels struct {
	mu sync.Mutex
	of map[string]map[string]*pendingChannel
}

type pendingChannel struct {
	name    string
	state   metadata.ChannelState // as the first caller requested it
	callers int
}

// channelsPerTxn leaves room for the topic's key.
const channelsPerTxn = metadata.MaxTxn - 1

func newPendingChannels() *pendingChannels {
	return &pendingChannels{of: map[string]map[string]*pendingChannel{}}
}

// add registers a caller that waits for a channel until it calls done.
func (p *pendingChannels) add(topic, channel string, state metadata.ChannelState) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[topic] == nil {
		p.of[topic] = map[string]*pendingChannel{}
	}
	c := p.of[topic][channel]
	if c == nil {
		c = &pendingChannel{name: channel, state: state}
		p.of[topic][channel] = c
	}
	c.callers++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.callers--; c.callers > 0 {
			return
		}
		if delete(p.of[topic], channel); len(p.of[topic]) == 0 {
			delete(p.of, topic)
		}
	}
}

// with lists a pending channel, then others of its topic without a key, as many as one transaction can create.
func (p *pendingChannels) with(topic, channel string, known map[string]metadata.ChannelState) []pendingChannel {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []pendingChannel{*p.of[topic][channel]}
	for name, c := range p.of[topic] {
		if _, there := known[name]; !there && name != channel && len(out) < channelsPerTxn {
			out = append(out, *c)
		}
	}
	return out
}

// createdChannels is the creation cache: the channels that, to this broker's knowledge, every leader has replicated, so
// that a subscription needs no round trip. A recreated channel has another id.
type createdChannels struct {
	mu    sync.Mutex
	known map[createdChannel]uint64
}

type createdChannel struct {
	topic   ident.TopicID
	channel string
}

// maxCreated bounds the cache: beyond it all leaders are asked again.
const maxCreated = 1 << 16

func (c *createdChannels) has(t ident.TopicID, channel string, id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[createdChannel{t, channel}] == id
}

func (c *createdChannels) forget(t ident.TopicID, channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, createdChannel{t, channel})
}

func (c *createdChannels) add(t ident.TopicID, channel string, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCreated {
		clear(c.known)
	}
	c.known[createdChannel{t, channel}] = id
}
