package replica

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// memoryIndex is a commit log in memory.
type memoryIndex struct {
	start   ident.Position
	records []commitlog.Record
}

func (x *memoryIndex) Append(r ...commitlog.Record) { x.records = append(x.records, r...) }
func (x *memoryIndex) Truncate(end ident.Offset) {
	x.records = slices.DeleteFunc(x.records, func(r commitlog.Record) bool { return r.Offset >= end })
}
func (x *memoryIndex) Restart(p ident.Position) { x.start, x.records = p, nil }
func (x *memoryIndex) Start() ident.Position    { return x.start }
func (x *memoryIndex) AtOffset(o ident.Offset) (commitlog.Record, bool) {
	for _, r := range x.records {
		if r.Offset <= o && o < r.End().Offset {
			return r, true
		}
	}
	return commitlog.Record{}, false
}

// listRegister keeps channel-state deltas as one growing text.
type listRegister struct{ text string }

func (r *listRegister) Snapshot() []byte    { return []byte(r.text) }
func (r *listRegister) Apply(delta []byte)  { r.text += string(delta) }
func (r *listRegister) Replace(full []byte) { r.text = string(full) }

// broker is one machine with a disk that syncs when told.
type broker struct {
	name    ident.Node
	m       *Machine
	reg     *listRegister
	log     []queue.Batch // what the segments would hold
	unsync  []uint64
	holdAck bool // the disk hangs
	cut     bool // the network is cut
	done    []Completion
}

// cluster joins brokers by a queue of messages, and plays etcd.
type cluster struct {
	t       *testing.T
	brokers []*broker
	wire    []func()
	state   meta.PartitionState
	cas     func(b *broker, c CAS) // overrides the metadata store
	now     int64
	live    map[ident.Node]ident.Incarnation
}

func options(name ident.Node, i int) Options {
	return Options{
		Self:      Peer{Node: name, Incarnation: ident.Incarnation(i), Store: ident.StoreID(100 + i)},
		Partition: ident.Partition{Topic: 1}, ISRMS: 1000, HoldMS: 3000, WriteMS: 3000, GraceMS: 2000,
		RetryMS: 200, ElectionMS: 50, WindowBytes: 8 << 20, GroupBytes: 1 << 20, TailBytes: 16 << 20,
		HeldBytes: 64 << 20, Check: true,
	}
}

func newCluster(t *testing.T, n, minISR int) *cluster {
	c := &cluster{t: t, live: map[ident.Node]ident.Incarnation{}, now: 1000}
	c.state = meta.PartitionState{V: 1, MinInSync: minISR, Leader: "n1", LeaderIncarnation: 1, Epoch: 1, Revision: 1}
	for i := 1; i <= n; i++ {
		name := ident.Node(fmt.Sprintf("n%d", i))
		b := &broker{name: name, reg: &listRegister{}}
		b.m = New(queue.Restored{}, &memoryIndex{}, b.reg, options(name, i))
		c.brokers = append(c.brokers, b)
		c.live[name] = ident.Incarnation(i)
		c.state.Replicas = append(c.state.Replicas, name)
		c.state.ISR = append(c.state.ISR, ident.Member{Node: name, Store: ident.StoreID(100 + i)})
	}
	for _, b := range c.brokers {
		c.step(b, Tick{NowMS: c.now})
		for _, p := range c.brokers {
			c.step(b, Live{Node: p.name, Incarnation: c.live[p.name]})
			c.step(b, PeerState{Node: p.name, Up: true})
		}
	}
	c.tell()
	return c
}

func (c *cluster) at(i int) *broker { return c.brokers[i-1] }

func (c *cluster) tell() {
	for _, b := range c.brokers {
		if !b.cut {
			c.step(b, Meta{State: c.state})
		}
	}
	c.settle()
}

// step runs one event and carries its effects out: disk at once unless it
// hangs, messages through the queue.
func (c *cluster) step(b *broker, ev Event) {
	var out Effects
	b.m.Step(ev, &out)
	for _, w := range out.Write {
		switch w.Kind {
		case queue.WriteTruncate, queue.WriteReset:
			b.log = slices.DeleteFunc(b.log, func(x queue.Batch) bool { return x.At.Offset >= w.At.Offset })
		}
		b.log = append(b.log, w.Batches...)
	}
	if out.Token != 0 {
		b.unsync = append(b.unsync, out.Token)
	}
	for _, e := range out.Send {
		c.wire = append(c.wire, func() {
			to := c.brokers[slices.IndexFunc(c.brokers, func(x *broker) bool { return x.name == e.To })]
			if !b.cut && !to.cut {
				c.step(to, Received{From: Peer{Node: b.name, Incarnation: b.m.self.Incarnation, Store: e.Msg.Store}, Msg: e.Msg})
			}
		})
	}
	for _, r := range out.Read {
		i := slices.IndexFunc(b.log, func(x queue.Batch) bool { return x.At.Offset >= r.From })
		c.wire = append(c.wire, func() { c.step(b, Read{Token: r.Token, Batches: slices.Clone(b.log[i:])}) })
	}
	if out.CAS != nil {
		cas := *out.CAS
		c.wire = append(c.wire, func() {
			if c.cas != nil {
				c.cas(b, cas)
				return
			}
			c.apply(b, cas)
		})
	}
	b.done = append(b.done, out.Done...)
}

// apply plays the transaction and tells everybody.
func (c *cluster) apply(b *broker, cas CAS) {
	if b.cut {
		return
	}
	ok := cas.State.Revision == c.state.Revision && (cas.LeaderGone == nil || c.live[cas.LeaderGone.Node] != cas.LeaderGone.Incarnation)
	if ok {
		rev := c.state.Revision
		c.state = cas.State.Clone()
		c.state.Revision = rev + 1
	}
	c.step(b, CASDone{Token: cas.Token, OK: ok, State: c.state})
	c.tell()
}

// settle syncs disks and delivers messages until nothing moves.
func (c *cluster) settle() {
	for moved := true; moved; {
		moved = false
		for _, b := range c.brokers {
			for !b.holdAck && len(b.unsync) > 0 {
				tok := b.unsync[0]
				b.unsync = b.unsync[1:]
				c.step(b, Synced{Token: tok})
				moved = true
			}
		}
		if len(c.wire) > 0 {
			f := c.wire[0]
			c.wire = c.wire[1:]
			f()
			moved = true
		}
	}
}

// pass lets time go by in ticks of 10 ms.
func (c *cluster) pass(ms int64) {
	for end := c.now + ms; c.now < end; {
		c.now += 10
		for _, b := range c.brokers {
			if !b.cut {
				c.step(b, Tick{NowMS: c.now})
			}
		}
		c.settle()
	}
}

func (c *cluster) put(b *broker, ticket uint64, body string) {
	d := queue.NewDraft(len(body))
	d.Add([]byte(body))
	c.step(b, Propose{TimeNS: c.now * 1e6, Puts: []Put{{Ticket: ticket, Draft: d.Draft(ident.RequestID{Producer: 7, N: ticket})}}})
}

func (c *cluster) down(n ident.Node, dead bool) {
	for _, b := range c.brokers {
		if b.name != n {
			c.step(b, PeerState{Node: n, Up: false, Dead: dead})
		}
	}
	c.settle()
}

func (c *cluster) up(n ident.Node) {
	for _, b := range c.brokers {
		c.step(b, PeerState{Node: n, Up: true})
	}
	c.settle()
}

func (b *broker) outcome(ticket uint64) Outcome {
	for _, d := range b.done {
		if d.Ticket == ticket {
			return d.Outcome
		}
	}
	return 0
}

func (b *broker) bodies() (all []string) {
	for _, x := range b.log {
		for _, msg := range x.Messages(0, 1<<20, nil) {
			all = append(all, string(msg.Body))
		}
	}
	return all
}

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
