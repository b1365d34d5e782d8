package coordinator_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/stretchr/testify/require"
)

// forgetful loses the next transaction once it is armed, as etcd does whose leader dies:
// before it was executed, or after.
type forgetful struct {
	metadata.Store
	armed *atomic.Bool
	after bool
}

func (f forgetful) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if f.lose(puts) {
		if f.after {
			_, _, _ = f.Store.Txn(ctx, cmp, puts)
		}
		<-ctx.Done()
		return false, 0, metadata.ErrUnknown
	}
	return f.Store.Txn(ctx, cmp, puts)
}

func (f forgetful) lose(puts []metadata.Put) bool {
	keys := metadata.Keys{Cluster: "test"}
	return slices.ContainsFunc(puts, func(p metadata.Put) bool {
		_, _, ofChannel := keys.ParseChannel(p.Key)
		return ofChannel || p.Key == keys.Topic("orders") || p.Key == keys.Node("n3")
	}) && f.armed.CompareAndSwap(true, false)
}

// TestAdministrationBesideAChangeOfEtcdsLeader: a transaction got no answer, and never
// will. It is made again in good time.
func TestAdministrationBesideAChangeOfEtcdsLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []bool{false, true} {
			var armed atomic.Bool
			c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store {
				return forgetful{Store: s, armed: &armed, after: after}
			}})
			c.do("n1", "topic.create", "orders", "", nil)
			for _, op := range []struct {
				verb, topic, channel string
				args                 map[string]string
			}{
				{"channel.create", "orders", "billing", nil}, {"channel.pause", "orders", "billing", nil}, {"channel.delete", "orders", "billing", nil},
				{"topic.pause", "orders", "", nil}, {"broker.decommission", "", "", map[string]string{"node": "n3"}}, {"topic.delete", "orders", "", nil},
			} {
				armed.Store(true)
				c.do("n1", op.verb, op.topic, op.channel, op.args)
				require.False(t, armed.Load(), op.verb)
			}
		}
	})
}
