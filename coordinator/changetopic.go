package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// changeTopic rewrites a topic's key, and returns when this broker knows the new
// one.
func (b *Broker) changeTopic(ctx context.Context, name string, change func(meta.TopicState) (meta.TopicState, error)) error {
	t, err := b.rewriteTopic(ctx, name, change)
	if err != nil {
		return err
	}
	return b.awaitTopic(ctx, name, t.Revision)
}

// rewriteTopic writes what change makes of a topic's key as it is now, and returns
// that. change is asked again when somebody else was faster; what it leaves as it was
// is not written.
func (b *Broker) rewriteTopic(ctx context.Context, name string, change func(meta.TopicState) (meta.TopicState, error)) (meta.TopicState, error) {
	for {
		old, err := b.topicKey(ctx, name)
		if err != nil {
			return old, err
		}
		t, err := change(old)
		if err != nil || t == old {
			return old, err
		}
		t.V = meta.Version
		key := b.keys.Topic(name)
		ok, revision, err := b.tryTxn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: old.Revision}}, []meta.Put{{Key: key, Value: meta.Encode(t)}})
		if err != nil {
			return old, fmt.Errorf("%w: change of %s: %w", edge.ErrUnavailable, name, err)
		}
		if ok {
			t.Revision = revision
			return t, nil
		}
	}
}

// tryTxn is one attempt at a transaction on keys as they were read. It has little time,
// for etcd forgets what was under way when its leader died (txnTimeout). Not ok: they have
// moved, or no answer came, revision 0; whoever reads them again finds out.
func (b *Broker) tryTxn(ctx context.Context, cmp []meta.Compare, puts []meta.Put) (ok bool, rev int64, err error) {
	short, cancel := context.WithTimeout(ctx, 2*txnTimeout+time.Duration(len(puts))*writeEach)
	defer cancel()
	ok, rev, err = b.meta.Txn(short, cmp, puts)
	if errors.Is(err, meta.ErrUnknown) && waitFor(ctx, nil, createRetry) {
		return false, 0, nil
	}
	return ok, rev, err
}

// awaitTopic waits until a topic's key is known here as it was at a revision, or
// later, or that it is gone.
func (b *Broker) awaitTopic(ctx context.Context, name string, revision int64) error {
	return b.await(ctx, func() bool { t, ok := b.catalog.record(name); return !ok || t.Revision >= revision })
}
