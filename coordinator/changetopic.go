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
