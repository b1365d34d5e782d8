package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// A topic grows in three steps, so that a partition has all channels before it has a message:
//
//  1. One transaction writes the keys of the new partitions, and Growing in the topic's
//     key. From then on every operation on channels includes them.
//  2. The leaders of the new partitions create the channels of the topic, at the start of the log.
//  3. The topic's key gets the new number. Then brokers publish to the new partitions, and
//     subscriptions attach to them.
//
// If the broker dies in between, the topic has unused partitions. The same request, at any broker, continues.

func (t *topics) setPartitions(ctx context.Context, op api.SetPartitions) error {
	if err := api.Validate(op); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout+time.Duration(op.Partitions)*prepareEach)
	defer cancel()
	unlock, err := lock(ctx, t.locks, op.Topic)
	if err != nil {
		return err
	}
	defer unlock()
	state, err := t.topic(ctx, op.Topic)
	if err != nil {
		return err
	}
	switch {
	case op.Partitions > api.MaxPartitions:
		return fmt.Errorf("%w: partitions must be at most %d", outcome.ErrInvalid, api.MaxPartitions)
	case op.Partitions < state.Partitions:
		return fmt.Errorf("%w: topic %s has %s, and the number is never lowered", outcome.ErrInvalid, op.Topic, api.Count(state.Partitions, "partition"))
	case op.Partitions == state.Partitions && state.Growing == 0:
		return nil
	case state.Growing != 0 && state.Growing != op.Partitions:
		return fmt.Errorf("%w: topic %s is about to have %s: request that number again first", outcome.ErrConflict, op.Topic, api.Count(state.Growing, "partition"))
	case state.Ordered && !op.Reorder:
		return fmt.Errorf("%w: topic %s is ordered, and later messages of a key may go to another partition than earlier ones: "+
			"let its consumers finish everything while nothing is published, and set reorder=true", outcome.ErrInvalid, op.Topic)
	case state.Options.Dedupe == option.DedupeContent && !op.Reorder:
		window := time.Duration(state.DedupeWindow()) * time.Millisecond
		return fmt.Errorf("%w: topic %s recognises messages by their content, and a repeat within %s may go to another partition and be stored again: "+
			"publish nothing for %s, and set reorder=true", outcome.ErrInvalid, op.Topic, window, window)
	}
	if state.Growing == 0 {
		done, err := t.quotas.Partitions(ctx, op.Topic, state.Owner, state.Partitions, op.Partitions)
		if err != nil {
			return err
		}
		defer done()
		if state, err = t.beginGrowth(ctx, op, state); err != nil {
			return err
		}
	}
	if err := t.awaitTopic(ctx, op.Topic, state.Revision); err != nil {
		return err
	}
	if err := t.fillGrowth(ctx, op.Topic, state); err != nil {
		return fmt.Errorf("%w; topic %s has %s until the same request succeeds", err, op.Topic, api.Count(state.Partitions, "partition"))
	}
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		if s.ID != state.ID {
			return s, outcome.ErrTopicNotFound
		}
		if s.Growing == state.Growing {
			s.Partitions, s.Growing = s.Growing, 0
		}
		return s, nil
	})
}

// beginGrowth lets brokers prepare the replicas of the new partitions, and writes the keys. It retries while too few
// replicas are ready.
func (t *topics) beginGrowth(ctx context.Context, op api.SetPartitions, state metadata.TopicState) (metadata.TopicState, error) {
	c := &creation{name: op.Topic, topic: state, first: state.Partitions}
	c.topic.Partitions = op.Partitions - state.Partitions
	defer func() { t.o.Group.Go(func(ctx context.Context) { t.release(ctx, c) }) }()
	for {
		next, err := t.tryGrowth(ctx, c, state)
		if err == nil {
			return next, nil
		}
		if errors.Is(err, outcome.ErrInvalid) || !concurrency.SleepUntil(ctx, t.catalog.Changed(), txn.Retry) {
			return state, fmt.Errorf("%w: more partitions for %s: %w", outcome.ErrUnavailable, op.Topic, err)
		}
		now, err := t.topic(ctx, op.Topic) // another broker came first, or the topic has changed
		if err != nil {
			return state, err
		}
		if now.ID != state.ID {
			return state, outcome.ErrTopicNotFound
		}
		if now.Growing == op.Partitions {
			c.written = true
			return now, nil
		}
		if now.Span() != state.Span() {
			return state, fmt.Errorf("%w: the number of partitions of topic %s was changed by another request", outcome.ErrConflict, op.Topic)
		}
		state = now
	}
}

// tryGrowth writes the keys of the new partitions, if the topic has not changed.
func (t *topics) tryGrowth(ctx context.Context, c *creation, state metadata.TopicState) (next metadata.TopicState, err error) {
	if err := t.ready(ctx, c); err != nil {
		return state, err
	}
	next = state
	next.V, next.Growing = metadata.Version, c.first+c.topic.Partitions
	key := t.keys.Topic(c.name)
	puts, err := t.partitionPuts(c, []metadata.Put{{Key: key, Value: metadata.Encode(next)}})
	if err != nil {
		return state, err
	}
	compares := []metadata.Compare{{Key: key, Create: -1, Mod: state.Revision}}
	for _, p := range puts[1:] {
		compares = append(compares, metadata.Compare{Key: p.Key})
	}
	short, cancel := context.WithTimeout(ctx, txn.LargeTimeout(len(puts)))
	defer cancel()
	ok, revision, err := t.store.Txn(short, compares, puts)
	if errors.Is(err, metadata.ErrInvalid) { // an external etcd with other limits than ours
		return state, fmt.Errorf("%w: one transaction writes %s: %w", outcome.ErrInvalid, api.Count(len(puts)-1, "partition"), err)
	}
	c.written = c.written || ok || errors.Is(err, metadata.ErrUnknown) // it may land yet
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	next.Revision = revision
	return next, err
}

// fillGrowth creates the topic's channels in its new partitions. A concurrent creation or deletion of a channel
// includes them itself.
func (t *topics) fillGrowth(ctx context.Context, topic string, state metadata.TopicState) error {
	entries, _, err := t.store.List(ctx, t.keys.Channels(state.ID))
	if err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
	}
	for _, e := range entries {
		_, name, ok := t.keys.ParseChannel(e.Key)
		s, err := metadata.DecodeChannel(e)
		if err != nil {
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
		if !ok || s.Deleting {
			continue
		}
		op := calls.QueueOp{Verb: calls.ChannelCreate, Channel: name, ID: s.ID, From: "earliest", First: s.First, Ordered: s.Ordered, Paused: s.Paused}
		err = t.channels.leaders.onAll(ctx, state, uint16(state.Partitions), op)
		if err != nil && !errors.Is(err, outcome.ErrChannelNotFound) { // it is being deleted
			return err
		}
	}
	if now, err := t.topic(ctx, topic); err != nil || !now.Paused {
		return err
	}
	return t.channels.leaders.onAll(ctx, state, uint16(state.Partitions), calls.QueueOp{Verb: calls.TopicPause})
}
