package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd"
)

const (
	createTimeout = 9 * time.Second // including the wait for other creations
	knownTimeout  = time.Second     // of KnownChannels
	// deleteRepeat is how long a repeated deletion counts as the same one: nsqadmin posts it to every broker.
	deleteRepeat = 10 * time.Second
)

// Topics creates, changes and deletes topics.
type Topics struct {
	*records
	o        Options
	channels *Channels
	quotas   *quota.Quotas
	locks    *txn.KeyedLock // by name, while a topic is created
	slots    chan struct{}  // one for each topic that is being created
}

// spec describes a topic that is to be created.
type spec struct {
	name                            string
	partitions, replicas, minInSync int
	ordered                         *bool // nil: the default
	explicit                        bool  // requested by name, not by a put
	durability                      metadata.Durability
	options                         option.Change[option.Topic] // of the defaults
	owner                           string                      // whose quota counts it
}

// DefaultMinInSync is the smallest in-sync set that accepts puts: of three replicas one may fail, of two none, because
// an OK means two disks.
func DefaultMinInSync(replicationFactor int) int {
	return replicationFactor/2 + 1
}

// complete fills in the defaults and checks; errors wrap api.ErrInvalid.
func (t *Topics) complete(s spec) (spec, error) {
	d := t.o.Defaults.of(s.name)
	setDefault(&s.partitions, d.Partitions)
	if s.replicas == 0 {
		s.replicas = d.ReplicationFactor
		setDefault(&s.minInSync, d.MinInSync)
	}
	setDefault(&s.minInSync, DefaultMinInSync(s.replicas))
	setDefault(&s.durability, d.Durability)
	setDefault(&s.ordered, &d.Ordered)
	switch {
	case !api.ValidName(s.name): // it names a folder
		return s, fmt.Errorf("%w: %q is not the name of a topic", api.ErrInvalid, s.name)
	case s.partitions < 1 || s.partitions > api.MaxPartitions:
		return s, fmt.Errorf("%w: partitions must be 1 to %d", api.ErrInvalid, api.MaxPartitions)
	case s.replicas < 1:
		return s, fmt.Errorf("%w: replication_factor must be at least 1", api.ErrInvalid)
	case s.minInSync < 1 || s.minInSync > s.replicas:
		return s, fmt.Errorf("%w: min_in_sync must be 1 to the replication factor %d", api.ErrInvalid, s.replicas)
	}
	return s, validDurability(s.durability)
}

// setDefault sets *v where it is zero.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Ensure creates a topic with the defaults unless it exists, if that is allowed.
func (t *Topics) Ensure(ctx context.Context, name string) error {
	if _, ok := t.catalog.Topic(name); ok {
		return nil
	}
	if t.o.Defaults.NoAutoCreate {
		return api.ErrTopicNotFound
	}
	s, err := t.complete(spec{name: name})
	if err == nil {
		_, err = t.create(ctx, s)
	}
	return err
}

// createExplicitly creates a topic as requested. api.ErrConflict: it exists with other settings.
func (t *Topics) createExplicitly(ctx context.Context, op api.CreateTopic) error {
	now, err := t.topic(ctx, op.Topic) // the catalog may lag
	there := err == nil
	if there {
		err = conflict(now, op)
	} else if errors.Is(err, api.ErrTopicNotFound) {
		err = nil
	}
	if err != nil {
		return err
	}
	s, err := t.complete(spec{
		name: op.Topic, partitions: op.Partitions, replicas: op.ReplicationFactor, minInSync: op.MinInSync,
		ordered: op.Ordered, explicit: true,
		durability: metadata.Durability(op.Durability), options: op.Options,
	})
	if err != nil {
		return err
	}
	if !there {
		if err := t.mayHave(op.Options.Values); err != nil {
			return err
		}
		if err := t.enoughBrokers(s.replicas, t.o.Defaults.of(s.name).ReplicationFactor); err != nil { // the default number is awaited
			return err
		}
	}
	return t.makeAs(ctx, s, op)
}

// mayHave refuses options that require a --delete-grace if there is none.
func (t *Topics) mayHave(o metadata.TopicOptions) error {
	if r := o.NeedsGrace(); r != nil && t.o.Defaults.DeleteGrace == 0 {
		return fmt.Errorf("%w: %s requires a --delete-grace: %s", api.ErrInvalid, r.Name, r.Grace)
	}
	return nil
}

// makeAs creates a topic, or finds one with the settings of the operation.
func (t *Topics) makeAs(ctx context.Context, s spec, op api.CreateTopic) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout+time.Duration(s.partitions)*prepareEach)
	defer cancel()
	for {
		made, err := t.create(ctx, s)
		if err != nil {
			return err
		}
		if err = t.confirm(ctx, op); !errors.Is(err, api.ErrTopicNotFound) {
			return err
		}
		// It has been deleted: it is created when the catalog has the deletion.
		err = t.catalog.Await(ctx, func() bool { now, ok := t.catalog.Topic(op.Topic); return !ok || now.ID != made.ID })
		if err != nil {
			return err
		}
	}
}

// set changes options of a topic, and its durability.
func (t *Topics) set(ctx context.Context, op api.SetTopic) error {
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
		return fmt.Errorf("%w: durability must be %s or %s", api.ErrInvalid, metadata.DurabilitySync, metadata.DurabilityReplicated)
	}
	return nil
}

// create returns when the catalog has the topic. Another broker may have created it.
func (t *Topics) create(ctx context.Context, s spec) (metadata.TopicState, error) {
	came := time.Now()
	unlock, err := t.locks.Lock(ctx, s.name)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer unlock()
	if state, ok := t.catalog.Topic(s.name); ok {
		return state, nil // created while this waited
	}
	done, err := t.quotas.Topic(ctx, s.name, s.partitions)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer done()
	s.owner = api.RequesterOf(ctx).User
	ctx, cancel := context.WithTimeout(ctx, createTimeout+time.Duration(s.partitions)*prepareEach)
	defer cancel()
	c := &creation{spec: s, id: ident.NewTopicID(), hold: t.o.Defaults.Hold + time.Duration(s.partitions)*prepareEach}
	if time.Since(came) > txn.Retry { // another caller has tried it
		c.began = came
	}
	known := t.knownChannels(ctx, s.name)
	defer func() { t.o.Group.Go(func(ctx context.Context) { t.release(ctx, c) }) }()
	for {
		old, there := t.catalog.Record(s.name) // read once: the write replaces the record that was checked
		if there && !old.Deleted {
			return old, nil
		}
		err := t.try(ctx, c, old)
		if err == nil {
			err = t.catalog.Await(ctx, func() bool { _, ok := t.catalog.Topic(s.name); return ok })
		}
		if err == nil {
			t.quotas.Implied(ctx, "created topic "+s.name)
			t.createKnown(ctx, s.name, known)
		}
		if errors.Is(err, api.ErrInvalid) {
			return metadata.TopicState{}, err
		}
		if err != nil && (time.Since(c.began) >= c.hold || !concurrency.SleepUntil(ctx, t.catalog.Changed(), txn.Retry)) {
			return metadata.TopicState{}, fmt.Errorf("%w: create topic %s: %w", api.ErrUnavailable, s.name, err)
		}
	}
}

// knownChannels are the channels that a new topic is to have before its first message, because only a topic's first
// channel begins with the retained messages: lookupd has them, and their consumers have not connected yet.
func (t *Topics) knownChannels(ctx context.Context, topic string) []string {
	if t.o.Defaults.KnownChannels == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	return slices.DeleteFunc(t.o.Defaults.KnownChannels(ctx, topic), func(channel string) bool {
		return !api.ValidName(channel) || nsqd.IsEphemeral(channel)
	})
}

// createKnown creates them, all from the earliest message: the topic may have messages already. A failure is logged.
func (t *Topics) createKnown(ctx context.Context, topic string, channels []string) {
	for _, channel := range channels {
		if err := t.channels.CreateChannel(ctx, topic, channel, "earliest", false); err != nil {
			t.o.Log.WithError(err).WithField("topic", topic).WithField("channel", channel).
				Warn("channel of lookupd not created")
		}
	}
}

// setReplication changes the number of replicas of a topic, and how many of them must be in sync for its puts. It
// returns when the topic's key has the numbers. The controller then changes one partition after the other: it adds and
// drops replicas, and raises the minimum when enough are in sync.
func (t *Topics) setReplication(ctx context.Context, op api.SetReplication) error {
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		before := s.ReplicationFactor
		s.ReplicationFactor, s.MinInSync = cmp.Or(op.ReplicationFactor, before), cmp.Or(op.MinInSync, s.MinInSync)
		if s.MinInSync > s.ReplicationFactor {
			return s, fmt.Errorf("%w: min_in_sync %d is more than the replication factor %d", api.ErrInvalid, s.MinInSync, s.ReplicationFactor)
		}
		return s, t.enoughBrokers(s.ReplicationFactor, before)
	})
}

// enoughBrokers refuses a replication factor above the number of brokers that are not being decommissioned. A factor up
// to allowed is never refused.
func (t *Topics) enoughBrokers(factor, allowed int) error {
	staying := 0
	for _, n := range t.catalog.Nodes() {
		if !n.Leaving {
			staying++
		}
	}
	if factor > max(staying, allowed) {
		return fmt.Errorf("%w: replication_factor %d, but the cluster has %s", api.ErrInvalid, factor, api.Count(staying, "broker"))
	}
	return nil
}
