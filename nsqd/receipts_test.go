package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// received is the receipt of the n-th delivery of the first epoch.
func received(seq ident.Sequence, n uint64) Receipt {
	return Receipt{Sequence: seq, Epoch: 1, Number: n}
}

// A receipt finishes, requeues and touches a delivery without its subscriber, which is notified.
func TestReceiptsSettleWithoutTheSubscriber(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 4, 4)
	<-s.Wake
	require.NoError(t, c.Finish(nil, received(0, 1)))
	require.NoError(t, c.Requeue(nil, received(1, 2), 500))
	require.Equal(t, []ident.Sequence{0, 1}, c.Revoked(s, nil), "its credit grows")
	<-s.Wake
	require.Equal(t, 2, c.InFlight(s))
	r.tick(600)
	d := c.Pull(s, 4, nil)
	require.Len(t, d, 1)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.NoError(t, c.Touch(nil, received(2, 3)))
	require.NoError(t, c.Touch(nil, received(1, 5)))
	r.tick(500)
	require.Equal(t, []ident.Sequence{3}, c.Revoked(s, nil), "the timeout of the others started again")
	for _, seq := range []ident.Sequence{0, 3, 9} {
		for _, err := range []error{c.Finish(nil, received(seq, uint64(seq)+1)), c.Requeue(nil, received(seq, uint64(seq)+1), 0), c.Touch(nil, received(seq, uint64(seq)+1))} {
			require.ErrorIs(t, err, outcome.ErrNotInFlight)
		}
	}
	for _, err := range []error{c.Finish(nil, received(1, 2)), c.Requeue(nil, received(1, 2), 0), c.Touch(nil, received(1, 2))} {
		require.ErrorIs(t, err, outcome.ErrNotOwner, "the receipt is of an earlier delivery")
	}
	require.NoError(t, c.Finish(nil, received(1, 5)))
	require.NoError(t, c.Finish(nil, received(2, 3)))
	d = c.Pull(s, 4, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(3), d[0].Message.Seq)
}

// A receipt also finishes a delivery whose subscriber has left without requeueing it.
func TestReceiptOfASubscriberThatLeft(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 1, 1)
	c.Detach(s, false)
	require.NoError(t, c.Finish(nil, received(0, 1)))
	r.tick(1001)
	require.Empty(t, c.Pull(subscribe(t, c), 1, nil))
}

// An ordered channel stays closed until the replicas have the finish by receipt.
func TestOrderedFinishByReceipt(t *testing.T) {
	r, c, s := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	r.rep.hold = true
	require.NoError(t, c.Finish(nil, received(0, 1)))
	require.Empty(t, c.Pull(s, 1, nil))
	r.rep.answer(true)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
}

// A new leader refuses a receipt of the earlier one until the subscriber has reclaimed the delivery. It says that a repeat may
// help.
func TestReceiptsAfterAFailover(t *testing.T) {
	r, c, s := delivered(t, Options{}, "ch", ChannelOptions{}, 3, 3)
	require.NoError(t, c.Finish(s, c.of(2, 1)))
	r.Flush()
	require.False(t, c.Awaited(received(0, 1)), "this leader made it")
	old := c
	n := r.failover()
	require.ErrorIs(t, old.Finish(nil, received(0, 1)), ErrNotLeader)
	c, _ = n.Channel("ch")
	require.ErrorIs(t, c.Finish(nil, received(0, 1)), outcome.ErrNotInFlight)
	require.True(t, c.Awaited(received(0, 1)))
	require.False(t, c.Awaited(received(2, 3)), "finished")
	require.False(t, c.Awaited(received(7, 8)), "there is no such message")
	s = subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Receipt{{Sequence: 0, Epoch: 1, Number: 1, Attempts: 1}}))
	require.False(t, c.Awaited(received(0, 1)))
	require.NoError(t, c.Finish(nil, received(0, 1)))
	require.Equal(t, []ident.Sequence{0}, c.Revoked(s, nil))
	require.NoError(t, n.DeleteChannel(t.Context(), "ch"))
	require.ErrorIs(t, c.Finish(nil, received(1, 2)), ErrDeleted)
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
	for _, err := range []error{c.Finish(nil, lost), c.Requeue(nil, lost, 0), c.Touch(nil, lost)} {
		require.ErrorIs(t, err, outcome.ErrNotOwner)
	}
	require.NoError(t, c.Finish(nil, ReceiptOf(&d[0])))
}

// A delivery keeps its receipt while leaders change, and when its leader takes a new epoch.
func TestReceiptThroughEpochs(t *testing.T) {
	r, c, _ := delivered(t, Options{}, "ch", ChannelOptions{}, 1, 1)
	for range 2 {
		r = r.failover()
		c, _ = r.Channel("ch")
		require.Empty(t, c.Reclaim(subscribe(t, c), []Receipt{{Sequence: 0, Epoch: 1, Number: 1, Attempts: 1}}))
		require.ErrorIs(t, c.Touch(nil, Receipt{Sequence: 0, Epoch: 2, Number: 1}), outcome.ErrNotOwner)
		require.NoError(t, c.Touch(nil, received(0, 1)))
	}
	r.Lead(9)
	require.NoError(t, c.Finish(nil, received(0, 1)))
}

// A dead message is not settled by the receipt of its last delivery: it is on its way to the dead letters.
func TestReceiptOfADeadMessage(t *testing.T) {
	_, c, _ := delivered(t, Options{Policy: func(string) Policy { return Policy{MaxAttempts: 1} }}, "ch", ChannelOptions{}, 1, 1)
	require.NoError(t, c.Requeue(nil, received(0, 1), 0))
	require.ErrorIs(t, c.Finish(nil, received(0, 1)), outcome.ErrNotInFlight)
}

// TestReceiptsAfterAWithdrawnDelivery: the delivery gives its attempt back, so the next one has the same sequence, epoch
// and attempts. No verb with the receipt of the first one settles the second one, whichever way it comes.
func TestReceiptsAfterAWithdrawnDelivery(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "ch", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(1)
	first := c.Pull(s, 1, nil)[0]
	require.NoError(t, c.Undo(s, ReceiptOf(&first)))
	second := c.Pull(s, 1, nil)[0]
	require.Equal(t, [2]any{first.Epoch, first.Message.Attempts}, [2]any{second.Epoch, second.Message.Attempts})
	stale := ReceiptOf(&first)
	for name, err := range map[string]error{
		"finish": c.Finish(s, stale), "requeue": c.Requeue(s, stale, 0), "touch": c.Touch(s, stale),
		"undo": c.Undo(s, stale), "return": c.Return(s, stale), "await": c.AwaitTimeout(s, stale),
		"finish by receipt": c.Finish(nil, stale), "requeue by receipt": c.Requeue(nil, stale, 0), "touch by receipt": c.Touch(nil, stale),
	} {
		require.ErrorIs(t, err, outcome.ErrNotOwner, name)
	}
	require.NoError(t, c.Finish(s, ReceiptOf(&second)))
}

// TestReceiptsOfADeletedNamesake: a channel that is created again under the same leader delivers the same messages, and their
// receipts are others.
func TestReceiptsOfADeletedNamesake(t *testing.T) {
	r := newRig(Options{})
	r.publishN(1)
	var given []Receipt
	for range 2 {
		c := r.channel(t, "ch", ChannelOptions{Origin: FromEarliest})
		d := c.Pull(subscribe(t, c), 1, nil)
		require.Len(t, d, 1)
		given = append(given, ReceiptOf(&d[0]))
		if len(given) == 2 {
			require.ErrorIs(t, c.Finish(nil, given[0]), outcome.ErrNotOwner)
			require.NoError(t, c.Finish(nil, given[1]))
			return
		}
		require.NoError(t, r.DeleteChannel(t.Context(), "ch"))
	}
}

// TestADeliveryThatFailedIsNotReclaimed: it timed out at the earlier leader, or the message was delivered again since and
// has failed. Its late finish does not count either.
func TestADeliveryThatFailedIsNotReclaimed(t *testing.T) {
	r, c, _ := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 1, 1)
	old := c.of(0, 1)
	r.tick(1000)
	r.Flush()
	n := r.failover()
	c, _ = n.Channel("ch")
	s := subscribe(t, c)
	require.Equal(t, []ident.Sequence{0}, c.Reclaim(s, []Receipt{old}), "it timed out")
	require.ErrorIs(t, c.Finish(s, old), outcome.ErrNotInFlight)
	require.False(t, c.Awaited(old))

	d := c.Pull(s, 1, nil)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.NoError(t, c.Requeue(s, ReceiptOf(&d[0]), 0))
	require.Equal(t, []ident.Sequence{0}, c.Reclaim(s, []Receipt{ReceiptOf(&d[0])}))
	d = c.Pull(s, 1, nil)
	require.EqualValues(t, 3, d[0].Message.Attempts, "no attempt is lost")
}

// TestATransferKeepsTheDeliveriesOfTheClient alone: one that the client has not seen goes back, although the client holds an
// earlier one of the message.
func TestATransferKeepsTheDeliveriesOfTheClient(t *testing.T) {
	r, c, old := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 1, 1)
	held := c.of(0, 1)
	r.tick(1000)
	require.Len(t, c.Pull(old, 1, nil), 1)
	unseen := c.of(0, 1)
	s := subscribe(t, c)
	require.Equal(t, []ident.Sequence{0}, c.TransferDeliveries(old, s, []Receipt{held}))
	require.ErrorIs(t, c.Finish(s, unseen), outcome.ErrNotInFlight)
	d := c.Pull(s, 1, nil)
	require.EqualValues(t, 2, d[0].Message.Attempts, "the client has not seen it")
}

// TestAMoverSettlesItsOwnMove: the report about a dead message that died again after a seek changes nothing.
func TestAMoverSettlesItsOwnMove(t *testing.T) {
	r, c, s := delivered(t, Options{Policy: func(string) Policy { return Policy{MaxAttempts: 1} }}, "ch", ChannelOptions{}, 1, 1)
	require.NoError(t, c.Requeue(s, c.of(0, 1), 0))
	first := c.DeadLetters()
	require.Len(t, first, 1)
	r.seekChannel(t, "ch", seekTo(0))
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 1), 0))
	second := c.DeadLetters()
	require.Len(t, second, 1)
	require.ErrorIs(t, c.DeadMoved(DeadReceipt(&first[0])), outcome.ErrNotOwner)
	c.ReleaseDead(DeadReceipt(&first[0]))
	require.NoError(t, c.DeadMoved(DeadReceipt(&second[0])))
	requireExact(t, r.Partition, c)
}

// After a change of leader a message was delivered again, and finished: the receipt of the delivery before is over, also for the
// subscriber that had it. A finish of a client counts nonetheless, because it names no delivery.
func TestAReceiptIsNoLateFinish(t *testing.T) {
	r, _, _ := delivered(t, Options{}, "ch", ChannelOptions{}, 2, 2)
	n := r.failover()
	c, _ := n.Channel("ch")
	other := subscribe(t, c)
	d := c.Pull(other, 1, nil)
	require.NoError(t, c.Finish(other, ReceiptOf(&d[0])))
	s := subscribe(t, c)
	for seq, why := range []string{"another delivery was finished", "not delivered again, and not claimed"} {
		lost := received(ident.Sequence(seq), uint64(seq)+1)
		require.ErrorIs(t, c.Finish(s, lost), outcome.ErrNotInFlight, why)
		require.NoError(t, c.FinishLate(s, lost), why)
	}
}

// A leader has withdrawn deliveries of a subscriber without contact, and made others since. It refuses a claim of the earlier one,
// also when the later one is withdrawn, too: its attempts are the same.
func TestAClaimBehindALaterDelivery(t *testing.T) {
	_, c, s := delivered(t, Options{}, "ch", ChannelOptions{}, 2, 1)
	c.Withdraw(s)
	first := Receipt{Sequence: 0, Epoch: 1, Number: 1, Attempts: 1}
	other := subscribe(t, c)
	later := ReceiptOf(&c.Pull(other, 1, nil)[0])
	c.Withdraw(other)
	require.Equal(t, []ident.Sequence{0}, c.Reclaim(subscribe(t, c), []Receipt{first}))
	s = subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Receipt{later}), "the last one")
	require.NoError(t, c.Finish(s, later))
}

// Two subscribers claim deliveries of a message at a new leader: the later delivery has it, in whatever order they come.
func TestClaimsOfOneMessage(t *testing.T) {
	older := Receipt{Sequence: 0, Epoch: 1, Number: 1, Attempts: 1}
	newer := Receipt{Sequence: 0, Epoch: 1, Number: 7, Attempts: 1}
	for _, ordered := range []bool{false, true} {
		r, _, _ := delivered(t, Options{}, "ch", ChannelOptions{Ordered: ordered}, 2, 1)
		n := r.failover()
		c, _ := n.Channel("ch")
		a, b := subscribe(t, c), subscribe(t, c)
		require.Empty(t, c.Reclaim(a, []Receipt{older}))
		require.Empty(t, c.Reclaim(b, []Receipt{newer}))
		require.Equal(t, []ident.Sequence{0}, c.Revoked(a, nil))
		require.Equal(t, []ident.Sequence{0}, c.Reclaim(subscribe(t, c), []Receipt{older}))
		require.ErrorIs(t, c.Requeue(nil, older, 0), outcome.ErrNotOwner)
		require.NoError(t, c.Finish(b, newer))
	}
}

// A claim keeps what is left of the timeout: a new leader does not make a delivery longer, and the leader of the delivery, which knows of
// touches at other brokers, does not make it shorter.
func TestAClaimKeepsItsTimeout(t *testing.T) {
	r, c, old := delivered(t, Options{MsgTimeoutMS: 1000}, "ch", ChannelOptions{}, 3, 3)
	s := subscribe(t, c)
	claim := func(seq ident.Sequence, leftMS int64) Receipt {
		return Receipt{Sequence: seq, Epoch: 1, Number: uint64(seq) + 1, Attempts: 1, LeftMS: leftMS}
	}
	r.tick(700)
	require.Empty(t, c.TransferDeliveries(old, s, []Receipt{claim(0, 100), claim(1, 500), claim(2, 0)}))
	r.tick(299)
	require.Empty(t, c.Revoked(s, nil), "a new connection to the same leader")
	r.tick(2)
	require.Equal(t, []ident.Sequence{0}, c.Revoked(s, nil))
	r.tick(200)
	require.Equal(t, []ident.Sequence{1}, c.Revoked(s, nil), "touched while there was no connection")
	r = r.failover()
	c, _ = r.Channel("ch")
	s = subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Receipt{claim(2, 300)}))
	r.tick(301)
	require.Equal(t, []ident.Sequence{2}, c.Revoked(s, nil))
}
