package maintenance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/enginetest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// TestRepairGivesCommittedBatches: brokers that repair their disks get no others.
func TestRepairGivesCommittedBatches(t *testing.T) {
	r := enginetest.New(t, nsqd.Options{})
	repair := newRepair(&Broker{Engine: r.Engine})
	r.Publish("a")
	committed := r.End
	at := r.Append(queue.Marker())
	for _, end := range []ident.Position{committed, r.End} {
		r.Show(func(v *replica.View) { v.Committed = end })
		reply, err := repair.Batches(calls.BatchesRequest{Partition: enginetest.ID})
		require.NoError(t, err)
		require.Len(t, reply.Batches, int(end.Offset))
		_, err = repair.Batches(calls.BatchesRequest{Partition: enginetest.ID, From: at})
		require.Equal(t, end == r.End, err == nil)
	}
	_, err := repair.Batches(calls.BatchesRequest{Partition: ident.Partition{Topic: 99}})
	require.ErrorIs(t, err, rpc.ErrNoReplica)
}
