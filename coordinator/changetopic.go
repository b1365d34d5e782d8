package coordinator

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// changeTopic rewrites a topic's key, and returns when this broker knows the new
// one. change is asked again when somebody else was faster; what it leaves as it
// was is not written.
func (b *Broker) changeTopic(ctx context.Context, name string, change func(meta.TopicState) (meta.TopicState, error)) error {
	for {
		old, ok := b.catalog.topic(name)
		if !ok {
			return edge.ErrTopicNotFound
		}
		t, err := change(old)
		if err != nil || t == old {
			return err
		}
		t.V = meta.Version
		key := b.keys.Topic(name)
		_, _, err = b.meta.Txn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: old.Revision}}, []meta.Put{{Key: key, Value: meta.Encode(t)}})
		if err != nil {
			return fmt.Errorf("%w: change of %s: %w", edge.ErrUnavailable, name, err)
		}
		if err := b.await(ctx, func() bool { now, _ := b.catalog.record(name); return now.Revision != old.Revision }); err != nil {
			return fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
		}
	}
}

// raiseReplicas gives a topic that is there more replicas: the controller places
// them, one for each partition at a time, and they join the in-sync sets when
// they have caught up. A lower factor changes nothing: whoever creates a topic
// again need not know what it has become.
func (b *Broker) raiseReplicas(ctx context.Context, name string, factor int) error {
	return b.changeTopic(ctx, name, func(t meta.TopicState) (meta.TopicState, error) {
		if factor <= t.ReplicationFactor {
			return t, nil
		}
		if n := len(b.catalog.nodes()); factor > n {
			return t, fmt.Errorf("%w: replication_factor %d, but the cluster has %d brokers", edge.ErrInvalid, factor, n)
		}
		t.ReplicationFactor = factor
		return t, nil
	})
}
