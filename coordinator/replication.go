package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// setReplication changes how many replicas a topic has, and how many of them must
// be in sync for its puts. It returns when the topic says so; the controller
// brings each partition there: replicas are added where they lack and taken away
// where they are too many, one partition after the other, and a higher minimum
// comes when so many are in sync.
func (b *Broker) setReplication(ctx context.Context, op edge.AdminOp) error {
	var factor, minimum int
	if err := positive(op.Args, map[string]*int{"replication_factor": &factor, "min_in_sync": &minimum}); err != nil {
		return err
	}
	if factor == 0 && minimum == 0 {
		return fmt.Errorf("%w: name replication_factor, min_in_sync, or both", edge.ErrInvalid)
	}
	return b.changeTopic(ctx, op.Topic, func(t meta.TopicState) (meta.TopicState, error) {
		wanted := cmp.Or(factor, t.ReplicationFactor) // what is not named is as it is now: asked again, somebody else has changed it
		t.MinInSync = cmp.Or(minimum, t.MinInSync)
		if t.MinInSync > wanted {
			return t, fmt.Errorf("%w: min_in_sync %d is more than the replication factor %d", edge.ErrInvalid, t.MinInSync, wanted)
		}
		return b.withFactor(t, wanted)
	})
}

// raiseReplicas gives a topic that is there more replicas. A lower factor changes
// nothing: whoever creates a topic again need not know what it has become.
func (b *Broker) raiseReplicas(ctx context.Context, name string, factor int) error {
	return b.changeTopic(ctx, name, func(t meta.TopicState) (meta.TopicState, error) {
		return b.withFactor(t, max(factor, t.ReplicationFactor))
	})
}

// withFactor refuses more replicas than there are brokers for.
func (b *Broker) withFactor(t meta.TopicState, factor int) (meta.TopicState, error) {
	err := b.enoughBrokers(factor, t.ReplicationFactor)
	if err == nil {
		t.ReplicationFactor = factor
	}
	return t, err
}

// enoughBrokers refuses a replication factor above the number of brokers that
// stay; what is allowed is never refused.
func (b *Broker) enoughBrokers(factor, allowed int) error {
	staying := 0
	for _, n := range b.catalog.nodes() {
		if !n.Leaving {
			staying++
		}
	}
	if factor > max(staying, allowed) {
		return fmt.Errorf("%w: replication_factor %d, but the cluster has %d brokers", edge.ErrInvalid, factor, staying)
	}
	return nil
}

// positive reads the numbers that are named; the others stay.
func positive(args map[string]string, into map[string]*int) error {
	for key, to := range into {
		text := args[key]
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%w: %s must be a positive number", edge.ErrInvalid, key)
		}
		*to = n
	}
	return nil
}
