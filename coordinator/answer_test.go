package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// answerFunc is called with the answer to a put, on the goroutine that gives it.
type answerFunc func(api.PutResult)

func (f answerFunc) Answer(r api.PutResult) { f(r) }

// TestAnsweredPutIsSeen: a producer reads the topic right after its OK. The committed
// end that the leader shows includes the put, and the statistics count its bytes.
func TestAnsweredPutIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		require.NoError(t, c.put("n1", "orders", "m0"))
		for n := range 20 {
			seen, bytes := make(chan ident.Sequence, 1), uint64(0)
			d := queue.NewDraft(8)
			_ = d.AddMessage(queue.Message{Body: []byte("next")})
			c.nodes["n1"].Gateway.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), answerFunc(func(r api.PutResult) {
				bytes = c.nodes["n1"].Broker.Inspector.Topics("orders", "", false)[0].MessageBytes
				v, _ := c.view("n1", "orders")
				seen <- v.Partitions[0].CommittedSequence
			}))
			require.EqualValues(t, n+2, <-seen)
			require.EqualValues(t, len("m0")+len("next")*(n+1), bytes)
		}
	})
}
