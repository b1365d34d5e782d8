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
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

const (
	createTimeout = 9 * time.Second // waits for others that are made included
	knownTimeout  = time.Second     // the first put waits no longer for KnownChannels
	// deleteRepeat is how long a repeated delete is taken for the same one:
	// nsqadmin posts it to every broker.
	deleteRepeat = 10 * time.Second
)

// Topics creates, changes and deletes topics.
type Topics struct {
	*records
	caller   calls.Caller
	up       func(ident.Node) bool
	low      func(ident.Node) bool // below its disk reserve
	defaults Defaults
	channels *Channels
	quotas   *quota.Quotas
	locks    *txn.KeyedLock // by name, while a topic is created
	slots    chan struct{}  // a place for each topic that is being made
	group    *concurrency.Group
	log      logrus.FieldLogger
}

// spec is a topic as it is to be made.
type spec struct {
	name                            string
	partitions, replicas, minInSync int
	ordered                         *bool // nil: the default
	explicit                        bool  // asked for by name, not by a put
	durability                      metadata.Durability
	options                         option.Change // others than the defaults
	owner                           string        // whose quota counts it
}

// DefaultMinInSync is the smallest in-sync set that takes puts: one replica may
// fail of three, none of two – an OK means two disks.
func DefaultMinInSync(replicationFactor int) int {
	return replicationFactor/2 + 1
}

// complete fills in the defaults and checks; errors wrap api.ErrInvalid.
func (t *Topics) complete(s spec) (spec, error) {
	d := t.defaults.of(s.name)
	setDefault(&s.partitions, d.Partitions)
	if s.replicas == 0 {
		s.replicas = d.ReplicationFactor
		setDefault(&s.minInSync, d.MinInSync)
	}
	setDefault(&s.minInSync, DefaultMinInSync(s.replicas))
	setDefault(&s.durability, d.Durability)
	setDefault(&s.ordered, &d.Ordered)
	switch {
	case !api.ValidName(s.name): // it is a folder's name on every disk
		return s, fmt.Errorf("%w: %q is no name of a topic", api.ErrInvalid, s.name)
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

// Ensure finds a topic, or makes it with the defaults if that is allowed.
func (t *Topics) Ensure(ctx context.Context, name string) (metadata.TopicState, error) {
	if state, ok := t.catalog.Topic(name); ok {
		return state, nil
	}
	if t.defaults.NoAutoCreate {
		return metadata.TopicState{}, api.ErrTopicNotFound
	}
	s, err := t.complete(spec{name: name})
	if err != nil {
		return metadata.TopicState{}, err
	}
	return t.create(ctx, s)
}

// CreateExplicitly makes a topic as asked. One that exists and differs is api.ErrConflict.
func (t *Topics) CreateExplicitly(ctx context.Context, op api.CreateTopic) error {
	if err := op.Validate(); err != nil {
		return err
	}
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
		durability: metadata.Durability(op.Durability), options: op.Limits.Change,
	})
	if err != nil {
		return err
	}
	if !there {
		if err := t.mayHave(op.Limits.Values); err != nil {
			return err
		}
		if err := t.enoughBrokers(s.replicas, t.defaults.of(s.name).ReplicationFactor); err != nil { // the default's are awaited
			return err
		}
	}
	return t.makeAs(ctx, s, op)
}

// mayHave refuses a deletion for idleness where nothing can be undeleted.
func (t *Topics) mayHave(o metadata.TopicOptions) error {
	if r := o.NeedsGrace(); r != nil && t.defaults.DeleteGrace == 0 {
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
		// The one that was found here has been deleted: it is made when the catalog has that.
		err = t.catalog.Await(ctx, func() bool { now, ok := t.catalog.Topic(op.Topic); return !ok || now.ID != made.ID })
		if err != nil {
			return err
		}
	}
}

// Set changes the limits of a topic, and its durability, that are given.
func (t *Topics) Set(ctx context.Context, op api.SetTopic) error {
	durability := metadata.Durability(op.Durability)
	if err := cmp.Or(op.Validate(), validDurability(cmp.Or(durability, metadata.DurabilitySync)), t.mayHave(op.Limits.Values)); err != nil {
		return err
	}
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		s.DeletedAtMS = 0 // it was asked for by name: its deletion is none that nsqadmin repeats
		setLimits(&s, op.Limits.Change, durability)
		return s, nil
	})
}

// setLimits changes the options that are given, and the durability unless it is "".
func setLimits(s *metadata.TopicState, c option.Change, d metadata.Durability) {
	s.Durability = cmp.Or(d, s.Durability)
	c.Apply(&s.Options)
}

// validDurability refuses a durability that there is not.
func validDurability(d metadata.Durability) error {
	if d != metadata.DurabilitySync && d != metadata.DurabilityReplicated {
		return fmt.Errorf("%w: durability must be %s or %s", api.ErrInvalid, metadata.DurabilitySync, metadata.DurabilityReplicated)
	}
	return nil
}

// create returns when the catalog has the topic. The first broker that creates it wins;
// the others find it.
func (t *Topics) create(ctx context.Context, s spec) (metadata.TopicState, error) {
	came := time.Now()
	unlock, err := t.locks.Lock(ctx, s.name)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer unlock()
	if state, ok := t.catalog.Topic(s.name); ok {
		return state, nil // made while this waited: no broker is asked again
	}
	done, err := t.quotas.Topic(ctx, s.name, s.partitions)
	if err != nil {
		return metadata.TopicState{}, err
	}
	defer done()
	s.owner = api.RequesterOf(ctx).User
	ctx, cancel := context.WithTimeout(ctx, createTimeout+time.Duration(s.partitions)*prepareEach)
	defer cancel()
	c := &creation{spec: s, id: ident.NewTopicID(), hold: t.defaults.Hold + time.Duration(s.partitions)*prepareEach}
	if time.Since(came) > txn.Retry { // another caller has tried it meanwhile
		c.began = came
	}
	known := t.knownChannels(ctx, s.name)
	defer func() { t.group.Go(func(ctx context.Context) { t.release(ctx, c) }) }()
	for {
		old, there := t.catalog.Record(s.name) // read once, so that the write replaces the record that was checked
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

// knownChannels are the channels that a new topic is to have before its first
// message, for only the first one begins with what the topic kept: those of
// consumers that look the topic up elsewhere and have not come yet.
func (t *Topics) knownChannels(ctx context.Context, topic string) []string {
	if t.defaults.KnownChannels == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	return slices.DeleteFunc(t.defaults.KnownChannels(ctx, topic), func(channel string) bool {
		return !api.ValidName(channel) || nsqd.IsEphemeral(channel)
	})
}

// createKnown makes them, all from the beginning: another broker may have taken
// puts since the topic is there. One that cannot be made holds up nothing.
func (t *Topics) createKnown(ctx context.Context, topic string, channels []string) {
	for _, channel := range channels {
		if err := t.channels.CreateChannel(ctx, topic, channel, "earliest", false); err != nil {
			t.log.WithError(err).WithField("topic", topic).WithField("channel", channel).
				Warn("cannot create a channel that lookupd knows")
		}
	}
}
