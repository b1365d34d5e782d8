package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
)

const (
	createTimeout = 9 * time.Second  // including the wait for concurrent creations
	knownTimeout  = time.Second      // of KnownChannels
	deleteRepeat  = 10 * time.Second // within this time a repeated deletion counts as one: nsqadmin posts it to every broker
)

// topics creates, changes and deletes topics.
type topics struct {
	*records
	o        Options
	channels *Channels
	quotas   *quota.Quotas
	locks    *txn.KeyedLock // by name, while a topic is created
	slots    chan struct{}  // one for each topic that is being created
}

// DefaultMinInSync is the smallest in-sync set that accepts puts: one of three replicas may fail, but none of two,
// because an OK means two disks.
func DefaultMinInSync(replicationFactor int) int {
	return replicationFactor/2 + 1
}

// newTopic is the state of a topic that is to be created. Errors wrap outcome.ErrInvalid.
func (t *topics) newTopic(op api.CreateTopic) (metadata.TopicState, error) {
	s := t.o.Defaults.of(op.Topic)
	s.Partitions = cmp.Or(op.Partitions, s.Partitions)
	if op.ReplicationFactor != 0 {
		s.ReplicationFactor, s.MinInSync = op.ReplicationFactor, 0
	}
	s.MinInSync = cmp.Or(op.MinInSync, s.MinInSync, DefaultMinInSync(s.ReplicationFactor))
	if op.Ordered != nil {
		s.Ordered = *op.Ordered
	}
	setOptions(&s, op.Options, metadata.Durability(op.Durability))
	switch {
	case !api.ValidName(op.Topic): // it names a folder
		return s, fmt.Errorf("%w: %q is not the name of a topic", outcome.ErrInvalid, op.Topic)
	case s.Partitions < 1 || s.Partitions > api.MaxPartitions:
		return s, fmt.Errorf("%w: partitions must be 1 to %d", outcome.ErrInvalid, api.MaxPartitions)
	case s.ReplicationFactor < 1:
		return s, fmt.Errorf("%w: replication_factor must be at least 1", outcome.ErrInvalid)
	case s.MinInSync < 1 || s.MinInSync > s.ReplicationFactor:
		return s, fmt.Errorf("%w: min_in_sync must be 1 to the replication factor %d", outcome.ErrInvalid, s.ReplicationFactor)
	}
	return s, validDurability(s.Durability)
}

// Ensure creates a topic with the defaults unless it exists, if that is allowed.
func (t *topics) Ensure(ctx context.Context, name string) error {
	if _, ok := t.catalog.Topic(name); ok {
		return nil
	}
	if !t.o.Defaults.AutoCreate {
		return outcome.ErrTopicNotFound
	}
	s, err := t.newTopic(api.CreateTopic{Topic: name})
	if err == nil {
		_, err = t.create(ctx, &creation{name: name, topic: s})
	}
	return err
}

// createExplicitly creates a topic as requested. outcome.ErrConflict: it exists with other settings.
func (t *topics) createExplicitly(ctx context.Context, op api.CreateTopic) error {
	now, err := t.topic(ctx, op.Topic) // the catalog may lag
	there := err == nil
	if there {
		err = conflict(now, op)
	} else if errors.Is(err, outcome.ErrTopicNotFound) {
		err = nil
	}
	if err != nil {
		return err
	}
	s, err := t.newTopic(op)
	if err != nil {
		return err
	}
	if !there {
		if err := t.mayHave(op.Options.Values); err != nil {
			return err
		}
		if err := t.enoughBrokers(s.ReplicationFactor, t.o.Defaults.of(op.Topic).ReplicationFactor); err != nil { // the default number of brokers is waited for
			return err
		}
	}
	return t.makeAs(ctx, s, op)
}

// mayHave refuses options that require a --delete-grace if there is none.
func (t *topics) mayHave(o metadata.TopicOptions) error {
	if r := o.NeedsGrace(); r != nil && t.o.Defaults.DeleteGrace == 0 {
		return fmt.Errorf("%w: %s requires a --delete-grace: %s", outcome.ErrInvalid, r.Name, r.Grace)
	}
	return nil
}

// makeAs creates a topic with the settings of the operation, or accepts an existing topic with the same settings.
func (t *topics) makeAs(ctx context.Context, s metadata.TopicState, op api.CreateTopic) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout+time.Duration(s.Partitions)*prepareEach)
	defer cancel()
	for {
		made, err := t.create(ctx, &creation{name: op.Topic, topic: s, explicit: true})
		if err != nil {
			return err
		}
		err = t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
			err := conflict(s, op)
			s.DeletedAtMS = 0 // its next deletion is not a repeat by nsqadmin
			return s, err
		})
		if !errors.Is(err, outcome.ErrTopicNotFound) {
			return err
		}
		// It has been deleted: it is created when the catalog has the deletion.
		err = t.catalog.Await(ctx, func() bool { now, ok := t.catalog.Topic(op.Topic); return !ok || now.ID != made.ID })
		if err != nil {
			return err
		}
	}
}

func (t *topics) set(ctx context.Context, op api.SetTopic) error {
	durability := metadata.Durability(op.Durability)
	if err := cmp.Or(validDurability(cmp.Or(durability, metadata.DurabilitySync)), t.mayHave(op.Options.Values)); err != nil {
		return err
	}
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		s.DeletedAtMS = 0 // its next deletion is not a repeat by nsqadmin
		setOptions(&s, op.Options, durability)
		return s, nil
	})
}

// setOptions changes options, and the durability unless it is "".
func setOptions(s *metadata.TopicState, c option.Change[option.Topic], d metadata.Durability) {
	s.Durability = cmp.Or(d, s.Durability)
	c.Apply(&s.Options)
}

func validDurability(d metadata.Durability) error {
	if d != metadata.DurabilitySync && d != metadata.DurabilityReplicated {
		return fmt.Errorf("%w: durability must be %s or %s", outcome.ErrInvalid, metadata.DurabilitySync, metadata.DurabilityReplicated)
	}
	return nil
}

// create returns when the catalog has the topic. Another broker may have created it.
func (t *topics) create(ctx context.Context, c *creation) (metadata.TopicState, error) {
	came := time.Now()
	unlock, err := t.locks.Lock(ctx, c.name)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer unlock()
	if state, ok := t.catalog.Topic(c.name); ok {
		return state, nil // created while this waited
	}
	done, err := t.quotas.Topic(ctx, c.name, c.topic.Partitions)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer done()
	prepare := time.Duration(c.topic.Partitions) * prepareEach
	ctx, cancel := context.WithTimeout(ctx, createTimeout+prepare)
	defer cancel()
	c.topic.ID, c.topic.Owner, c.hold = ident.NewTopicID(), api.RequesterOf(ctx).User, t.o.Defaults.Hold+prepare
	if time.Since(came) > txn.Retry { // another caller has tried until now, so the hold counts from this caller's arrival
		c.began = came
	}
	known := t.knownChannels(ctx, c.name)
	defer func() { t.o.Group.Go(func(ctx context.Context) { t.release(ctx, c) }) }()
	for {
		old, there := t.catalog.Record(c.name) // read once: the write replaces the record that was checked
		if there && !old.Deleted {
			return old, nil
		}
		err := t.try(ctx, c, old)
		if err == nil {
			err = t.catalog.Await(ctx, func() bool { _, ok := t.catalog.Topic(c.name); return ok })
		}
		if err == nil {
			t.quotas.Implied(ctx, "created topic "+c.name)
			t.createKnown(ctx, c.name, known)
		}
		if errors.Is(err, outcome.ErrInvalid) {
			return metadata.TopicState{}, err
		}
		if err != nil && (time.Since(c.began) >= c.hold || !concurrency.SleepUntil(ctx, t.catalog.Changed(), txn.Retry)) {
			return metadata.TopicState{}, fmt.Errorf("%w: create topic %s: %w", outcome.ErrUnavailable, c.name, err)
		}
	}
}

// knownChannels are the channels that a new topic gets before its first message: lookupd lists them, but their
// consumers have not connected yet. They must exist early because only a topic's first channel begins with the retained
// messages.
func (t *topics) knownChannels(ctx context.Context, topic string) []string {
	if t.o.Defaults.KnownChannels == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	return slices.DeleteFunc(t.o.Defaults.KnownChannels(ctx, topic), func(channel string) bool {
		return !api.ValidName(channel) || nsqd.IsEphemeral(channel)
	})
}

// createKnown creates those channels, all beginning at the earliest message, because the topic may have messages
// already. A failure is logged.
func (t *topics) createKnown(ctx context.Context, topic string, channels []string) {
	for _, channel := range channels {
		if err := t.channels.CreateChannel(ctx, topic, channel, "earliest", false); err != nil {
			t.o.Log.WithError(err).WithField("topic", topic).WithField("channel", channel).
				Warn("channel of lookupd not created")
		}
	}
}

// setReplication changes a topic's replication factor and min in-sync replicas. It returns when the topic's key has the
// numbers. The controller then changes one partition after the other: it adds and drops replicas, and raises the
// minimum when enough are in sync.
func (t *topics) setReplication(ctx context.Context, op api.SetReplication) error {
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		before := s.ReplicationFactor
		s.ReplicationFactor, s.MinInSync = cmp.Or(op.ReplicationFactor, before), cmp.Or(op.MinInSync, s.MinInSync)
		if s.MinInSync > s.ReplicationFactor {
			return s, fmt.Errorf("%w: min_in_sync %d is more than the replication factor %d", outcome.ErrInvalid, s.MinInSync, s.ReplicationFactor)
		}
		return s, t.enoughBrokers(s.ReplicationFactor, before)
	})
}

// enoughBrokers refuses a replication factor above the number of brokers that are not being decommissioned. A factor up
// to allowed is never refused.
func (t *topics) enoughBrokers(factor, allowed int) error {
	staying := 0
	for _, n := range t.catalog.Nodes() {
		if !n.Leaving {
			staying++
		}
	}
	if factor > max(staying, allowed) {
		return fmt.Errorf("%w: replication_factor %d, but the cluster has %s", outcome.ErrInvalid, factor, api.Count(staying, "broker"))
	}
	return nil
}

// Settings are the effective settings of a topic (api.Directory).
func (t *topics) Settings(name string) (api.TopicSettings, bool) {
	s, ok := t.catalog.Topic(name)
	return api.TopicSettings{
		Topic: name, ID: s.ID, Partitions: s.Partitions, ReplicationFactor: s.ReplicationFactor, MinInSync: s.MinInSync,
		Durability: string(s.Durability), Ordered: s.Ordered, Effective: s.Options.Effective(),
	}, ok
}

// conflict is the error of a creation whose settings differ from the existing topic's.
func conflict(t metadata.TopicState, op api.CreateTopic) error {
	var has, asked []string
	compare := func(name string, is, wants any) {
		if is != wants {
			has, asked = append(has, fmt.Sprintf("%s=%v", name, is)), append(asked, fmt.Sprintf("%s=%v", name, wants))
		}
	}
	compare("partitions", t.Partitions, cmp.Or(op.Partitions, t.Partitions))
	compare("replication_factor", t.ReplicationFactor, cmp.Or(op.ReplicationFactor, t.ReplicationFactor))
	compare("min_in_sync", t.MinInSync, cmp.Or(op.MinInSync, t.MinInSync))
	if op.Ordered != nil {
		compare("ordered", t.Ordered, *op.Ordered)
	}
	wanted := t
	setOptions(&wanted, op.Options, metadata.Durability(op.Durability))
	compare("durability", t.Durability, wanted.Durability)
	is, wants := t.Options.Effective(), wanted.Options.Effective()
	for i := range option.Topics {
		r := &option.Topics[i]
		compare(r.Name, r.Show(option.Topic(is)), r.Show(option.Topic(wants)))
	}
	if has == nil {
		return nil
	}
	return fmt.Errorf("%w: topic %s has %s, not %s; nothing was changed (/v1/topic/set or nsqctl topic set changes limits and the durability, /v1/topic/replication replication_factor and min_in_sync, /v1/topic/partitions raises partitions)",
		outcome.ErrConflict, op.Topic, strings.Join(has, " "), strings.Join(asked, " "))
}
