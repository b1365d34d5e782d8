package replica

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestConflictAtStart: retention went exactly to the place of the current leader's marker,
// and the follower has an old suffix there. It must find the logs equal up to its start
// and cut the suffix, not reject forever.
func TestConflictAtStart(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader, behind := c.at(1), c.at(3)
	c.put(leader, 1, "committed")
	c.settle()
	c.pass(300)
	start := behind.m.View().Committed
	c.at(2).cut = true
	c.put(leader, 2, "rolled back later")
	c.settle()
	x := behind.m.index.(*memoryIndex)
	kept := x.records[:0]
	for _, r := range x.records {
		if r.Offset >= start.Offset {
			kept = append(kept, r)
		}
	}
	x.start, x.records = start, kept
	require.Len(t, kept, 1)
	d := queue.Marker() // another leader's, at that place
	other := d.Seal(start, 2, kept[0].PrevCRC, 1)
	c.wire = nil
	c.step(behind, Received{From: Peer{Node: "n2", Incarnation: 2, Store: 102}, Msg: Message{
		Kind: MsgAppend, Epoch: 2, To: 103, Store: 102, Prev: start, PrevCRC: kept[0].PrevCRC, Batches: []queue.Batch{other},
	}})
	require.Equal(t, other.End, behind.m.View().End)
}

// TestFollowerBehindManyEpochs: a replica was away for more changes of leader than
// the epoch tables hold, and keeps less of the log than its leader does. It is
// compared from its own beginning.
func TestFollowerBehindManyEpochs(t *testing.T) {
	c := newCluster(t, 3, 2)
	behind := c.at(3)
	for i := range uint64(6) {
		c.put(c.at(1), i+1, "a")
		c.settle()
	}
	c.pass(300)
	behind.cut = true
	c.down("n3", true)
	trimTo(behind, behind.log[3].At)
	leads := 0
	for range maxEpochs + 10 {
		c.step(c.at(1+leads), TransferLeadership{To: c.at(2 - leads).name})
		c.pass(100)
		leads = 1 - leads
		require.Equal(t, c.at(1+leads).name, c.state.Leader)
	}
	behind.cut = false
	for n, inc := range c.live {
		c.step(behind, Live{Node: n, Incarnation: inc})
	}
	c.up("n3")
	c.pass(3000)
	require.Equal(t, c.at(1+leads).m.View().End, behind.m.View().End)
	require.Len(t, c.state.ISR, 3)
}

// TestRestartedReplicaTellsFewEpochs: a replica with very many changes of leader sends no
// longer an epoch table after a restart than before: a longer one would not fit into a
// message.
func TestRestartedReplicaTellsFewEpochs(t *testing.T) {
	var all []commitlog.EpochEnd
	at := ident.Position{}
	for e := range ident.Epoch(4 * maxEpochs) {
		next := ident.Position{Offset: at.Offset + 100, Sequence: at.Sequence}
		all = append(all, commitlog.EpochEnd{Epoch: e + 1, Start: at, End: next})
		at = next
	}
	m := New(queue.Restored{Epoch: 4 * maxEpochs, End: at, Epochs: all}, &memoryIndex{}, &listRegister{}, options("n1", 1))
	var out Effects
	m.Step(Received{From: Peer{Node: "n2", Incarnation: 2, Store: 102}, Msg: Message{
		Kind: MsgAppend, Epoch: 5 * maxEpochs, To: 101, Store: 102, Prev: ident.Position{Offset: at.Offset + 50},
	}}, &out)
	require.Len(t, out.Send, 1)
	told := out.Send[0].Msg.Epochs
	require.Equal(t, maxEpochs, len(told))
	require.Equal(t, all[len(all)-1], told[maxEpochs-1])
}

// TestReplicaWithAnotherHistoryRaisesAnAlarm: after an unclean recovery a replica that
// holds more than the recovered one alarms its operator, also if retention has passed the
// place at which the logs part, here or there.
func TestReplicaWithAnotherHistoryRaisesAnAlarm(t *testing.T) {
	for name, prev := range map[string]func(b *broker) (ident.Position, uint32){
		"of other bytes":  func(b *broker) (ident.Position, uint32) { return b.log[3].At, 4711 },
		"at no border":    func(b *broker) (ident.Position, uint32) { return ident.Position{Offset: b.log[3].At.Offset + 1}, 0 },
		"trimmed here":    func(b *broker) (ident.Position, uint32) { trimTo(b, b.log[5].At); return ident.Position{}, 0 },
		"no longer there": func(b *broker) (ident.Position, uint32) { trimTo(b, b.log[5].At); return ident.Position{Offset: 1}, 0 },
	} {
		c := newCluster(t, 3, 2)
		for i := range uint64(6) {
			c.put(c.at(1), i+1, "a")
			c.settle()
		}
		c.pass(300)
		b := c.at(2)
		end := b.m.View().End
		at, crc := prev(b)
		require.Greater(t, b.m.View().Committed.Offset, at.Offset)
		var out Effects
		b.m.Step(Received{From: Peer{Node: "n3", Incarnation: 3, Store: 103}, Msg: Message{
			Kind: MsgAppend, Epoch: 7, To: 102, Store: 103, Prev: at, PrevCRC: crc, Restart: at.Offset > 0,
		}}, &out)
		require.Error(t, out.Alarm, name)
		require.Equal(t, end, b.m.View().End, name)
	}
}

// TestLongSuffixBehindManyEpochs: the replica was away with an uncommitted suffix that is
// longer than everything its successors have written since.
func TestLongSuffixBehindManyEpochs(t *testing.T) {
	c := newCluster(t, 3, 2)
	behind := c.at(1)
	for i := range uint64(6) {
		c.put(behind, i+1, "a")
		c.settle()
	}
	c.pass(300)
	behind.cut = true
	for i := range uint64(2000) {
		c.put(behind, 100+i, "never committed")
	}
	c.settle()
	trimTo(behind, behind.log[3].At)
	delete(c.live, "n1")
	for _, b := range c.brokers[1:] {
		c.step(b, Live{Node: "n1"})
	}
	c.down("n1", true)
	c.pass(300)
	leads := c.at(2)
	if c.state.Leader == "n3" {
		leads = c.at(3)
	}
	for range maxEpochs + 10 {
		next := c.at(5 - slices.Index(c.brokers, leads) - 1)
		c.step(leads, TransferLeadership{To: next.name})
		c.pass(100)
		leads = next
		require.Equal(t, leads.name, c.state.Leader)
	}
	require.Less(t, leads.m.View().End.Offset, behind.m.View().End.Offset)
	behind.cut = false
	c.live["n1"] = 9
	for n, inc := range c.live {
		for _, b := range c.brokers {
			c.step(b, Live{Node: n, Incarnation: inc})
		}
	}
	c.tell()
	c.up("n1")
	c.pass(5000)
	require.Equal(t, leads.m.View().End, behind.m.View().End)
	require.Len(t, c.state.ISR, 3)
}

// TestConflictBelowTheCommittedEnd: a leader that would cut committed batches is refused.
func TestConflictBelowTheCommittedEnd(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "committed")
	c.pass(300)
	follower := c.at(3)
	before, end := follower.bodies(), follower.m.View().End
	first := follower.log[0]
	d := draft(9, "another")
	other := d.Seal(first.End, 2, first.CRC, 1)
	var out Effects
	follower.m.Step(Received{From: Peer{Node: "n2", Incarnation: 2, Store: 102}, Msg: Message{
		Kind: MsgAppend, Epoch: 2, To: 103, Store: 102, Prev: first.End, PrevCRC: first.CRC, Batches: []queue.Batch{other},
	}}, &out)
	require.Error(t, out.Alarm)
	for _, w := range out.Write {
		require.NotContains(t, []queue.WriteKind{queue.WriteTruncate, queue.WriteReset, queue.WriteRestart}, w.Kind)
	}
	require.Equal(t, end, follower.m.View().End)
	require.Equal(t, before, follower.bodies())
}

// TestAbandonedCommittedMessagesAreNamedSo: what an operator continued without is reported as that,
// with the advice to save it, also where this replica knows that it was committed.
func TestAbandonedCommittedMessagesAreNamedSo(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "committed")
	c.pass(300)
	follower := c.at(3)
	first, end := follower.log[0], follower.m.View().End
	follower.m.state.Abandoned = 1
	for i, prev := range []ident.Position{first.End, {Offset: first.End.Offset - 1}} { // it conflicts; it does not join
		d := draft(9, "another")
		var out Effects
		follower.m.Step(Received{From: Peer{Node: "n2", Incarnation: 2, Store: 102}, Msg: Message{
			Kind: MsgAppend, Epoch: 2, To: 103, Store: 102, Prev: prev, PrevCRC: first.CRC, Batches: []queue.Batch{d.Seal(prev, 2, first.CRC, 1)},
		}}, &out)
		require.ErrorIs(t, out.Alarm, ErrAbandoned, "%d", i)
		require.Equal(t, end, follower.m.View().End)
	}
}

// TestReplicaThatBeganAfreshRaisesNoAlarm: a follower has begun its log afresh where the
// leader's begins, and the next leader retains more. It asks from its own beginning on:
// there is nothing here that another history could have.
func TestReplicaThatBeganAfreshRaisesNoAlarm(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.settle()
	b := c.at(2)
	far := b.m.View().End
	far.Offset, far.Sequence = far.Offset+1000, far.Sequence+10
	ask := func(leader int, e ident.Epoch, at ident.Position) (out Effects) {
		from := Peer{Node: ident.Node(fmt.Sprintf("n%d", leader)), Incarnation: ident.Incarnation(leader), Store: ident.StoreID(100 + leader)}
		b.m.Step(Received{From: from, Msg: Message{
			Kind: MsgAppend, Epoch: e, To: 102, Store: from.Store, Prev: at, Restart: at.Offset > 0,
		}}, &out)
		return out
	}
	require.NoError(t, ask(3, 7, far).Alarm)
	require.Equal(t, far, b.m.View().End)
	require.NoError(t, ask(1, 8, ident.Position{}).Alarm)
	require.Equal(t, far, b.m.View().End)
}

// TestDivergenceBeyondTheTables: without a common epoch the leader asks at the end of the
// follower's table. Its durable end says nothing: a log that has just begun afresh, and is not
// synced, has its start behind that.
func TestDivergenceBeyondTheTables(t *testing.T) {
	c := newCluster(t, 3, 2)
	leads := c.at(1)
	for i := range 4 {
		c.put(leads, uint64(i+1), "a message")
	}
	c.settle()
	border := leads.log[2].End
	rejection := &Message{Epochs: []commitlog.EpochEnd{{Epoch: 99, Start: leads.log[1].End, End: border}}}
	require.Equal(t, border, leads.m.divergence(rejection), "the end of the follower's log")
	require.Equal(t, leads.log[0].At, leads.m.divergence(&Message{}), "an empty log")
}

// TestOlderDiskIsAskedAtItsEnd: a replica was sent a part of the log when an older copy of its
// disk came back, which has more of it and no epoch in common with the leader's table. The leader
// asks at the end of that log, once, and from there backwards.
func TestOlderDiskIsAskedAtItsEnd(t *testing.T) {
	c := newCluster(t, 3, 2)
	leads := c.at(1)
	for i := range 6 {
		c.put(leads, uint64(i+1), "a message")
		c.settle()
	}
	f := leads.m.lead.follower("n3")
	f.next = leads.log[1].End // as far as the lost disk was sent
	c.down("n3", true)
	leads.m.node("n3").up = true
	old := Peer{Node: "n3", Incarnation: 4, Store: 999}
	epochs := []commitlog.EpochEnd{{Epoch: 99, Start: leads.log[3].At, End: leads.log[4].End}}
	refuse := func(prev ident.Position) ident.Position {
		var out Effects
		leads.m.Step(Received{From: old, Msg: Message{
			Kind: MsgAppendAck, Epoch: leads.m.lead.epoch, To: 101, Store: old.Store, Reject: true, Prev: prev, Durable: epochs[0].End, Epochs: epochs,
		}}, &out)
		require.NoError(t, out.Alarm)
		return leads.m.lead.follower("n3").next
	}
	require.Equal(t, leads.log[4].End, refuse(leads.log[1].End), "the end of the older disk")
	require.Equal(t, leads.log[4].At, refuse(leads.log[4].End), "one batch back")
	require.Equal(t, leads.log[3].At, refuse(leads.log[4].At), "another one")
}

// TestPlaceBeforeTheLogIsNoOtherHistory: a leader asks for a place before the beginning of this
// log, and has committed more than this log has lost at its front. There is nothing here to
// compare with that place, so no alarm says that the histories differ; the leader asks further on.
func TestPlaceBeforeTheLogIsNoOtherHistory(t *testing.T) {
	c := newCluster(t, 3, 2)
	for i := range 6 {
		c.put(c.at(1), uint64(i+1), "a message")
		c.settle()
	}
	c.pass(300)
	b := c.at(2)
	asked := b.log[1].End
	trimTo(b, b.log[3].At)
	require.Greater(t, b.m.View().Committed.Offset, asked.Offset)
	ask := func(committed ident.Position) (out Effects) {
		b.m.Step(Received{From: Peer{Node: "n3", Incarnation: 3, Store: 103}, Msg: Message{
			Kind: MsgAppend, Epoch: 7, To: 102, Store: 103, Prev: asked, PrevCRC: 4711, Committed: committed,
		}}, &out)
		return out
	}
	out := ask(b.m.index.Start())
	require.NoError(t, out.Alarm)
	require.True(t, out.Send[0].Msg.Reject)
	require.ErrorIs(t, ask(ident.Position{Offset: b.m.index.Start().Offset - 1}).Alarm, ErrOtherHistory, "a shorter log")
}
