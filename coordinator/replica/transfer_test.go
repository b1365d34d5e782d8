package replica

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func TestHandOver(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.settle()
	c.step(c.at(1), TransferLeadership{To: "n3"})
	c.put(c.at(1), 2, "goes elsewhere")
	c.pass(100)
	require.Equal(t, ident.Node("n3"), c.state.Leader)
	require.Equal(t, outcome.NotLeader, c.at(1).outcome(2))
	require.Equal(t, Leader, c.at(3).m.role)
}

// TestHandOverWaitsForPresentIncarnation: a transfer target that restarted since its last
// acknowledgement may have lost its disk. It gets the leadership when the new process has
// answered a probe.
func TestHandOverWaitsForPresentIncarnation(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.pass(100) // all know everything: nothing else will be said
	c.at(2).cut = true
	c.live["n2"] = 9
	c.step(c.at(1), Live{Node: "n2", Incarnation: 9})
	c.step(c.at(1), TransferLeadership{To: "n2"})
	c.pass(100)
	require.EqualValues(t, "n1", c.state.Leader)

	c.at(2).cut = false
	c.step(c.at(2), Live{Node: "n2", Incarnation: 9})
	c.pass(500)
	require.EqualValues(t, "n2", c.state.Leader)
}

// TestHandOverWithoutAnswerHoldsNoPuts: while the metadata store is away, no broker learns
// whether a transfer has landed. The leader leads on for those that still follow it, the
// target among them. If the transfer has landed, the target has everything.
func TestHandOverWithoutAnswerHoldsNoPuts(t *testing.T) {
	for _, landed := range []bool{false, true} {
		c := newCluster(t, 3, 2)
		c.put(c.at(1), 1, "a")
		c.pass(100)
		var asked *CAS
		c.cas = func(_ *broker, x CAS) { asked = &x }
		c.step(c.at(1), TransferLeadership{To: "n3"})
		c.pass(100)
		require.NotNil(t, asked)
		c.put(c.at(1), 2, "b")
		c.pass(2500)
		require.Equal(t, outcome.Committed, c.at(1).outcome(2))

		c.cas = nil
		if landed {
			c.apply(c.at(1), *asked)
			c.pass(500)
			require.Equal(t, Leader, c.at(3).m.role)
			require.Equal(t, c.at(1).m.View().Committed, c.at(3).m.View().Committed)
		}
	}
}

// TestHandOverToMembersOnly: a transfer target that has left the ISR since the transfer
// began joins it again before the key names it.
func TestHandOverToMembersOnly(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.pass(100)
	c.at(3).holdAck = true
	c.put(c.at(1), 2, "its disk hangs")
	c.step(c.at(1), TransferLeadership{To: "n3"})
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

// TestHandOverTakesTheLastFinishes: the channels are asked to stop before the key is proposed, and the target has what
// they did until they stopped. A finish between the proposal and its answer would be in no state of the target: the
// message would be delivered again.
func TestHandOverTakesTheLastFinishes(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.pass(100)
	leads := c.at(1)
	leads.serves = true
	c.cas = func(*broker, CAS) { t.Error("the channels have not stopped") }
	c.step(leads, TransferLeadership{To: "n3"})
	c.pass(100)
	asked := leads.m.View().Stopping
	require.NotZero(t, asked)
	leads.reg.text += "finish "
	c.step(leads, Change{Delta: []byte("finish "), Ticket: 7})
	c.pass(100)
	c.cas = nil
	leads.reg.text += "last finish "
	c.step(leads, Change{Delta: []byte("last finish ")})
	c.step(leads, ChannelsStopped{Number: asked})
	c.pass(100)
	require.EqualValues(t, "n3", c.state.Leader)
	require.Equal(t, "finish last finish ", c.at(3).reg.text)
	require.Zero(t, leads.m.View().Stopping)
}

// TestHandOverThatFailsLetsTheChannelsServe: the answer to a request of an earlier transfer counts for nothing.
func TestHandOverThatFailsLetsTheChannelsServe(t *testing.T) {
	c := newCluster(t, 3, 2)
	leads := c.at(1)
	leads.serves = true
	c.step(leads, TransferLeadership{To: "n3"})
	c.pass(100)
	first := leads.m.View().Stopping
	c.pass(500)
	require.Zero(t, leads.m.View().Stopping, "half of T_isr is over")
	c.step(leads, TransferLeadership{To: "n3"})
	c.step(leads, ChannelsStopped{Number: first})
	c.pass(100)
	require.EqualValues(t, "n1", c.state.Leader)
	c.step(leads, ChannelsStopped{Number: leads.m.View().Stopping})
	c.pass(100)
	require.EqualValues(t, "n3", c.state.Leader)
}
