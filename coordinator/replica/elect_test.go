package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// leaderDies ends the process of n1. Every other broker is told so at the same moment,
// n2 first.
func (c *cluster) leaderDies() {
	c.at(1).cut = true
	c.live["n1"] = 0
	c.down("n1", true)
	for _, b := range c.brokers[1:] {
		c.step(b, Live{Node: "n1"})
	}
	c.settle()
}

// behind makes a cluster of three in which n2 holds one put less than n3. The put is not
// committed: n2 is in sync, its disk has not answered yet.
func behind(t *testing.T) *cluster {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "on all")
	c.settle()
	c.at(2).holdAck = true
	c.put(c.at(1), 2, "not durable on n2")
	c.settle()
	require.Equal(t, outcome.Committed, c.at(1).outcome(1))
	require.Zero(t, c.at(1).outcome(2))
	return c
}

// TestElectionPrefersTheLongestLog: n2 learns of the leader's death first and holds less
// than n3. The election time that n2 waits is the head start of n3, which waits for
// nothing but the answers: so n3 leads, in the same instant, and keeps the put.
func TestElectionPrefersTheLongestLog(t *testing.T) {
	c := behind(t)
	died := c.now
	c.leaderDies()
	require.Equal(t, ident.Node("n3"), c.state.Leader)
	require.Equal(t, died, c.now)
	c.at(2).holdAck = false
	c.pass(1000)
	require.Equal(t, ident.Node("n3"), c.state.Leader)
	require.Equal(t, ident.Epoch(2), c.state.Epoch, "one election")
	require.Equal(t, Leader, c.at(3).m.View().Role)
	for _, b := range c.brokers[1:] {
		require.Equal(t, []string{"on all", "not durable on n2"}, b.bodies())
	}
}

// TestOrderOfCandidates: the epoch of the newest batch counts before the length of the log, and the name decides between equal
// logs. A long log that ends in an older epoch holds puts that the newer leader does not have.
func TestOrderOfCandidates(t *testing.T) {
	inOrder := []logTip{
		{node: "n5", epoch: 3, end: 100}, {node: "n4", epoch: 2, end: 300},
		{node: "n2", epoch: 2, end: 200}, {node: "n3", epoch: 2, end: 200}, {node: "n1", epoch: 1, end: 900},
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			require.Equal(t, i < j, a.before(b), "%v before %v", a, b)
		}
	}
}

// TestElectionWithoutTheLongestLog: n3 holds more than n2 and answers, but cannot reach
// the metadata. The head start that n2 gives it ends after one election time.
func TestElectionWithoutTheLongestLog(t *testing.T) {
	c := behind(t)
	c.cas = func(b *broker, x CAS) {
		if b.name != "n3" {
			c.apply(b, x)
		}
	}
	head := options("n2", 2).ElectionMS
	c.leaderDies()
	c.pass(head - 10)
	require.Equal(t, ident.Node("n1"), c.state.Leader)
	c.pass(10)
	require.Equal(t, ident.Node("n2"), c.state.Leader)
}
