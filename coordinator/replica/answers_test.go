package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// answers counts the completions of a ticket.
func (b *broker) answers(ticket uint64) (n int) {
	for _, d := range b.done {
		if d.Ticket == ticket {
			n++
		}
	}
	return n
}

// TestChangesInDoubtAreAnswered: a change of the channels that not all replicas hold
// when its epoch ends, by a rollback or with the leadership, may be known to the next.
func TestChangesInDoubtAreAnswered(t *testing.T) {
	ends := map[string]func(c *cluster){
		"rolled back": func(c *cluster) {
			c.put(c.at(1), 1, "taken back")
			c.pass(3100)
		},
		"stepped down": func(c *cluster) { c.step(c.at(1), Live{Node: "n1"}) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2, 2)
			c.at(2).holdAck = true
			c.step(c.at(1), Change{Delta: []byte("a"), Ticket: 50})
			c.settle()
			require.Zero(t, c.at(1).answers(50))
			end(c)
			require.Equal(t, InDoubt, c.at(1).outcome(50))
			c.at(2).holdAck = false
			c.pass(300)
			require.Equal(t, 1, c.at(1).answers(50))
		})
	}
}

// TestAcknowledgementBeyondTheEnd: what a follower says it holds counts as far as the
// leader has it to give.
func TestAcknowledgementBeyondTheEnd(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.pass(300)
	leader := c.at(1)
	for i := 2; i <= 3; i++ {
		c.at(i).holdAck = true
	}
	c.step(leader, Change{Delta: []byte("a"), Ticket: 50})
	c.put(leader, 1, "on one disk")
	c.settle()
	end, l := leader.m.log.end, leader.m.lead
	beyond := end
	beyond.Offset++
	for _, claim := range []Message{{Durable: beyond, ConfirmN: l.confirmN}, {Durable: end, ConfirmN: l.confirmN + 1}} {
		claim.Kind, claim.Epoch = MsgAppendAck, l.epoch
		for _, f := range []Peer{{Node: "n2", Incarnation: 2, Store: 102}, {Node: "n3", Incarnation: 3, Store: 103}} {
			claim.Store = f.Store
			var out Effects
			leader.m.Step(Received{From: f, Msg: claim}, &out)
			require.ErrorIs(t, out.Alarm, errAckBeyondEnd)
			require.Empty(t, out.Done)
		}
	}
	require.Less(t, leader.m.committed.Offset, end.Offset)
	for i := 2; i <= 3; i++ {
		c.at(i).holdAck = false
	}
	c.settle()
	require.Equal(t, []Outcome{Committed, Committed}, []Outcome{leader.outcome(1), leader.outcome(50)})
	require.Equal(t, ident.Epoch(1), c.state.Epoch)
}
