package replica

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// chain seals n small batches from p on.
func chain(p ident.Position, crc uint32, n int) (bs []queue.Batch) {
	for range n {
		b := queue.NewDraft(8)
		b.Add([]byte("message"))
		d := b.Draft(ident.RequestID{})
		bs = append(bs, d.Seal(p, 1, crc, 1))
		p, crc = bs[len(bs)-1].End, bs[len(bs)-1].CRC
	}
	return bs
}

// A "begin afresh" that arrives twice must not take back what was acknowledged
// since the first, nor when retention has passed the place meanwhile.
func TestRestartArrivesTwice(t *testing.T) {
	c := newCluster(t, 3, 2)
	b := c.at(2)
	from := Peer{Node: "n1", Incarnation: 1, Store: 101}
	start := ident.Position{Offset: 8715, Sequence: 77}
	batches := chain(start, 4711, 5)
	last := batches[4].End
	again := Received{From: from, Msg: Message{
		Kind: MsgAppend, Epoch: 1, To: 102, Store: 101, Prev: start, PrevCRC: 4711, Restart: true, Batches: batches[:3],
	}}
	c.step(b, again)
	c.step(b, Received{From: from, Msg: Message{
		Kind: MsgAppend, Epoch: 1, To: 102, Store: 101, Prev: batches[2].End, PrevCRC: batches[2].CRC, Batches: batches[3:],
	}})
	c.settle()
	require.Equal(t, last, b.m.View().End)
	c.step(b, again)
	require.Equal(t, last, b.m.View().End, "acknowledged batches are forgotten")
	trimTo(b, batches[4].At)
	c.step(b, again)
	require.Equal(t, last, b.m.View().End, "acknowledged batches are forgotten")
}

// trimTo forgets what a broker holds below p, as retention does.
func trimTo(b *broker, p ident.Position) {
	b.m.log.dropTail()
	b.log = slices.DeleteFunc(b.log, func(x queue.Batch) bool { return x.At.Offset < p.Offset })
	x := b.m.index.(*memoryIndex)
	x.start = p
	x.records = slices.DeleteFunc(x.records, func(r commitlog.Record) bool { return r.Offset < p.Offset })
}

// A follower whose acknowledged end retention has passed begins afresh instead
// of being read for, for ever.
func TestRetentionPassesFollower(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader, behind := c.at(1), c.at(3)
	c.put(leader, 1, "a")
	c.settle()
	behind.cut = true
	c.down("n3", true)
	for i := range 5 {
		c.put(leader, uint64(10+i), "b")
		c.settle()
	}
	trimTo(leader, leader.log[len(leader.log)-1].At)
	behind.cut = false
	f := leader.m.lead.follower("n3") // its catch-up was under way when retention passed it
	f.next, f.matched, f.probing, f.readToken = f.match, true, false, 99
	for _, b := range c.brokers {
		c.step(b, PeerState{Node: "n3", Up: true})
	}
	c.wire = nil // what coming back has caused
	f.probing, f.readToken = false, 99
	c.step(leader, Read{Token: 99, Err: errors.New("not retained")})
	c.pass(2000)
	require.Equal(t, leader.m.View().End, behind.m.View().End)
	require.Len(t, leader.m.View().ISR, 3)
}

// TestRetentionPassesWhoIsSentTo: it is asked once where it stands, and not sent
// the same for ever.
func TestRetentionPassesWhoIsSentTo(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader, behind := c.at(1), c.at(3)
	c.pass(100)
	behind.cut = true // but not silent
	for i := range 5 {
		c.put(leader, uint64(10+i), "b")
		c.settle()
	}
	trimTo(leader, leader.log[len(leader.log)-2].At)
	f := leader.m.lead.follower("n3")
	f.next = f.match
	c.step(leader, Tick{NowMS: c.now + 10})
	require.Len(t, c.wire, 1)
	behind.cut = false
	c.pass(2000)
	require.Equal(t, leader.m.View().End, behind.m.View().End)
	require.Len(t, leader.m.View().ISR, 3)
}

// A heir that restarted since its last acknowledgement may have lost its disk:
// the leadership is not its before it has spoken, for which it is asked.
func TestHandOverWaitsForPresentIncarnation(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.pass(100) // all know everything: nothing else will be said
	c.at(2).cut = true
	c.live["n2"] = 9
	c.step(c.at(1), Live{Node: "n2", Incarnation: 9})
	c.step(c.at(1), HandOver{To: "n2"})
	c.pass(100)
	require.EqualValues(t, "n1", c.state.Leader)

	c.at(2).cut = false
	c.step(c.at(2), Live{Node: "n2", Incarnation: 9})
	c.pass(500)
	require.EqualValues(t, "n2", c.state.Leader)
}

// A replica that was let go and comes back may have lost its disk: it joins on
// the word of its present process, whether that is known from the metadata or
// from its connection alone.
func TestReturnedReplicaSpeaksBeforeItJoins(t *testing.T) {
	for _, watchIsLate := range []bool{false, true} {
		c := newCluster(t, 3, 2)
		leader, back := c.at(1), c.at(3)
		c.put(leader, 1, "a")
		c.pass(300)
		c.down("n3", true)
		c.pass(50)
		require.Len(t, c.state.ISR, 2)

		back.log, back.m = nil, New(queue.Restored{}, &memoryIndex{}, back.reg, options("n3", 9))
		back.cut = true
		c.cas = func(b *broker, x CAS) {
			require.NotContains(t, x.State.ISR, ident.Member{Node: "n3", Store: 103})
			c.apply(b, x)
		}
		if !watchIsLate {
			c.step(leader, Live{Node: "n3", Incarnation: 9})
		}
		c.up("n3")
		lastWord := Received{From: Peer{Node: "n3", Incarnation: 3, Store: 103}, Msg: Message{
			Kind: MsgAppendAck, Epoch: 1, Store: 103, Durable: leader.m.log.end, ConfirmN: leader.m.lead.confirmN,
		}}
		if !watchIsLate {
			c.step(leader, lastWord)
		}
		c.pass(100)

		back.cut = false
		c.step(leader, Live{Node: "n3", Incarnation: 9})
		c.step(back, Live{Node: "n3", Incarnation: 9})
		c.tell()
		c.pass(500)
		require.Contains(t, c.state.ISR, ident.Member{Node: "n3", Store: 109})
		c.step(leader, lastWord)
		require.EqualValues(t, 109, leader.m.lead.follower("n3").store)
	}
}

// What a read finds in the files beyond the log's end was cut off: it is not
// sent.
func TestCatchUpEndsWithTheLog(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader := c.at(1)
	c.at(3).cut = true
	c.down("n3", true)
	c.put(leader, 1, "a")
	c.settle()
	leader.m.log.dropTail()
	leader.log = append(leader.log, chain(leader.m.log.end, leader.m.log.lastCRC, 1)...)
	c.at(3).cut = false
	c.tell()
	c.up("n3")
	c.pass(300)
	require.Equal(t, leader.m.log.end, c.at(3).m.log.end)
	require.Equal(t, []string{"a"}, c.at(3).bodies())
}

// While the metadata store is away nobody learns whether a hand-over has landed:
// its leader goes on for those that follow it still, the heir among them. If it
// has landed, the heir finds everything.
func TestHandOverWithoutAnswerHoldsNoPuts(t *testing.T) {
	for _, landed := range []bool{false, true} {
		c := newCluster(t, 3, 2)
		c.put(c.at(1), 1, "a")
		c.pass(100)
		var asked *CAS
		c.cas = func(_ *broker, x CAS) { asked = &x }
		c.step(c.at(1), HandOver{To: "n3"})
		c.pass(100)
		require.NotNil(t, asked)
		c.put(c.at(1), 2, "b")
		c.pass(2500)
		require.Equal(t, Committed, c.at(1).outcome(2))

		c.cas = nil
		if landed {
			c.apply(c.at(1), *asked)
			c.pass(500)
			require.Equal(t, Leader, c.at(3).m.role)
			require.Equal(t, c.at(1).m.View().Committed, c.at(3).m.View().Committed)
		}
	}
}

// A heir that left the in-sync set since the hand-over began joins it again
// before it is named.
func TestHandOverToMembersOnly(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.pass(100)
	c.at(3).holdAck = true
	c.put(c.at(1), 2, "its disk hangs")
	c.step(c.at(1), HandOver{To: "n3"})
	c.settle()
	c.down("n3", true)
	c.pass(50)
	require.Len(t, c.state.ISR, 2)
	c.cas = func(b *broker, x CAS) {
		led := slices.ContainsFunc(x.State.ISR, func(m ident.Member) bool { return m.Node == x.State.Leader })
		require.True(t, led, "%s is to lead %v", x.State.Leader, x.State.ISR)
		c.apply(b, x)
	}
	c.at(3).holdAck = false
	c.up("n3")
	c.pass(500)
	require.EqualValues(t, "n3", c.state.Leader)
}

// Retention went exactly to the place where the leader's marker comes now, and
// the follower holds an old suffix there: it must find the logs equal up to its
// start and cut the suffix, not refuse for ever.
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

// TestHistoryStaysShort: a store keeps all versions of the channels since the last
// snapshot in memory, and writes them at each checkpoint, so there must never be
// many, on no replica and from the first change on.
func TestHistoryStaysShort(t *testing.T) {
	c := newCluster(t, 3, 2)
	for _, b := range c.brokers {
		b.reg.fixed = []byte("a state that does not grow")
	}
	for range 1000 {
		c.step(c.at(1), Change{Delta: []byte("finished: 1")})
		c.settle()
	}
	for _, b := range c.brokers {
		require.LessOrEqual(t, b.mostDeltas, 64, "%s", b.name)
	}
}

// TestLargeStateIsWrittenSeldom: a snapshot of a large state has to wait until the
// deltas are worth it.
func TestLargeStateIsWrittenSeldom(t *testing.T) {
	c := newCluster(t, 3, 2)
	for _, b := range c.brokers {
		b.reg.fixed = make([]byte, 16*snapshotBytes)
	}
	for range 1000 {
		c.step(c.at(1), Change{Delta: []byte("finished: 1")})
		c.settle()
	}
	for _, b := range c.brokers {
		require.LessOrEqual(t, b.snapshots, 2, "%s", b.name)
	}
}

// TestLargeSnapshotIsNotSentForEver: the state of the channels takes the network
// longer than RetryMS, and changes all the time. The follower is told the changes
// again after that, not the whole state over and over.
func TestLargeSnapshotIsNotSentForEver(t *testing.T) {
	for _, takesMS := range []int64{300, 1000} {
		c := newCluster(t, 2, 1)
		c.pass(300)
		leader := c.at(1)
		c.down("n2", false)
		free, snapshots := int64(0), 0
		c.arrives = func(e Envelope) int64 {
			if e.To != "n2" {
				return c.now
			}
			if free = max(free, c.now); e.Msg.Confirm.Full {
				free += takesMS
				snapshots++
			}
			return free
		}
		c.step(leader, Change{Delta: []byte("missed")})
		c.up("n2")
		change := func(ms int64) {
			for end := c.now + ms; c.now < end; c.pass(10) {
				c.step(leader, Change{Delta: []byte("finished: 1")})
			}
		}
		change(20 * takesMS)
		before := snapshots
		change(20 * takesMS)
		require.Equal(t, before, snapshots, "%d ms each", takesMS)
		c.pass(500)
		require.Equal(t, leader.m.lead.confirmN, leader.m.lead.follower("n2").confirmAcked)
	}
}

// TestFollowerBehindManyEpochs: a replica was away for more changes of leader than
// the epoch tables hold, and keeps less of the log than its leader does. It is
// compared from where it begins.
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
		c.step(c.at(1+leads), HandOver{To: c.at(2 - leads).name})
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

// TestMissedChangesAreSentAgainSoon: on a long line, on which the channels change faster
// than acknowledgements come back, changes get lost now and then. However often that was,
// the follower has what it missed soon.
func TestMissedChangesAreSentAgainSoon(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.pass(300)
	leader := c.at(1)
	lose := false
	c.arrives = func(e Envelope) int64 {
		if lose && e.Msg.Kind == MsgConfirm {
			lose = false
			return math.MaxInt64
		}
		return c.now + 30
	}
	for lost := range 8 {
		lose = true
		c.step(leader, Change{Delta: []byte("finished: 1")})
		missed, began := leader.m.lead.confirmN, c.now
		for leader.m.lead.confirmed < missed {
			c.pass(10)
			c.step(leader, Change{Delta: []byte("finished: 1")})
			require.Less(t, c.now-began, 3*leader.m.o.RetryMS, "lost %d times before", lost)
		}
	}
}

// TestRestartedReplicaTellsFewEpochs: one that lived through very many changes of
// leader tells no more of them than it would had it run all the time: a longer table
// would not fit into a message.
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
// holds more than what was gone on with says so to its operator, also where retention
// has passed the place at which the logs part, here or there.
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

// TestLongSuffixBehindManyEpochs: the same of one that was away with more, none of it
// committed, than its successors have written since.
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
		c.step(leads, HandOver{To: next.name})
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
