package replica

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

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
		require.Equal(t, Outcome(0), c.at(1).outcome(1), "answered before any disk or follower")
		c.settle()
		c.pass(300)
		for i := uint64(1); i <= 10; i++ {
			require.Equal(t, Committed, c.at(1).outcome(i))
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
	require.Equal(t, Committed, c.at(1).outcome(1))
	c.at(3).cut = false
	c.tell()
	c.up("n3")
	c.pass(300)
	require.Len(t, c.state.ISR, 3)
	require.Equal(t, c.at(1).bodies(), c.at(3).bodies())
}

func TestSilentFollowerLeavesAfterTISR(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	c.at(3).holdAck = true
	c.put(c.at(1), 1, "slow disk")
	c.pass(900)
	require.Equal(t, Outcome(0), c.at(1).outcome(1))
	c.pass(200)
	require.Equal(t, Committed, c.at(1).outcome(1))
	require.Len(t, c.state.ISR, 2)
}

// TestWhoLagsDoesNotJoin: a member that is let go because it owes an
// acknowledgement holds all that is committed as long as another one owes it
// too. It must not come back for that, or it would be let go again at once.
func TestWhoLagsDoesNotJoin(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	leader, late, hung := c.at(1), c.at(2), c.at(3)
	late.holdAck = true
	c.put(leader, 1, "a")
	c.settle()
	hung.holdAck = true
	c.put(leader, 2, "b")
	c.pass(50)
	token := late.unsync[0]
	late.unsync = late.unsync[1:]
	c.step(late, Synced{Token: token})
	proposals := 0
	c.cas = func(b *broker, cas CAS) {
		if proposals++; proposals < 10 {
			c.apply(b, cas)
		}
	}
	c.pass(980)
	require.Equal(t, 1, proposals, "it is let go and taken back in turn")
	require.Len(t, c.state.ISR, 2)
	hung.holdAck, late.holdAck = false, false
	c.pass(500)
	require.Len(t, c.state.ISR, 3)
	require.Equal(t, Committed, leader.outcome(2))
}

// TestWhoIsSlowIsLetGo: a follower acknowledges all the while, and falls behind, for
// its link or disk is slower than the puts. They do not wait for it for longer than T_isr.
func TestWhoIsSlowIsLetGo(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	leader, slow := c.at(1), c.at(3)
	behind := int64(0)
	c.arrives = func(e Envelope) int64 {
		if e.To == slow.name {
			return c.now + behind
		}
		return c.now
	}
	put := uint64(0)
	load := func(ms, growth int64) {
		for end := c.now + ms; c.now < end; c.pass(50) {
			put++
			behind += growth
			c.put(leader, put, "a")
		}
	}
	load(5000, 25)
	require.Len(t, c.state.ISR, 2, "puts wait for a follower that is %d ms behind", behind)
	before := put
	load(100, 25)
	require.Equal(t, Committed, leader.outcome(before+1))
	behind = 0
	load(3000, 0)
	require.Len(t, c.state.ISR, 3, "it keeps up again")
}

// load puts every 10 ms, under numbers that go on from put.
func (c *cluster) load(leader *broker, put *uint64, ms int64) {
	for end := c.now + ms; c.now < end; c.pass(10) {
		*put++
		c.put(leader, *put, "a")
	}
}

// farAway is when messages arrive if those to one broker take so long.
func (c *cluster) farAway(far *broker, ms int64) func(Envelope) int64 {
	return func(e Envelope) int64 {
		if e.To == far.name {
			return c.now + ms
		}
		return c.now
	}
}

// TestWhoIsFarAwayJoinsBesidePuts: one that answers later than the members do is
// always behind the committed end while there are puts.
func TestWhoIsFarAwayJoinsBesidePuts(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	leader, far := c.at(1), c.at(3)
	c.arrives = c.farAway(far, 100)
	put := uint64(0)
	load := func(ms int64) { c.load(leader, &put, ms) }
	far.cut = true
	c.down(far.name, false)
	load(2000)
	require.Len(t, c.state.ISR, 2)
	far.cut = false
	c.up(far.name)
	load(2000)
	require.Len(t, c.state.ISR, 3)
	c.pass(500)
	require.Equal(t, Committed, leader.outcome(put))
}

// TestAnswersThatTakeLongerThanARetry: the follower's answers come after the question
// was repeated, and puts go on meanwhile. All questions are the same.
func TestAnswersThatTakeLongerThanARetry(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	leader, far := c.at(1), c.at(3)
	put := uint64(0)
	load := func(ms int64) { c.load(leader, &put, ms) }
	far.cut = true
	load(100) // is lost on the way
	c.down(far.name, false)
	load(2000)
	c.arrives = c.farAway(far, 300)
	far.cut = false
	c.up(far.name)
	load(3000)
	require.Len(t, c.state.ISR, 3)
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
	require.Equal(t, Duplicate, leader.outcome(1))
	require.Equal(t, Committed, leader.outcome(3))
	require.NotContains(t, leader.bodies(), "in doubt, then found")

	// The old leader comes back under a new incarnation, with its longer log.
	old := c.at(1)
	old.cut = false
	c.wire = nil
	c.live["n1"] = 9
	for _, b := range c.brokers {
		c.step(b, Live{Node: "n1", Incarnation: 9})
	}
	require.Equal(t, InDoubt, old.outcome(2))
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
	c.put(c.at(1), 2, "taken back")
	c.pass(3100)
	require.Equal(t, ident.Epoch(2), c.state.Epoch)
	require.Equal(t, Electing, c.at(1).m.role)
	require.Equal(t, Outcome(0), c.at(1).outcome(2), "answered before the marker was committed")
	c.put(c.at(1), 3, "held")
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, RolledBack, c.at(1).outcome(2))
	require.Equal(t, Committed, c.at(1).outcome(3))
	for _, b := range c.brokers {
		require.Equal(t, []string{"committed", "held"}, b.bodies())
	}
}

// TestChannelsStopBeforeAnEpochOpens: what a client finishes in that moment would be in
// memory here, and in no version that this replica writes of the epoch.
func TestChannelsStopBeforeAnEpochOpens(t *testing.T) {
	c := newCluster(t, 2, 2)
	leader := c.at(1)
	leader.reg.text, leader.reg.late = "finished: 1 ", "finished: 2 "
	c.at(2).holdAck = true
	c.put(leader, 1, "taken back")
	c.pass(3100)
	require.Equal(t, ident.Epoch(2), leader.m.promised)
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, Leader, leader.m.role)
	require.Equal(t, "finished: 1 ", leader.reg.text)
}

func TestBelowMinimumIsDefinite(t *testing.T) {
	c := newCluster(t, 3, 2)
	for _, n := range []ident.Node{"n2", "n3"} {
		c.at(int(n[1] - '0')).cut = true
		c.down(n, true)
	}
	c.put(c.at(1), 1, "never written")
	c.pass(3100)
	require.Equal(t, NotEnoughReplicas, c.at(1).outcome(1))
	require.Empty(t, c.at(1).bodies())
}

// A growth whose answer was lost may still land: until the revision has moved
// the newcomer must hold whatever is committed.
func TestUnknownGrowthCounts(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.at(3).cut = true
	c.down("n3", true)
	c.pass(20)
	require.Len(t, c.state.ISR, 2)
	c.at(3).cut = false
	c.tell()
	var late CAS
	c.cas = func(b *broker, x CAS) {
		if late.Token == 0 {
			late = x
		}
		c.step(b, CASDone{Token: x.Token, Unknown: true})
	}
	c.up("n3")
	c.pass(300)
	require.Len(t, late.State.ISR, 3)
	c.at(3).cut = true
	c.put(c.at(1), 1, "must wait for n3")
	c.pass(500)
	require.Equal(t, Outcome(0), c.at(1).outcome(1))
	c.cas = nil
	c.down("n3", true)
	c.pass(300)
	require.Equal(t, Committed, c.at(1).outcome(1), "the present state, written again, kills the late proposal")
}

func TestHandOver(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.settle()
	c.step(c.at(1), HandOver{To: "n3"})
	c.put(c.at(1), 2, "goes elsewhere")
	c.pass(100)
	require.Equal(t, ident.Node("n3"), c.state.Leader)
	require.Equal(t, NotLeader, c.at(1).outcome(2))
	require.Equal(t, Leader, c.at(3).m.role)
}

func TestChannelState(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.step(c.at(1), Change{Delta: []byte("a"), Ticket: 50})
	c.at(1).reg.text += "a" // the leader's channels apply at once
	c.settle()
	require.Equal(t, Committed, c.at(1).outcome(50))
	require.Equal(t, "a", c.at(2).reg.text)
	c.at(2).cut = true
	c.step(c.at(1), Change{Delta: []byte("b")})
	c.at(1).reg.text += "b"
	c.settle()
	c.at(2).cut = false
	c.step(c.at(1), Change{Delta: []byte("c"), Ticket: 51})
	c.at(1).reg.text += "c"
	c.settle()
	c.pass(500)
	require.Equal(t, "abc", c.at(2).reg.text, "a gap is filled by a snapshot")
	require.Equal(t, Committed, c.at(1).outcome(51))
}

// A pipeline that meets a gap is refused append by append; the leader must not
// send everything again for each refusal.
// TestFollowerThatOpensIsAskedAgainSoon: the first question comes before the
// follower has opened its replica. It is repeated soon, and then ever less.
func TestFollowerThatOpensIsAskedAgainSoon(t *testing.T) {
	c := newCluster(t, 2, 1)
	c.settle()
	c.at(2).cut = true
	lead := c.at(1).m.lead
	c.at(1).m.reprobe("n2")
	began, asked := c.now, []int64(nil)
	for f, before := lead.follower("n2"), int64(0); c.now < began+1000; before = f.sentAtMS {
		c.pass(10)
		if f.sentAtMS != before {
			asked = append(asked, f.sentAtMS-began)
		}
	}
	require.Equal(t, []int64{10, 40, 80, 160, 320, 520, 720, 920}, asked)
}

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
		require.Equal(t, Committed, c.at(1).outcome(i))
	}
}

// TestOneAcknowledgementPerAppend: a follower speaks when the append is durable,
// not when it has arrived; if it has all of it already, it speaks at once.
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
	b.Add([]byte("a"))
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

// TestProposalsWithoutAnswerAreFew: while the metadata store is away the same is
// proposed again and again. It counts once, however long that takes: all of it is
// looked at with every acknowledgement.
func TestProposalsWithoutAnswerAreFew(t *testing.T) {
	c := newCluster(t, 3, 2)
	asked := 0
	c.cas = func(b *broker, x CAS) {
		asked++
		c.step(b, CASDone{Token: x.Token, Unknown: true})
	}
	c.down("n3", true)
	c.at(3).cut = true
	c.pass(10_000)
	require.Greater(t, asked, 40)
	require.Equal(t, 1, len(c.at(1).m.lead.unresolved))
	c.cas = nil
	c.pass(1000)
	require.Empty(t, c.at(1).m.lead.unresolved)
	require.Len(t, c.state.ISR, 2)
}

// TestWhoLacksTheChannelsStateDoesNotCount: a large one may be long on its way, or find no
// room in a window, while puts arrive. Ordered channels do not wait for who has not joined.
func TestWhoLacksTheChannelsStateDoesNotCount(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	leader, back := c.at(1), c.at(3)
	put, lost := uint64(1<<20), true
	load := func(ms int64) {
		for end := c.now + ms; c.now < end; c.pass(10) {
			put++
			c.put(leader, put, "a")
		}
	}
	c.arrives = func(e Envelope) int64 {
		if lost && e.To == back.name && e.Msg.Kind == MsgConfirm {
			return math.MaxInt64
		}
		return c.now
	}
	back.cut = true
	c.down(back.name, true)
	c.step(leader, Change{Delta: []byte("missed"), Ticket: 1})
	load(1500)
	require.Len(t, c.state.ISR, 2)
	back.cut = false
	c.up(back.name)
	load(700)
	c.step(leader, Change{Delta: []byte("finish"), Ticket: 2})
	load(300)
	require.Equal(t, Committed, leader.outcome(2))
	lost = false
	load(4000)
	require.Len(t, c.state.ISR, 3)
}
