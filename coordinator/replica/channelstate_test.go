package replica

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestChannelsStopBeforeAnEpochOpens: a message that a client finishes in that moment
// would be finished in memory here, and in no version that this replica writes of the
// epoch.
func TestChannelsStopBeforeAnEpochOpens(t *testing.T) {
	c := newCluster(t, 2, 2)
	leader := c.at(1)
	leader.reg.text, leader.reg.late = "finished: 1 ", "finished: 2 "
	c.at(2).holdAck = true
	c.put(leader, 1, "rolled back")
	c.pass(3100)
	require.Equal(t, ident.Epoch(2), leader.m.promised)
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, Leader, leader.m.role)
	require.Equal(t, "finished: 1 ", leader.reg.text)
}

func TestChannelState(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.step(c.at(1), Change{Delta: []byte("a"), Ticket: 50})
	c.at(1).reg.text += "a" // the leader's channels apply at once
	c.settle()
	require.Equal(t, outcome.Committed, c.at(1).outcome(50))
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
	require.Equal(t, outcome.Committed, c.at(1).outcome(51))
}

// TestWhoLacksTheChannelsStateDoesNotCount: a large channel state may be long on its way,
// or find no room in a window, while puts arrive. Ordered channels do not wait for a
// replica that has not joined.
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
		if lost && e.To == back.name && e.Msg.Kind == MsgChannelState {
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
	require.Equal(t, outcome.Committed, leader.outcome(2))
	lost = false
	load(4000)
	require.Len(t, c.state.ISR, 3)
}

// TestHistoryStaysShort: a store keeps all channel-state versions since the last snapshot in
// memory, and writes them at each checkpoint. There must never be many, on any replica,
// from the first change on.
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

// TestLargeStateIsWrittenSeldom: a snapshot of a large state waits until the deltas are as
// large.
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

// TestLargeSnapshotIsNotSentForEver: the channel state takes the network longer than
// RetryMS, and changes all the time. After the snapshot the follower gets deltas, not the
// whole state over and over.
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
			if free = max(free, c.now); e.Msg.State.Full {
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
		require.Equal(t, leader.m.lead.stateIssued, leader.m.lead.follower("n2").ack.state)
	}
}

// TestMissedChangesAreSentAgainSoon: on a long line the channels change faster than
// acknowledgements come back, and changes get lost occasionally. However often that
// happened, the follower soon gets the lost changes.
func TestMissedChangesAreSentAgainSoon(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.pass(300)
	leader := c.at(1)
	lose := false
	c.arrives = func(e Envelope) int64 {
		if lose && e.Msg.Kind == MsgChannelState {
			lose = false
			return math.MaxInt64
		}
		return c.now + 30
	}
	for lost := range 8 {
		lose = true
		c.step(leader, Change{Delta: []byte("finished: 1")})
		missed, began := leader.m.lead.stateIssued, c.now
		for leader.m.lead.stateCommitted < missed {
			c.pass(10)
			c.step(leader, Change{Delta: []byte("finished: 1")})
			require.Less(t, c.now-began, 3*leader.m.o.RetryMS, "lost %d times before", lost)
		}
	}
}

// TestChangesInDoubtAreAnswered: when an epoch ends by a rollback or with the
// leadership, the next leader may hold a change of the channels that not all replicas
// hold.
func TestChangesInDoubtAreAnswered(t *testing.T) {
	ends := map[string]func(c *cluster){
		"rolled back": func(c *cluster) {
			c.put(c.at(1), 1, "rolled back")
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
			require.Equal(t, outcome.InDoubt, c.at(1).outcome(50))
			c.at(2).holdAck = false
			c.pass(300)
			require.Equal(t, 1, c.at(1).answers(50))
		})
	}
}
