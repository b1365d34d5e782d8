package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// channelTimeout bounds the wait for all leaders of a topic.
const channelTimeout = 5 * time.Second

// CreateChannel makes a channel exist, and which is a topic's first, by one
// transaction; it returns when every partition's leader has replicated the
// position, so that nothing published later is missed. Idempotent.
func (b *Broker) CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error {
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	if err := checkOrigin(from); err != nil {
		return err
	}
	if _, err := b.EnsureTopic(ctx, topic); err != nil {
		return err
	}
	if t, ok := b.catalog.topic(topic); ok && t.Ordered {
		ordered = true
	}
	op := queueOp{Verb: verbChannelCreate, Channel: channel, From: from, Ordered: ordered}
	if nsqd.IsEphemeral(channel) {
		t, ok := b.catalog.topic(topic)
		if !ok {
			return edge.ErrTopicNotFound
		}
		return b.onLeaders(ctx, t, op)
	}
	for {
		err := b.placeChannel(ctx, topic, op)
		if !errors.Is(err, edge.ErrChannelNotFound) {
			return err
		}
	}
}

// placeChannel makes the channel's key, and the channel at every leader.
// ErrChannelNotFound: it was deleted meanwhile.
func (b *Broker) placeChannel(ctx context.Context, topic string, op queueOp) error {
	t, c, err := b.ensureChannel(ctx, topic, op.Channel, meta.ChannelState{From: op.From, Ordered: op.Ordered})
	if err != nil {
		return err
	}
	if op.Ordered && !c.Ordered { // it was there and becomes ordered
		if err := b.orderChannel(ctx, topic, op.Channel, true); err != nil {
			return err
		}
		c.Ordered = true
	}
	if b.placed.has(t.ID, op.Channel, c.ID) {
		return nil
	}
	leave, err := b.enter(ctx, "place "+op.Channel+" of "+topic)
	if err != nil {
		return err
	}
	defer leave()
	if b.placed.has(t.ID, op.Channel, c.ID) { // while this waited
		return nil
	}
	op.ID, op.From, op.First, op.Ordered, op.Paused = c.ID, c.From, c.First, c.Ordered, c.Paused
	if err := b.onLeaders(ctx, t, op); err != nil {
		return err
	}
	b.placed.add(t.ID, op.Channel, c.ID)
	return nil
}

// ChannelMissing has the next CreateChannel ask the leaders again (gateway.Core).
func (b *Broker) ChannelMissing(t ident.TopicID, channel string) { b.placed.forget(t, channel) }

// ensureChannel finds or writes the channel's key. One that is being deleted is
// deleted first, whoever began that.
func (b *Broker) ensureChannel(ctx context.Context, topic, channel string, c meta.ChannelState) (meta.TopicState, meta.ChannelState, error) {
	defer b.wanted.add(topic, channel, c)()
	for {
		t, known, ok, err := b.knownChannel(topic, channel)
		if err != nil || ok && !known.Deleting {
			return t, known, err
		}
		if ok {
			err = b.finishDelete(ctx, topic, channel, t, known.ID)
		} else {
			err = b.makeChannels(ctx, topic, channel)
		}
		if err != nil {
			return t, c, err
		}
	}
}

func (b *Broker) knownChannel(topic, channel string) (t meta.TopicState, c meta.ChannelState, known bool, err error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return t, c, false, edge.ErrTopicNotFound
	}
	c, known = b.catalog.channels(t.ID)[channel]
	return t, c, known, nil
}

// makeChannels writes the keys of a channel and of those of its topic that others
// here want meanwhile, in one transaction, and returns when this broker knows what
// came of it.
func (b *Broker) makeChannels(ctx context.Context, topic, channel string) error {
	leave, err := b.channelKeys(ctx, topic)
	if err != nil {
		return err
	}
	defer leave()
	t, _, ok, err := b.knownChannel(topic, channel)
	if err != nil || ok { // made while this waited
		return err
	}
	answered, err := b.tryChannels(ctx, topic, t, b.wanted.with(topic, channel, b.catalog.channels(t.ID)))
	if err != nil {
		return fmt.Errorf("%w: create channel %s: %w", edge.ErrUnavailable, channel, err)
	}
	look := ctx
	if !answered { // perhaps nothing has moved
		var cancel context.CancelFunc
		look, cancel = context.WithTimeout(ctx, createRetry)
		defer cancel()
	}
	err = b.await(look, func() bool {
		now, _, there, err := b.knownChannel(topic, channel)
		return there || err != nil || now.Revision != t.Revision
	})
	if err != nil && (answered || ctx.Err() != nil) {
		return err
	}
	return nil
}

// tryChannels writes the keys of channels if they and the topic are as known. The
// topic's key moves whenever channels come or go: who counts them at a revision of
// it has seen all.
func (b *Broker) tryChannels(ctx context.Context, topic string, t meta.TopicState, wanted []wantedChannel) (answered bool, err error) {
	before := t.Revision
	var puts []meta.Put
	var cmp []meta.Compare
	for _, w := range wanted {
		c := w.state
		c.V, c.ID, c.First = meta.Version, rand.Uint64()|1, t.FirstChannel == ""
		if c.First {
			t.FirstChannel = w.name
		}
		key := b.keys.Channel(t.ID, w.name)
		puts = append(puts, meta.Put{Key: key, Value: meta.Encode(c)})
		cmp = append(cmp, meta.Compare{Key: key})
	}
	t.V = meta.Version
	puts = append(puts, meta.Put{Key: b.keys.Topic(topic), Value: meta.Encode(t)})
	cmp = append(cmp, meta.Compare{Key: b.keys.Topic(topic), Create: -1, Mod: before})
	_, rev, err := b.tryTxn(ctx, cmp, puts)
	return rev != 0, err
}

// pauseChannel replicates a pause at every leader; the key remembers it for
// partitions that come later.
func (b *Broker) pauseChannel(ctx context.Context, topic, channel string, paused bool) error {
	_, err := b.alterChannel(ctx, topic, channel, func(c *meta.ChannelState) { c.Paused = paused }, func(c meta.ChannelState) queueOp {
		if c.Paused {
			return queueOp{Verb: verbChannelPause, Channel: channel}
		}
		return queueOp{Verb: verbChannelUnpause, Channel: channel}
	})
	return err
}

// orderChannel makes a channel ordered or unordered in the same way. All
// channels of an ordered topic stay ordered.
func (b *Broker) orderChannel(ctx context.Context, topic, channel string, ordered bool) error {
	t, _ := b.catalog.topic(topic)
	if t.Ordered && !ordered {
		return fmt.Errorf("%w: topic %s is ordered", edge.ErrInvalid, topic)
	}
	c, err := b.alterChannel(ctx, topic, channel, func(c *meta.ChannelState) { c.Ordered = ordered }, func(c meta.ChannelState) queueOp {
		return queueOp{Verb: verbChannelOrder, Channel: channel, Ordered: c.Ordered}
	})
	if err != nil {
		return err
	}
	return b.awaitChannel(ctx, t.ID, channel, c.Revision)
}

// alterChannel changes a channel's key, then the channel at every leader. The key
// decides: of two operators the one who wrote last may have told the leaders first, so
// whoever told them looks whether it still says the same.
func (b *Broker) alterChannel(ctx context.Context, topic, channel string, edit func(*meta.ChannelState), op func(meta.ChannelState) queueOp) (c meta.ChannelState, err error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return c, edge.ErrTopicNotFound
	}
	if nsqd.IsEphemeral(channel) { // it has no key
		edit(&c)
		return c, b.onLeaders(ctx, t, op(c))
	}
	c, err = b.editChannel(ctx, t.ID, channel, func(c *meta.ChannelState) error { edit(c); return nil })
	for err == nil {
		told, there := op(c), false
		if err = b.onLeaders(ctx, t, told); err != nil {
			break
		}
		if _, c, there, err = b.channelKey(ctx, t.ID, channel); !there || op(c) == told {
			break
		}
	}
	return c, err
}

// editChannel changes a channel's key as it is now and returns what it says then.
func (b *Broker) editChannel(ctx context.Context, t ident.TopicID, channel string, edit func(*meta.ChannelState) error) (meta.ChannelState, error) {
	for {
		e, before, there, err := b.channelKey(ctx, t, channel)
		if err != nil {
			return before, err
		}
		if !there {
			return before, edge.ErrChannelNotFound
		}
		c := before
		if err := edit(&c); err != nil || c == before {
			return c, err
		}
		c.V = meta.Version
		ok, rev, err := b.tryTxn(ctx, []meta.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}}, []meta.Put{{Key: e.Key, Value: meta.Encode(c)}})
		if err != nil {
			return c, fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
		if ok {
			c.Revision = rev
			return c, nil
		}
	}
}

// awaitChannel waits until a channel's key is known here as it was at a revision, or
// later, or that it is gone.
func (b *Broker) awaitChannel(ctx context.Context, t ident.TopicID, channel string, revision int64) error {
	return b.await(ctx, func() bool { c, ok := b.catalog.channels(t)[channel]; return !ok || c.Revision >= revision })
}

// pauseTopic notes the pause in the topic's key, then at every leader, and returns when
// this broker knows it. The key decides, as with channels.
func (b *Broker) pauseTopic(ctx context.Context, topic string, paused bool) error {
	t, err := b.rewriteTopic(ctx, topic, func(t meta.TopicState) (meta.TopicState, error) { t.Paused = paused; return t, nil })
	for told := !t.Paused; err == nil && told != t.Paused; {
		verb := verbTopicUnpause
		if told = t.Paused; told {
			verb = verbTopicPause
		}
		if err = b.onLeaders(ctx, t, queueOp{Verb: verb}); err == nil {
			t, err = b.topicKey(ctx, topic)
		}
	}
	if err != nil {
		return err
	}
	return b.awaitTopic(ctx, topic, t.Revision)
}

// onLeaders carries out an operation at the leader of every partition: each leader is
// asked once for all of its partitions, then for those alone that it has not done.
func (b *Broker) onLeaders(ctx context.Context, t meta.TopicState, op queueOp) error {
	op.Topic = uint64(t.ID)
	left := b.askLeaders(ctx, t, op)
	results := make(chan error, len(left))
	for _, n := range left {
		op := op
		op.Number = n
		go func() { results <- b.atLeader(ctx, op) }()
	}
	var failed partitionErrors
	for range left {
		if err := <-results; err != nil {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	return failed
}

// partitionErrors is what went wrong at partitions of a topic, one error for each.
// Its text is one line, for it is an answer to a client.
type partitionErrors []error

func (e partitionErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %d partitions more)", e[0], len(e)-1)
}

func (e partitionErrors) Unwrap() []error { return e }

// askLeaders asks each leader of several partitions for all of them in one call, and
// gives the partitions that are not known to be done.
func (b *Broker) askLeaders(ctx context.Context, t meta.TopicState, op queueOp) (left []uint16) {
	led := map[ident.Node][]uint16{}
	for n := range t.Partitions {
		l, _ := b.Leader(ident.Partition{Topic: t.ID, Number: uint16(n)})
		led[l.Node] = append(led[l.Node], uint16(n))
	}
	results := make(chan []uint16, len(led))
	for node, numbers := range led {
		go func() {
			if node == "" || len(numbers) == 1 {
				results <- numbers
				return
			}
			var resp queueOpsResponse
			_ = b.ask(ctx, node, methodQueues, queueOps{Op: op, Numbers: numbers}, &resp) // they are asked one by one
			results <- slices.DeleteFunc(numbers, func(n uint16) bool { return slices.Contains(resp.Done, n) })
		}()
	}
	for range led {
		left = append(left, <-results...)
	}
	return left
}

// atLeader carries an operation out at the leader of its partition.
func (b *Broker) atLeader(ctx context.Context, op queueOp) error {
	return b.askLeader(ctx, ident.Partition{Topic: ident.TopicID(op.Topic), Number: op.Number}, methodQueue, op, &none{})
}

// askers is how many calls at once may wait for leaders of partitions: fewer than a
// connection between brokers serves, so that a topic without its minimum does not
// keep other calls from it.
const askers = 32

// askLeader finds the leader of a partition, and the next one if it moved, until
// the call is answered or ctx ends.
func (b *Broker) askLeader(ctx context.Context, p ident.Partition, method string, req, resp any) error {
	err := edge.ErrNoLeader
	for {
		changed := b.Changed()
		if l, ok := b.Leader(p); ok {
			err = b.ask(ctx, l.Node, method, req, resp)
			if errors.Is(err, context.DeadlineExceeded) { // the leader's, or ours
				return fmt.Errorf("%w: partition %s: %w", edge.ErrUnavailable, p, err)
			}
			if err == nil || !retryable(err) {
				return err
			}
		}
		if !waitFor(ctx, changed, createRetry) {
			return fmt.Errorf("%w: partition %s: %w", edge.ErrUnavailable, p, err)
		}
	}
}

// ask is call with a place among the askers.
func (b *Broker) ask(ctx context.Context, n ident.Node, method string, req, resp any) error {
	select {
	case b.asking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: ask %s: %w", edge.ErrUnavailable, n, ctx.Err())
	}
	defer func() { <-b.asking }()
	return b.call(ctx, n, method, req, resp)
}

func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}
