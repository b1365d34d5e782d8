package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Queues carries out operations on the channels of partitions that are led here, for all brokers.
type Queues struct {
	engine  *engine.Engine
	records *records
	quotas  *quota.Quotas
	locks   *txn.KeyedLock
}

func (q *Queues) led(id ident.Partition) (*engine.Partition, error) {
	p, ok := q.engine.Partition(id)
	if !ok {
		return nil, rpc.ErrNoReplica
	}
	if !p.Leading() {
		return nil, rpc.ErrNotLeader
	}
	return p, nil
}

// Change carries out an operation on one partition (calls.ChangeQueue).
func (q *Queues) Change(ctx context.Context, op calls.QueueOp) error {
	p, err := q.led(op.Partition)
	if err != nil {
		return err
	}
	return queueError(q.carryOut(ctx, p, op))
}

// ChangeMany carries out an operation on several partitions concurrently: they share the syncs (calls.ChangeQueues).
func (q *Queues) ChangeMany(ctx context.Context, ops calls.QueueOps) (resp calls.QueuesDone) {
	done := make([]bool, len(ops.Numbers))
	concurrency.Each(len(done), api.MaxPartitions, func(i int) {
		op := ops.Op
		op.Number = ops.Numbers[i]
		done[i] = q.Change(ctx, op) == nil
	})
	for i, n := range ops.Numbers {
		if done[i] {
			resp.Done = append(resp.Done, n)
		}
	}
	return resp
}

func queueError(err error) error {
	switch {
	case errors.Is(err, nsqd.ErrNotLeader), errors.Is(err, nsqd.ErrNotReplicated):
		return fmt.Errorf("%w: %w", rpc.ErrNotLeader, err) // idempotent: the next leader repeats it
	case errors.Is(err, nsqd.ErrDeleted):
		return fmt.Errorf("%w: %w", outcome.ErrChannelNotFound, err)
	}
	return err
}

func (q *Queues) carryOut(ctx context.Context, p *engine.Partition, op calls.QueueOp) error {
	switch op.Verb {
	case calls.ChannelCreate:
		return q.create(ctx, p, op)
	case calls.ChannelDelete:
		return q.delete(ctx, p, op)
	case calls.ChannelEmpty:
		return q.onChannel(ctx, p, op, func() error { return p.Queue().EmptyChannel(ctx, op.Channel) })
	case calls.ChannelOrder:
		return q.onChannel(ctx, p, op, func() error { return p.Queue().OrderChannel(ctx, op.Channel, op.Ordered) })
	case calls.ChannelPolicy:
		return q.policy(ctx, p, op)
	case calls.ChannelPause, calls.ChannelUnpause:
		paused := op.Verb == calls.ChannelPause
		return q.onChannel(ctx, p, op, func() error { return p.Queue().PauseChannel(ctx, op.Channel, paused) })
	case calls.TopicPause, calls.TopicUnpause:
		return p.Queue().PauseTopic(ctx, op.Verb == calls.TopicPause)
	case calls.TopicEmpty:
		return p.Queue().EmptyTopic(ctx)
	}
	return fmt.Errorf("%w: verb %q", outcome.ErrInvalid, op.Verb)
}

// channelOptions are the options of the channel that an operation creates or moves.
func channelOptions(p *engine.Partition, op calls.QueueOp) (nsqd.ChannelOptions, error) {
	o, err := nsqd.StartOptions(op.From, op.First, p.Store().Index())
	o.Ordered, o.ID = op.Ordered, op.ID
	return o, err
}

// policy applies the policy in a channel's key. A channel that does not exist yet is created with it.
func (q *Queues) policy(ctx context.Context, p *engine.Partition, op calls.QueueOp) error {
	t := p.ID().Topic
	if err := q.records.awaitChannel(ctx, t, op.Channel, op.Revision); err != nil {
		return err
	}
	if c, ok := p.Queue().Channel(op.Channel); ok {
		c.SetPolicy(q.records.catalog.Policy(t, op.Channel))
	}
	return nil
}

// onChannel calls do for the channel of an operation, but not for a later channel of the same name.
func (q *Queues) onChannel(ctx context.Context, p *engine.Partition, op calls.QueueOp, do func() error) error {
	unlock, err := q.lock(ctx, p, op.Channel)
	if err != nil {
		return err
	}
	defer unlock()
	if c, ok := p.Queue().Channel(op.Channel); op.ID != 0 && ok && c.ID() != op.ID {
		return outcome.ErrChannelNotFound
	}
	return do()
}

// delete deletes a channel, unless another deletion has completed: the channel may have been recreated. Consumers are
// disconnected only when the catalog has the deletion, so that they do not recreate the channel.
func (q *Queues) delete(ctx context.Context, p *engine.Partition, op calls.QueueOp) error {
	if op.ID == 0 {
		return p.Queue().DeleteChannel(ctx, op.Channel)
	}
	unlock, err := q.lock(ctx, p, op.Channel)
	if err != nil {
		return err
	}
	defer unlock()
	t := op.Topic
	_, s, there, err := q.records.channel(ctx, t, op.Channel)
	if err != nil || !there || s.ID != op.ID || !s.Deleting {
		return err
	}
	err = q.records.catalog.Await(ctx, func() bool {
		s, ok := q.records.catalog.Channels(t)[op.Channel]
		return !ok || s.ID != op.ID || s.Deleting
	})
	if err != nil {
		return err
	}
	if err = p.Queue().DeleteChannel(ctx, op.Channel); errors.Is(err, outcome.ErrChannelNotFound) {
		return nil // an earlier attempt deleted it
	}
	return err
}

// create creates a channel. ErrChannelNotFound: it was deleted since the request.
func (q *Queues) create(ctx context.Context, p *engine.Partition, op calls.QueueOp) error {
	t := p.ID().Topic
	if op.ID != 0 {
		unlock, err := q.lock(ctx, p, op.Channel)
		if err != nil {
			return err
		}
		defer unlock()
		s, there := q.records.catalog.Channels(t)[op.Channel]
		if !there || s.ID != op.ID { // deleted, or not in the catalog yet
			if _, s, there, err = q.records.channel(ctx, t, op.Channel); err != nil {
				return err
			}
		}
		if !there || s.ID != op.ID || s.Deleting {
			return outcome.ErrChannelNotFound
		}
		// The channel reads its policy from the catalog, and delivers nothing until the catalog has it.
		here := func() bool { return q.records.catalog.Channels(t)[op.Channel].Revision >= s.Revision }
		if err := q.records.catalog.Await(ctx, here); err != nil {
			return err
		}
	} else if err := q.quotas.Ephemeral(p.Queue().Channels(), op.Channel); err != nil {
		return err
	}
	o, err := channelOptions(p, op)
	if err != nil {
		return err
	}
	if _, err = p.Queue().CreateChannel(ctx, op.Channel, o); err != nil || !op.Paused {
		return err
	}
	// The request may be outdated, because an unpause changes the key first.
	_, s, there, err := q.records.channel(ctx, t, op.Channel)
	if err != nil || !there || s.ID != op.ID || !s.Paused {
		return err
	}
	return p.Queue().PauseChannel(ctx, op.Channel, true)
}

// lock serialises the operations that create, pause and delete a channel of a partition.
func (q *Queues) lock(ctx context.Context, p *engine.Partition, channel string) (unlock func(), err error) {
	return lock(ctx, q.locks, fmt.Sprintf("%v/%s", p.ID(), channel))
}
