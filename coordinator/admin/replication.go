package admin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

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
		return fmt.Errorf("%w: replication_factor %d, but the cluster has %d brokers", api.ErrInvalid, factor, staying)
	}
	return nil
}
