package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestLeaderKeepsItsCommittedEnd: the journal of a leader tells what it had committed 100 ms before
// its last append, so that an old disk that comes back shows it. Puts that follow each other at
// once do not pay for that.
func TestLeaderKeepsItsCommittedEnd(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader, puts := c.at(1), 50
	before := len(leader.committed)
	for i := range puts {
		c.put(leader, uint64(i+1), "m")
		c.settle()
	}
	require.LessOrEqual(t, len(leader.committed)-before, 1, "each put pays")

	c.pass(committedEveryMS)
	end := leader.m.committed
	c.put(leader, uint64(puts+1), "m")
	require.Equal(t, end, leader.committed[len(leader.committed)-1])
	c.settle()
	require.Equal(t, end, leader.committed[len(leader.committed)-1], "once is enough")

	for i := range puts { // for half a second
		c.pass(10)
		c.put(leader, uint64(puts+i+2), "m")
		c.settle()
	}
	require.Greater(t, leader.committed[len(leader.committed)-1].Sequence, end.Sequence+ident.Sequence(puts)-committedEveryMS/10-2)
}
