package admin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// SetReplication changes how many replicas a topic has, and how many of them must
// be in sync for its puts. It returns when the topic's key has the numbers. The
// controller then changes one partition after the other: it adds the replicas that
// lack, drops those that are too many, and raises the minimum when so many are in sync.
func (t *Topics) SetReplication(ctx context.Context, op api.SetReplication) error {
	return t.changeTopic(ctx, op.Topic, func(s metadata.TopicState) (metadata.TopicState, error) {
		factor := cmp.Or(op.ReplicationFactor, s.ReplicationFactor) // as it is now: asked again, another writer has changed it
		s.MinInSync = cmp.Or(op.MinInSync, s.MinInSync)
		if s.MinInSync > factor {
			return s, fmt.Errorf("%w: min_in_sync %d is more than the replication factor %d", api.ErrInvalid, s.MinInSync, factor)
		}
		return t.withFactor(s, factor)
	})
}

// withFactor refuses more replicas than there are brokers for.
func (t *Topics) withFactor(s metadata.TopicState, factor int) (metadata.TopicState, error) {
	err := t.enoughBrokers(factor, s.ReplicationFactor)
	if err == nil {
		s.ReplicationFactor = factor
	}
	return s, err
}

// enoughBrokers refuses a replication factor above the number of brokers that
// stay; a factor up to allowed is never refused.
func (t *Topics) enoughBrokers(factor, allowed int) error {
	staying := 0
	for _, n := range t.catalog.Nodes() {
		if !n.Leaving {
			staying++
		}
	}
	if factor > max(staying, allowed) {
		return fmt.Errorf("%w: replication_factor %d, but the cluster has %d brokers", api.ErrInvalid, factor, staying)
	}
	return nil
}
