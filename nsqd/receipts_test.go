package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// received is the receipt of a delivery of the first epoch.
func received(seq ident.Sequence, attempts uint16) Receipt {
	return Receipt{Sequence: seq, Epoch: 1, Attempts: attempts}
}

// A receipt finishes, requeues and touches a delivery without its subscriber, which is notified.
func TestReceiptsSettleWithoutTheSubscriber(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 4, 4)
	<-s.Wake
	require.NoError(t, c.FinishReceived(received(0, 1)))
	require.NoError(t, c.RequeueReceived(received(1, 1), 500))
	require.Equal(t, []ident.Sequence{0, 1}, c.Revoked(s, nil), "its credit grows")
	<-s.Wake
	require.Equal(t, 2, c.InFlight(s))
	r.tick(600)
	d := c.Pull(s, 4, nil)
	require.Len(t, d, 1)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.NoError(t, c.TouchReceived(received(2, 1)))
	require.NoError(t, c.TouchReceived(received(1, 2)))
	r.tick(500)
	require.Equal(t, []ident.Sequence{3}, c.Revoked(s, nil), "the timeout of the others began anew")
	for _, seq := range []ident.Sequence{0, 3, 9} {
		for _, err := range []error{c.FinishReceived(received(seq, 1)), c.RequeueReceived(received(seq, 1), 0), c.TouchReceived(received(seq, 1))} {
			require.ErrorIs(t, err, edge.ErrNotInFlight)
		}
	}
	for _, err := range []error{c.FinishReceived(received(1, 1)), c.RequeueReceived(received(1, 1), 0), c.TouchReceived(received(1, 1))} {
		require.ErrorIs(t, err, edge.ErrNotOwner, "the receipt is of an earlier delivery")
	}
	require.NoError(t, c.FinishReceived(received(1, 2)))
	require.NoError(t, c.FinishReceived(received(2, 1)))
	d = c.Pull(s, 4, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(3), d[0].Message.Seq)
}

// A receipt also finishes a delivery whose subscriber has left without requeueing it.
func TestReceiptOfASubscriberThatLeft(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 1, 1)
	c.Detach(s, false)
	require.NoError(t, c.FinishReceived(received(0, 1)))
	r.tick(1001)
	require.Empty(t, c.Pull(subscribe(t, c), 1, nil))
}

// An ordered channel stays shut until the replicas have the finish by receipt.
func TestOrderedFinishByReceipt(t *testing.T) {
	r, c, s := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	r.rep.hold = true
	require.NoError(t, c.FinishReceived(received(0, 1)))
	require.Empty(t, c.Pull(s, 1, nil))
	r.rep.answer(r.Partition, true)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
}

// A new leader refuses a receipt of the earlier one until the subscriber has reclaimed the delivery. It says that a repeat may
// help.
func TestReceiptsAfterAFailover(t *testing.T) {
	r, c, s := delivered(t, Options{}, "ch", ChannelOptions{}, 3, 3)
	require.NoError(t, c.Finish(s, 2, 1))
	r.Flush()
	require.False(t, c.Awaited(received(0, 1)), "this leader made it")
	old := c
	n := r.failover()
	require.ErrorIs(t, old.FinishReceived(received(0, 1)), ErrNotLeader)
	c, _ = n.Channel("ch")
	require.ErrorIs(t, c.FinishReceived(received(0, 1)), edge.ErrNotInFlight)
	require.True(t, c.Awaited(received(0, 1)))
	require.False(t, c.Awaited(received(2, 1)), "finished")
	require.False(t, c.Awaited(received(7, 1)), "there is no such message")
	s = subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []HeldDelivery{{Sequence: 0, Epoch: 1, Attempts: 1}}))
	require.False(t, c.Awaited(received(0, 1)))
	require.NoError(t, c.FinishReceived(received(0, 1)))
	require.Equal(t, []ident.Sequence{0}, c.Revoked(s, nil))
	require.NoError(t, n.DeleteChannel(t.Context(), "ch"))
	require.ErrorIs(t, c.FinishReceived(received(1, 1)), ErrDeleted)
}

// The attempts of a delivery are lost with its leader. A later delivery of the same message has as many, and is not settled by
// the receipt of the earlier one.
func TestReceiptOfALostLeadersDelivery(t *testing.T) {
	r, _, _ := delivered(t, Options{}, "ch", ChannelOptions{}, 2, 1)
	n := r.failover()
	c, _ := n.Channel("ch")
	d := c.Pull(subscribe(t, c), 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(0), d[0].Message.Seq)
	require.Equal(t, uint16(1), d[0].Message.Attempts)
	lost := received(0, 1)
	for _, err := range []error{c.FinishReceived(lost), c.RequeueReceived(lost, 0), c.TouchReceived(lost)} {
		require.ErrorIs(t, err, edge.ErrNotOwner)
	}
	require.NoError(t, c.FinishReceived(Receipt{Sequence: 0, Epoch: d[0].Epoch, Attempts: 1}))
}

// A delivery keeps its receipt while leaders change, and when its leader takes a new epoch.
func TestReceiptThroughEpochs(t *testing.T) {
	r, c, _ := delivered(t, Options{}, "ch", ChannelOptions{}, 1, 1)
	for range 2 {
		r = r.failover()
		c, _ = r.Channel("ch")
		require.Empty(t, c.Reclaim(subscribe(t, c), []HeldDelivery{{Sequence: 0, Epoch: 1, Attempts: 1}}))
		require.ErrorIs(t, c.TouchReceived(Receipt{Sequence: 0, Epoch: 2, Attempts: 1}), edge.ErrNotOwner)
		require.NoError(t, c.TouchReceived(received(0, 1)))
	}
	r.Lead(9)
	require.NoError(t, c.FinishReceived(received(0, 1)))
}

// A dead message is not settled by the receipt of its last delivery: it is on its way to the dead letters.
func TestReceiptOfADeadMessage(t *testing.T) {
	_, c, _ := delivered(t, Options{Policy: func(string) Policy { return Policy{MaxAttempts: 1} }}, "ch", ChannelOptions{}, 1, 1)
	require.NoError(t, c.RequeueReceived(received(0, 1), 0))
	require.ErrorIs(t, c.FinishReceived(received(0, 1)), edge.ErrNotInFlight)
}
