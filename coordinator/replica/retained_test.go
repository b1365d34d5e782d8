package replica

import (
	"errors"
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
		_ = b.AddMessage(queue.Message{Body: []byte("message")})
		d := b.Draft(ident.RequestID{})
		bs = append(bs, d.Seal(p, 1, crc, 1))
		p, crc = bs[len(bs)-1].End, bs[len(bs)-1].CRC
	}
	return bs
}

// TestRestartArrivesTwice: a Restart that arrives twice must not remove batches that were
// acknowledged since the first, not even if retention has passed its position.
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
	b.m.log.tail.drop()
	b.log = slices.DeleteFunc(b.log, func(x queue.Batch) bool { return x.At.Offset < p.Offset })
	x := b.m.index.(*memoryIndex)
	x.start = p
	x.records = slices.DeleteFunc(x.records, func(r commitlog.Record) bool { return r.Offset < p.Offset })
}

// TestRetentionPassesFollower: retention has passed a follower's acknowledged end. The
// follower empties its log and restarts it, instead of the leader waiting for reads forever.
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
	f := leader.m.lead.follower("n3") // its catch-up was in progress when retention passed it
	f.becomeProbe(f.ack.end)
	for _, b := range c.brokers {
		c.step(b, PeerState{Node: "n3", Up: true})
	}
	c.wire = nil // the messages that the return has caused
	f.endProbe()
	require.Equal(t, catchUp, f.phase)
	c.step(leader, Read{Token: f.readToken, Err: errors.New("not retained")})
	c.pass(2000)
	require.Equal(t, leader.m.View().End, behind.m.View().End)
	require.Len(t, leader.m.View().ISR, 3)
}

// TestRetentionPassesReplicatingFollower: the follower is probed once, and not sent the
// same append forever.
func TestRetentionPassesReplicatingFollower(t *testing.T) {
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
	f.next = f.ack.end
	c.step(leader, Tick{NowMS: c.now + 10})
	require.Len(t, c.wire, 1)
	behind.cut = false
	c.pass(2000)
	require.Equal(t, leader.m.View().End, behind.m.View().End)
	require.Len(t, leader.m.View().ISR, 3)
}

// TestCatchUpEndsWithTheLog: batches that a read finds beyond the log's end were cut. They
// are not sent.
func TestCatchUpEndsWithTheLog(t *testing.T) {
	c := newCluster(t, 3, 2)
	leader := c.at(1)
	c.at(3).cut = true
	c.down("n3", true)
	c.put(leader, 1, "a")
	c.settle()
	leader.m.log.tail.drop()
	leader.log = append(leader.log, chain(leader.m.log.end, leader.m.log.lastCRC, 1)...)
	c.at(3).cut = false
	c.tell()
	c.up("n3")
	c.pass(300)
	require.Equal(t, leader.m.log.end, c.at(3).m.log.end)
	require.Equal(t, []string{"a"}, c.at(3).bodies())
}
