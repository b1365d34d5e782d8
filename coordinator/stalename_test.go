package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
)

// laggingMeta passes a change on when it may.
type laggingMeta struct {
	hookedMeta
	may func(metadata.Change)
}

func (l laggingMeta) Watch(ctx context.Context, prefix string) <-chan metadata.Change {
	in, out := l.Store.Watch(ctx, prefix), make(chan metadata.Change)
	go func() { // ends with ctx
		defer close(out)
		for ch := range in {
			l.may(ch)
			select {
			case out <- ch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// TestDeleteAtABrokerThatLags: the topic was deleted and created again while the watch of the broker that is asked to
// delete it lags. The broker receives the deletion alone, and does not take it for the one that it was asked for.
func TestDeleteAtABrokerThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := metadata.Keys{Cluster: "test"}.Topic("orders")
		var armed atomic.Bool
		asked, deleted, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
		askedOnce, againOnce := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(again) })
		ask := func(ofTopic bool) {
			if armed.Load() && ofTopic {
				askedOnce()
			}
		}
		c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
			if name != "n3" {
				return s
			}
			return laggingMeta{
				hookedMeta: hookedMeta{
					Store: s,
					get:   func(_ context.Context, k string) error { ask(k == key); return nil },
					txn: func(_ context.Context, puts []metadata.Put) {
						ask(slices.ContainsFunc(puts, func(p metadata.Put) bool { return p.Key == key }))
					},
				},
				may: func(ch metadata.Change) {
					i := slices.IndexFunc(ch.Puts, func(e metadata.Entry) bool { return e.Key == key })
					if i < 0 || !armed.Load() {
						return
					}
					if of, err := metadata.DecodeTopic(ch.Puts[i]); err == nil && of.Deleted {
						<-deleted
					} else {
						<-again
					}
				},
			}
		}})
		t.Cleanup(againOnce)
		c.do("n1", "topic.create", "orders", "", nil)
		c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("orders"); return ok }, "n3 knows it")
		armed.Store(true)
		c.do("n1", "topic.delete", "orders", "", nil)
		c.do("n1", "topic.create", "orders", "", nil)
		result := make(chan error, 1)
		go func() {
			result <- do(context.Background(), c.nodes["n3"], operation{Verb: "topic.delete", Topic: "orders"})
		}()
		<-asked
		close(deleted)
		require.NoError(t, <-result)
		againOnce()
		_, err := c.meta.Get(t.Context(), key)
		require.NoError(t, err)
		c.eventually(func() bool { _, ok := c.nodes["n1"].Topic("orders"); return !ok }, "the topic stays")
	})
}

// TestDeleteWithoutMetadata: a broker that cannot read the key of an unknown topic does not
// answer that the topic does not exist.
func TestDeleteWithoutMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errMeta := errors.New("no leader")
		c := newClusterOf(t, cluster{size: 1, wrap: func(_ string, s metadata.Store) metadata.Store {
			return hookedMeta{Store: s, get: func(_ context.Context, k string) error {
				if k == (metadata.Keys{Cluster: "test"}).Topic("orders") {
					return errMeta
				}
				return nil
			}}
		}})
		err := c.administer("n1", "topic.delete", "orders", nil)
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		require.NotErrorIs(t, err, outcome.ErrTopicNotFound)
	})
}

// lag of a broker: its watch delivers changes of the metadata only after the lag's end.
type lag struct {
	on  atomic.Bool
	end func()
}

// newLagging is a cluster of three in which n3 may lag. asks is called for each key that n3 reads.
func newLagging(t *testing.T, asks func(l *lag, key string)) (*cluster, *lag) {
	over := make(chan struct{})
	l := &lag{end: sync.OnceFunc(func() { close(over) })}
	c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
		if name != "n3" {
			return s
		}
		return laggingMeta{
			hookedMeta: hookedMeta{Store: s, get: func(_ context.Context, k string) error { asks(l, k); return nil }},
			may: func(metadata.Change) {
				if l.on.Load() {
					<-over
				}
			},
		}
	}})
	t.Cleanup(l.end)
	return c, l
}

// TestCreateAtABrokerThatLags: a broker that has not received the deletion of a topic creates it again nonetheless.
func TestCreateAtABrokerThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := metadata.Keys{Cluster: "test"}.Topic("orders")
		c, lag := newLagging(t, func(l *lag, k string) {
			if k == key && l.on.Load() {
				l.end()
			}
		})
		c.do("n1", "topic.create", "orders", "", nil)
		c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("orders"); return ok }, "n3 knows it")
		lag.on.Store(true)
		c.do("n1", "topic.delete", "orders", "", nil)
		c.do("n3", "topic.create", "orders", "", map[string]string{"max_bytes": "1000000"})
		c.eventually(func() bool { v, ok := c.view("n1", "orders"); return ok && v.MaxBytes == 1000000 }, "it is there")
	})
}

// TestCreateOfAChannelAtABrokerThatLags: a broker that has not received the deletion of a channel creates it again
// nonetheless.
func TestCreateOfAChannelAtABrokerThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var deleted atomic.Bool
		c, lag := newLagging(t, func(l *lag, _ string) {
			if deleted.Load() {
				l.end()
			}
		})
		topic := "orders"
		for c.do("n1", "topic.create", topic, "", nil); c.leader(topic) == "n3"; c.do("n1", "topic.create", topic, "", nil) {
			topic += "."
		}
		c.do("n3", "channel.create", topic, "billing", nil)
		c.eventually(func() bool { return slices.Contains(c.nodes["n3"].Channels(topic), "billing") }, "n3 knows it")
		lag.on.Store(true)
		c.do("n1", "channel.delete", topic, "billing", nil)
		deleted.Store(true)
		c.do("n3", "channel.create", topic, "billing", nil)
		c.eventually(func() bool { return slices.Contains(c.nodes["n1"].Channels(topic), "billing") }, "it is there")
	})
}

// TestAdministrationAtABrokerThatLags: an operation whose change does not reach the broker
// in time is answered as unavailable, not as an internal error.
func TestAdministrationAtABrokerThatLags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, lag := newLagging(t, func(*lag, string) {})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.eventually(func() bool { return slices.Contains(c.nodes["n3"].Channels("orders"), "billing") }, "n3 knows them")
		lag.on.Store(true)
		c.do("n1", "topic.create", "new", "", nil)
		for _, op := range []operation{
			{Verb: "channel.order", Topic: "orders", Channel: "billing", Args: map[string]string{"order": "true"}},
			{Verb: "topic.replication", Topic: "orders", Args: map[string]string{"min_in_sync": "1"}},
			{Verb: "channel.empty", Topic: "new", Channel: "billing"},
			{Verb: "topic.delete", Topic: "orders"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			require.ErrorIs(t, do(ctx, c.nodes["n3"], op), outcome.ErrUnavailable, op.Verb)
			cancel()
		}
		lag.end()
		c.eventually(func() bool { _, ok := c.nodes["n3"].Topic("orders"); return !ok }, "it was deleted")
	})
}
