package replica

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestCommitOnAll(t *testing.T) {
	for n := 1; n <= 3; n++ {
		c := newCluster(t, n, min(n, 2))
		require.Equal(t, Leader, c.at(1).m.role)
		for i := uint64(1); i <= 10; i++ {
			c.put(c.at(1), i, fmt.Sprint("m", i))
		}
		require.Equal(t, outcome.Outcome(0), c.at(1).outcome(1), "answered before any disk or follower")
		c.settle()
		c.pass(300)
		for i := uint64(1); i <= 10; i++ {
			require.Equal(t, outcome.Committed, c.at(1).outcome(i))
		}
		for _, b := range c.brokers {
			require.Equal(t, c.at(1).bodies(), b.bodies())
			require.Equal(t, c.at(1).m.committed, b.m.committed)
			require.True(t, b.m.Idle(), "%s is not idle", b.name)
		}
	}
}

func TestFollowerDiesAndComesBack(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.at(3).cut = true
	c.down("n3", true)
	c.pass(20)
	require.Len(t, c.state.ISR, 2)
	c.put(c.at(1), 1, "without n3")
	c.settle()
	require.Equal(t, outcome.Committed, c.at(1).outcome(1))
	c.at(3).cut = false
	c.tell()
	c.up("n3")
	c.pass(300)
	require.Len(t, c.state.ISR, 3)
	require.Equal(t, c.at(1).bodies(), c.at(3).bodies())
}

func TestElection(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "kept")
	c.settle()
	c.put(c.at(1), 2, "in doubt, then found")
	c.at(1).cut = true
	c.live["n1"] = 0
	c.down("n1", true)
	for _, b := range c.brokers[1:] {
		c.step(b, Live{Node: "n1"})
	}
	c.settle()
	c.pass(200)
	require.Equal(t, ident.Epoch(2), c.state.Epoch)
	leader := c.at(2)
	require.Equal(t, Leader, leader.m.role)
	c.put(leader, 1, "kept")
	c.put(leader, 3, "next")
	c.settle()
	require.Equal(t, outcome.Duplicate, leader.outcome(1))
	require.Equal(t, outcome.Committed, leader.outcome(3))
	require.NotContains(t, leader.bodies(), "in doubt, then found")

	// The old leader comes back under a new incarnation, with its longer log.
	old := c.at(1)
	old.cut = false
	c.wire = nil
	c.live["n1"] = 9
	for _, b := range c.brokers {
		c.step(b, Live{Node: "n1", Incarnation: 9})
	}
	require.Equal(t, outcome.InDoubt, old.outcome(2))
	c.tell()
	c.up("n1")
	c.pass(300)
	require.Equal(t, leader.bodies(), old.bodies())
	require.Len(t, c.state.ISR, 3)
	require.Equal(t, uint64(1), old.m.counters.Truncations)
}

func TestRollback(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.put(c.at(1), 1, "committed")
	c.settle()
	c.at(2).holdAck = true
	c.put(c.at(1), 2, "rolled back")
	c.pass(3100)
	require.Equal(t, ident.Epoch(2), c.state.Epoch)
	require.Equal(t, Leader, c.at(1).m.role, "what is committed is delivered")
	require.Equal(t, outcome.Outcome(0), c.at(1).outcome(2), "answered before the marker was committed")
	c.put(c.at(1), 3, "held")
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, outcome.RolledBack, c.at(1).outcome(2))
	require.Equal(t, outcome.Committed, c.at(1).outcome(3))
	for _, b := range c.brokers {
		require.Equal(t, []string{"committed", "held"}, b.bodies())
	}
}

func TestBelowMinimumIsDefinite(t *testing.T) {
	c := newCluster(t, 3, 2)
	for _, n := range []ident.Node{"n2", "n3"} {
		c.at(int(n[1] - '0')).cut = true
		c.down(n, true)
	}
	c.put(c.at(1), 1, "never written")
	c.pass(3100)
	require.Equal(t, outcome.NotEnoughReplicas, c.at(1).outcome(1))
	require.Empty(t, c.at(1).bodies())
}

// TestFollowerThatOpensIsAskedAgainSoon: the first probe arrives before the follower has
// opened its replica. It is repeated soon, and then ever less often.
func TestFollowerThatOpensIsAskedAgainSoon(t *testing.T) {
	c := newCluster(t, 2, 1)
	c.settle()
	c.at(2).cut = true
	lead := c.at(1).m.lead
	c.at(1).m.probeAgain("n2")
	began, asked := c.now, []int64(nil)
	for f, before := lead.follower("n2"), int64(0); c.now < began+1000; before = f.sentMS {
		c.pass(10)
		if f.sentMS != before {
			asked = append(asked, f.sentMS-began)
		}
	}
	require.Equal(t, []int64{10, 40, 80, 160, 320, 520, 720, 920}, asked)
}

// TestGapInPipelineIsSentOnce: a pipeline that meets a gap is rejected append by append.
// The leader must not send everything again for each rejection.
func TestGapInPipelineIsSentOnce(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.put(c.at(1), 1, "first")
	c.settle()
	c.at(2).cut = true
	c.put(c.at(1), 2, "lost on the way")
	c.settle()
	c.at(2).cut = false
	for i := uint64(3); i < 103; i++ {
		c.put(c.at(1), i, "follows")
	}
	received := 0
	for len(c.wire) > 0 {
		f := c.wire[0]
		c.wire = c.wire[1:]
		f()
		received++
		require.Less(t, received, 1000)
	}
	require.Less(t, received, 350, "100 appends, their refusals, one more round")
	c.settle()
	for i := uint64(1); i < 103; i++ {
		require.Equal(t, outcome.Committed, c.at(1).outcome(i))
	}
}

// TestOneAcknowledgementPerAppend: a follower acknowledges when the append is durable, not
// when it has arrived. An append that it has already is acknowledged at once.
func TestOneAcknowledgementPerAppend(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.tell()
	c.settle()
	leader, follower := c.at(1), c.at(2)
	require.Equal(t, Leader, leader.m.View().Role)
	msg := Message{
		Kind: MsgAppend, Epoch: leader.m.View().Epoch, Store: leader.m.self.Store,
		Prev: leader.m.log.end, PrevCRC: leader.m.log.lastCRC,
	}
	b := queue.NewDraft(1)
	_ = b.AddMessage(queue.Message{Body: []byte("a")})
	d := b.Draft(ident.RequestID{Producer: 1, N: 1})
	msg.Batches = []queue.Batch{d.Seal(msg.Prev, msg.Epoch, msg.PrevCRC, leader.m.log.timeNS)}
	from := Peer{Node: leader.m.self.Node, Incarnation: leader.m.self.Incarnation, Store: leader.m.self.Store}
	var out Effects
	follower.m.Step(Received{From: from, Msg: msg}, &out)
	require.Len(t, out.Write, 1)
	require.Empty(t, out.Send)
	token := out.Token
	out.Reset()
	follower.m.Step(Synced{Token: token}, &out)
	require.Len(t, out.Send, 1)
	require.Equal(t, msg.Batches[0].End, out.Send[0].Msg.Durable)
	out.Reset()
	follower.m.Step(Received{From: from, Msg: msg}, &out)
	require.Empty(t, out.Write)
	require.Len(t, out.Send, 1)
}

// TestWhereLogsDiverge: at the lower end of the highest epoch in both tables, which may be the oldest one of either.
func TestWhereLogsDiverge(t *testing.T) {
	epoch := func(e ident.Epoch, end ident.Offset) commitlog.EpochEnd {
		return commitlog.EpochEnd{Epoch: e, End: ident.Position{Offset: end}}
	}
	for _, row := range []struct {
		a, b []commitlog.EpochEnd
		at   ident.Offset
		some bool
	}{
		{a: []commitlog.EpochEnd{epoch(1, 100)}, b: []commitlog.EpochEnd{epoch(1, 80)}, at: 80, some: true},
		{a: []commitlog.EpochEnd{epoch(1, 100), epoch(3, 200)}, b: []commitlog.EpochEnd{epoch(1, 120), epoch(2, 160)}, at: 100, some: true},
		{a: []commitlog.EpochEnd{epoch(2, 100), epoch(3, 200)}, b: []commitlog.EpochEnd{epoch(3, 260), epoch(4, 300)}, at: 200, some: true},
		{a: []commitlog.EpochEnd{epoch(1, 100)}, b: []commitlog.EpochEnd{epoch(2, 100)}},
		{a: []commitlog.EpochEnd{epoch(1, 100)}},
	} {
		at, some := join(row.a, row.b)
		require.Equal(t, row.some, some)
		require.Equal(t, row.at, at.Offset)
	}
}

// TestABatchThatTheLogHas: a batch is a repeat only if epoch, checksum, size and place are equal.
func TestABatchThatTheLogHas(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{})
	m.out = &Effects{}
	b := sealed(ident.Position{}, 0, 1)[0]
	m.appendBatch(b)
	require.True(t, m.hasBatch(&b))
	for name, change := range map[string]func(*queue.Batch){
		"epoch":    func(b *queue.Batch) { b.Epoch++ },
		"checksum": func(b *queue.Batch) { b.CRC++ },
		"size":     func(b *queue.Batch) { b.Bytes = b.Bytes[1:] },
		"place":    func(b *queue.Batch) { b.At.Offset++ },
	} {
		other := b
		change(&other)
		require.False(t, m.hasBatch(&other), name)
	}
}

// TestEpochsAfterACut: an epoch that begins where the log is cut leaves the table, and the one before ends there.
func TestEpochsAfterACut(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{Epochs: 10})
	m.out = &Effects{}
	var cuts []ident.Position
	for e := range ident.Epoch(3) {
		for n := range uint64(2) {
			cuts = append(cuts, m.log.end)
			d := draft(n, "body")
			m.appendBatch(d.Seal(m.log.end, e+1, m.log.lastCRC, 1))
		}
	}
	for i, epochs := range slices.Backward([]int{0, 1, 1, 2, 2, 3}) {
		m.truncate(cuts[i])
		require.Len(t, m.log.epochs, epochs, i)
		if epochs > 0 {
			require.Equal(t, cuts[i], m.log.epochs[epochs-1].End, i)
		}
	}
}

// TestWhatRetentionKeepsForMarks: a cut drops the place that it removes, and no place below.
func TestWhatRetentionKeepsForMarks(t *testing.T) {
	for cut, some := range map[ident.Offset]bool{50: false, 100: false, 101: true} {
		k := kept{from: 100, some: true}
		k.cut(cut)
		require.Equal(t, some, k.some, cut)
	}
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 60_000})
	m.out = &Effects{}
	m.marks = marks{written: queue.IdentityMark{From: 7}, token: 3, keep: kept{from: 100, some: true}}
	m.restartAt(ident.Position{Offset: 5000, Sequence: 50}, 0, 0)
	require.Equal(t, marks{}, m.marks)
}

// TestCountersOfISRChanges, and which proposals are repetitions.
func TestCountersOfISRChanges(t *testing.T) {
	isr := func(nodes ...ident.Node) (of []ident.Member) {
		for _, n := range nodes {
			of = append(of, ident.Member{Node: n})
		}
		return of
	}
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{})
	p := proposal{kind: casISR, replaces: isr("n1", "n2")}
	for _, is := range [][]ident.Member{isr("n1"), isr("n1", "n2"), isr("n1", "n3"), isr("n1", "n3"), isr("n1", "n2", "n3"), isr("n1", "n2", "n3"), isr("n2", "n1", "n3")} {
		p.state.ISR = is
		m.countISR(&p)
	}
	require.Equal(t, [3]uint64{1, 3, 2}, [3]uint64{uint64(m.counters.Shrinks), uint64(m.counters.Grows), uint64(m.counters.Swaps)})
	for name, change := range map[string]func(*proposal){
		"kind": func(p *proposal) { p.kind++ }, "revision": func(p *proposal) { p.state.Revision++ }, "epoch": func(p *proposal) { p.state.Epoch++ },
		"leader": func(p *proposal) { p.state.Leader = "n9" }, "incarnation": func(p *proposal) { p.state.LeaderIncarnation++ },
		"in-sync set": func(p *proposal) { p.state.ISR = isr("n1") },
	} {
		other := p
		require.True(t, p.equal(other))
		change(&other)
		require.False(t, p.equal(other), name)
	}
}
