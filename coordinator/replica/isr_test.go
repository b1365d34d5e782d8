package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestSilentFollowerLeavesAfterTISR(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(500)
	c.at(3).holdAck = true
	c.put(c.at(1), 1, "slow disk")
	c.pass(900)
	require.Equal(t, outcome.Outcome(0), c.at(1).outcome(1))
	c.pass(200)
	require.Equal(t, outcome.Committed, c.at(1).outcome(1))
	require.Len(t, c.state.ISR, 2)
}

// TestWhoLagsDoesNotJoin: a member that is removed because it owes an acknowledgement
// holds everything committed as long as another member owes it too. It must not join for
// that reason, or it would be removed again at once.
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
	require.Equal(t, 1, proposals, "it is removed and joins in turn")
	require.Len(t, c.state.ISR, 2)
	hung.holdAck, late.holdAck = false, false
	c.pass(500)
	require.Len(t, c.state.ISR, 3)
	require.Equal(t, outcome.Committed, leader.outcome(2))
}

// TestWhoIsSlowIsLetGo: a follower acknowledges all the while, and falls behind, because
// its link or disk is slower than the puts. Puts do not wait for it for longer than T_isr.
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
	require.Equal(t, outcome.Committed, leader.outcome(before+1))
	behind = 0
	load(3000, 0)
	require.Len(t, c.state.ISR, 3, "it keeps up again")
}

// load puts every 10 ms, under numbers that continue from put.
func (c *cluster) load(leader *broker, put *uint64, ms int64) {
	for end := c.now + ms; c.now < end; c.pass(10) {
		*put++
		c.put(leader, *put, "a")
	}
}

// farAway gives the times at which messages arrive, if those to one broker take ms.
func (c *cluster) farAway(far *broker, ms int64) func(Envelope) int64 {
	return func(e Envelope) int64 {
		if e.To == far.name {
			return c.now + ms
		}
		return c.now
	}
}

// TestFarReplicaJoinsBesidePuts: a replica that answers later than the members is always
// behind the committed end while there are puts.
func TestFarReplicaJoinsBesidePuts(t *testing.T) {
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
	require.Equal(t, outcome.Committed, leader.outcome(put))
}

// TestAnswersThatTakeLongerThanARetry: the follower's answers arrive after the probe was
// repeated, and puts continue. All repetitions are equal.
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

// TestUnknownGrowthCounts: a growth may still land after its answer was lost. Until the
// revision has moved, the newcomer must hold everything that is committed.
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
	require.Equal(t, outcome.Outcome(0), c.at(1).outcome(1))
	c.cas = nil
	c.down("n3", true)
	c.pass(300)
	require.Equal(t, outcome.Committed, c.at(1).outcome(1), "the current state, written again, kills the late proposal")
}

// TestProposalsWithoutAnswerAreFew: while the metadata store is away the leader repeats
// one proposal. It is kept once, however long that takes, for the leader looks at all
// unresolved proposals with every acknowledgement.
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

// TestReturnedReplicaSpeaksBeforeItJoins: a replica that was removed and comes back may
// have lost its disk. It joins by the acknowledgement of its present process, whether the
// leader has that process from the metadata or from its connection alone.
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
			Kind: MsgAppendAck, Epoch: 1, Store: 103, Durable: leader.m.log.end, StateVersion: leader.m.lead.stateIssued,
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
		require.EqualValues(t, 109, leader.m.lead.follower("n3").ack.store)
	}
}

// TestUnregisteredMemberLeavesAtOnce: a member that does not answer and is not
// registered is not waited for.
func TestUnregisteredMemberLeavesAtOnce(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.at(3).cut = true
	c.down("n3", false)
	c.pass(50)
	require.Len(t, c.state.ISR, 3)
	c.step(c.at(1), Live{Node: "n3"})
	c.pass(50)
	require.Len(t, c.state.ISR, 2)
}
