package coordinator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// lateMeta answers transactions late, and shows changes late: the broker is the last to learn what it has proposed.
type lateMeta struct {
	metadata.Store
	by *atomic.Int64 // ns
}

func (s lateMeta) late() { time.Sleep(time.Duration(s.by.Load())) }

func (s lateMeta) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	ok, revision, err := s.Store.Txn(ctx, cmp, puts)
	s.late()
	return ok, revision, err
}

func (s lateMeta) Watch(ctx context.Context, prefix string) <-chan metadata.Change {
	seen := make(chan metadata.Change)
	go func() {
		defer close(seen)
		for ch := range s.Store.Watch(ctx, prefix) {
			s.late()
			select {
			case seen <- ch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return seen
}

// TestHandOverRedeliversNothingThatIsFinished: the finish, or the requeue, of a message was answered while its partition's
// leadership was being transferred. The former leader accepted it after the last change that the next leader had.
func TestHandOverRedeliversNothingThatIsFinished(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"true", "false"} {
		t.Run("ordered="+order, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				by := map[string]*atomic.Int64{"n1": {}, "n2": {}, "n3": {}}
				c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store { return lateMeta{s, by[name]} }})
				c.do("n1", "topic.create", "orders", "", map[string]string{"ordered": order})
				c.do("n1", "channel.create", "orders", "billing", nil)
				const n = 60
				for i := range n {
					require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
				}
				leader := c.leader("orders")
				s := c.subscribe(leader, "orders", "billing", 1)
				handed := make(chan struct{})
				by[leader].Store(int64(50 * time.Millisecond))
				tries := map[string]int{}
				for i := 0; len(tries) < n || tries[fmt.Sprintf("m%d", n-1)] < 2; i++ {
					if i == n/2 {
						go func() {
							c.nodes[leader].TransferLeadership(t.Context())
							close(handed)
						}()
					}
					d := s.next()
					body := string(d.Message.Body)
					tries[body]++
					require.EqualValues(t, tries[body], d.Message.Attempts, "%s comes again, or its requeue was forgotten", body)
					time.Sleep(time.Millisecond)
					if tries[body] < 2 {
						require.NoError(t, s.sub.Requeue(d.ID, 0))
					} else {
						s.finish(d)
					}
				}
				<-handed
				by[leader].Store(0)
				time.Sleep(time.Second)
				require.Empty(t, s.sub.Pull(10, nil))
			})
		})
	}
}
