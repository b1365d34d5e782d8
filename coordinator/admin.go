package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// Do carries out an administrative operation (edge.Admin), on whatever broker
// it was asked for.
func (b *Broker) Do(ctx context.Context, op edge.AdminOp) error {
	if op.Verb == "topic.create" { // its time depends on the number of partitions
		return b.createExplicitly(ctx, op)
	}
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	if op.Verb != "topic.delete" { // which asks the store anyway
		if err := b.requireTopic(ctx, op.Topic); err != nil {
			return err
		}
	}
	if op.Channel != "" && op.Verb != verbChannelCreate {
		if err := b.learnChannel(ctx, op.Topic, op.Channel); err != nil {
			return err
		}
	}
	switch op.Verb {
	case "topic.delete":
		if b.hidden.hides(op.Topic, b.selfAddress()) {
			b.log.WithField("topic", op.Topic).Warn("TOPIC not deleted: this broker is tombstoned for it, so only it was meant; ask another broker to delete the topic")
			return nil
		}
		return b.deleteTopic(ctx, op.Topic)
	case "topic.move":
		return b.moveReplica(ctx, op)
	case "topic.replication":
		return b.setReplication(ctx, op)
	case "broker.decommission":
		return b.decommission(ctx, op)
	case "cluster.balance":
		return b.balance(ctx)
	case verbTopicPause:
		return b.pauseTopic(ctx, op.Topic, true)
	case verbTopicUnpause:
		return b.pauseTopic(ctx, op.Topic, false)
	case verbChannelCreate:
		ordered := false
		if err := boolean(op.Args, "ordered", &ordered); err != nil {
			return err
		}
		return b.CreateChannel(ctx, op.Topic, op.Channel, op.Args["from"], ordered)
	case verbChannelDelete:
		return b.deleteChannel(ctx, op.Topic, op.Channel)
	case verbChannelPause:
		return b.pauseChannel(ctx, op.Topic, op.Channel, true)
	case verbChannelUnpause:
		return b.pauseChannel(ctx, op.Topic, op.Channel, false)
	case verbChannelSeek:
		return b.seek(ctx, op)
	case verbChannelOrder:
		ordered, err := strconv.ParseBool(op.Args["order"])
		if err != nil {
			return fmt.Errorf("%w: order must be true or false", edge.ErrInvalid)
		}
		return b.orderChannel(ctx, op.Topic, op.Channel, ordered)
	case "channel.policy":
		return b.setPolicy(ctx, op)
	case verbChannelEmpty, verbTopicEmpty:
		return b.empty(ctx, op)
	}
	return fmt.Errorf("%w: verb %q", edge.ErrInvalid, op.Verb)
}

// requireTopic refuses what does not exist: unlike SUB, administration creates
// no topic by the way. One that another broker has just made may not be known
// here yet, so the store is asked before the answer is no.
func (b *Broker) requireTopic(ctx context.Context, name string) error {
	if _, ok := b.catalog.topic(name); ok || name == "" {
		return nil // "" is the whole cluster
	}
	if _, err := b.topicKey(ctx, name); err != nil {
		return err
	}
	return b.await(ctx, func() bool { _, ok := b.catalog.topic(name); return ok })
}

// topicKey reads a topic's key as it is now.
func (b *Broker) topicKey(ctx context.Context, name string) (meta.TopicState, error) {
	e, err := b.meta.Get(ctx, b.keys.Topic(name))
	if errors.Is(err, meta.ErrNotFound) {
		return meta.TopicState{}, edge.ErrTopicNotFound
	}
	if err != nil {
		return meta.TopicState{}, fmt.Errorf("%w: look for topic %s: %w", edge.ErrUnavailable, name, err)
	}
	t, err := meta.DecodeTopic(e)
	if err != nil || t.Deleted {
		return t, edge.ErrTopicNotFound
	}
	return t, nil
}

// learnChannel waits for a channel that another broker has just made and that is
// not known here yet. One that does not exist is left to the caller.
func (b *Broker) learnChannel(ctx context.Context, topic, channel string) error {
	t, ok := b.catalog.topic(topic)
	known := func() bool { _, ok := b.catalog.channels(t.ID)[channel]; return ok }
	if !ok || known() {
		return nil
	}
	_, _, there, err := b.channelKey(ctx, t.ID, channel)
	if err != nil || !there {
		return err
	}
	return b.await(ctx, known)
}

func (b *Broker) empty(ctx context.Context, op edge.AdminOp) error {
	t, ok := b.catalog.topic(op.Topic)
	if !ok {
		return edge.ErrTopicNotFound
	}
	return b.onLeaders(ctx, t, queueOp{Verb: op.Verb, Channel: op.Channel})
}

// seek moves a channel in all partitions, or in the one that is named: to
// earliest, latest, a time or a sequence.
func (b *Broker) seek(ctx context.Context, op edge.AdminOp) error {
	q := queueOp{Verb: op.Verb, Channel: op.Channel, From: op.Args["to"]}
	if q.From == "" {
		return fmt.Errorf("%w: to must be earliest, latest, a time or a sequence", edge.ErrInvalid)
	}
	partition := -1
	if text := op.Args["partition"]; text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return fmt.Errorf("%w: partition must be a number", edge.ErrInvalid)
		}
		partition = int(n)
	}
	return b.seekIn(ctx, op.Topic, q, partition)
}

// RepositionChannel is a seek that does nothing where the channel has consumers
// (gateway.Core).
func (b *Broker) RepositionChannel(ctx context.Context, topic, channel, from string, partition int) error {
	ctx, cancel := context.WithTimeout(ctx, channelTimeout)
	defer cancel()
	return b.seekIn(ctx, topic, queueOp{Verb: verbChannelSeek, Channel: channel, From: from, Idle: true}, partition)
}

// seekIn carries a seek out in one partition, or in all (-1).
func (b *Broker) seekIn(ctx context.Context, topic string, q queueOp, partition int) error {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return edge.ErrTopicNotFound
	}
	if err := checkOrigin(q.From); err != nil {
		return err
	}
	if partition < 0 {
		return b.onLeaders(ctx, t, q)
	}
	if partition >= t.Partitions {
		return fmt.Errorf("%w: partition must be 0 to %d", edge.ErrInvalid, t.Partitions-1)
	}
	q.Topic, q.Number = uint64(t.ID), uint16(partition)
	return b.atLeader(ctx, q)
}

// createExplicitly makes a topic as asked. Of one that exists only the limits
// change that are named, and a replication factor that is higher.
func (b *Broker) createExplicitly(ctx context.Context, op edge.AdminOp) error {
	s := topicSpec{name: op.Topic, explicit: true}
	if err := boolean(op.Args, "ordered", &s.ordered); err != nil {
		return err
	}
	err := positive(op.Args, map[string]*int{
		"partitions": &s.partitions, "replication_factor": &s.replicas, "min_in_sync": &s.minInSync,
	})
	if err != nil {
		return err
	}
	factor := s.replicas // 0 if it is not named
	if s, err = b.spec(s); err != nil {
		return err
	}
	if _, there := b.catalog.topic(op.Topic); !there {
		if err := b.enoughBrokers(s.replicas, b.o.ReplicationFactor); err != nil { // the default's are awaited
			return err
		}
	}
	if _, err := topicOptions(meta.TopicOptions{}, op.Args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, channelTimeout+time.Duration(s.partitions)*prepareEach)
	defer cancel()
	for {
		t, err := b.createTopic(ctx, s)
		if err != nil {
			return err
		}
		if err = b.raiseReplicas(ctx, op.Topic, factor); err == nil {
			err = b.setOptions(ctx, op.Topic, op.Args)
		}
		if !errors.Is(err, edge.ErrTopicNotFound) {
			return err
		}
		// The one that was found here has been deleted: it is made when that is known.
		err = b.await(ctx, func() bool { now, ok := b.catalog.topic(op.Topic); return !ok || now.ID != t.ID })
		if err != nil {
			return err
		}
	}
}

// boolean reads an argument that may be missing.
func boolean(args map[string]string, name string, to *bool) (err error) {
	if text := args[name]; text != "" {
		if *to, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%w: %s must be true or false", edge.ErrInvalid, name)
		}
	}
	return nil
}
