package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
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

func draft(n uint64, body string) queue.Draft {
	d := queue.NewDraft(len(body))
	d.Add([]byte(body))
	return d.Draft(ident.RequestID{Producer: 7, N: n})
}

// TestRepeatWhileHeld: a put and its repeat wait for enough replicas, both without a
// place in the log.
func TestRepeatWhileHeld(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.down("n2", false)
	for ticket := uint64(1); ticket <= 2; ticket++ {
		c.step(c.at(1), Propose{Puts: []Put{{Ticket: ticket, Draft: draft(1, "once")}}})
	}
	require.Empty(t, c.at(1).bodies())
	c.up("n2")
	c.pass(300)
	require.Equal(t, []string{"once"}, c.at(1).bodies())
	require.Equal(t, []Outcome{Committed, Committed}, []Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
}

// TestHeldBytesAreGivenBack: what was held in vain makes room for what comes later.
func TestHeldBytesAreGivenBack(t *testing.T) {
	c := newCluster(t, 2, 2)
	d := draft(1, "held")
	c.at(1).m.o.HeldBytes = d.Size()
	c.down("n2", false)
	for i := range uint64(3) {
		c.put(c.at(1), 10*i+1, "held")
		require.Zero(t, c.at(1).outcome(10*i+1))
		c.put(c.at(1), 10*i+2, "more")
		require.Equal(t, NotEnoughReplicas, c.at(1).outcome(10*i+2))
		c.pass(3100)
		require.Equal(t, NotEnoughReplicas, c.at(1).outcome(10*i+1))
	}
}

// TestNoRollbackWithoutMetadata: while nobody answers there a put can neither be
// committed nor taken back. Its producer is told so.
func TestNoRollbackWithoutMetadata(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.cas = func(b *broker, x CAS) { c.step(b, CASDone{Token: x.Token, Unknown: true}) }
	c.at(2).holdAck = true
	c.put(c.at(1), 1, "open")
	c.pass(4900)
	require.Zero(t, c.at(1).outcome(1))
	c.pass(200)
	require.Equal(t, InDoubt, c.at(1).outcome(1))
}

// TestTimeNeverGoesBack: messages are looked for by their time.
func TestTimeNeverGoesBack(t *testing.T) {
	c := newCluster(t, 1, 1)
	for n, ns := range []int64{5000, 3000, 6000, 1} {
		c.step(c.at(1), Propose{TimeNS: ns, Puts: []Put{{Draft: draft(uint64(n+1), "a")}}})
	}
	log := c.at(1).log
	for i := range log[1:] {
		require.LessOrEqual(t, log[i].Time, log[i+1].Time)
	}
	require.Equal(t, int64(6000), log[len(log)-1].Time)
}

// TestUnregisteredMemberLeavesAtOnce: neither heard nor registered, it is not waited for.
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

// TestConflictBelowTheCommittedEnd: no leader is believed that would cut what is
// committed.
func TestConflictBelowTheCommittedEnd(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "committed")
	c.pass(300)
	follower := c.at(3)
	before, end := follower.bodies(), follower.m.View().End
	first := follower.log[0]
	d := draft(9, "another")
	other := d.Seal(first.End, 2, first.CRC, 1)
	var out Effects
	follower.m.Step(Received{From: Peer{Node: "n2", Incarnation: 2, Store: 102}, Msg: Message{
		Kind: MsgAppend, Epoch: 2, To: 103, Store: 102, Prev: first.End, PrevCRC: first.CRC, Batches: []queue.Batch{other},
	}}, &out)
	require.Error(t, out.Alarm)
	require.False(t, out.Truncated)
	require.Equal(t, end, follower.m.View().End)
	require.Equal(t, before, follower.bodies())
}

// TestBeginAfreshForgets: a follower that begins afresh below its end has none of the
// log before: neither what it had synced of it counts, nor the puts in it.
func TestBeginAfreshForgets(t *testing.T) {
	c := newCluster(t, 2, 1)
	b := c.at(2)
	c.step(b, Received{From: Peer{Node: "n1", Incarnation: 1, Store: 101}, Msg: Message{
		Kind: MsgAppend, Epoch: 1, To: 102, Store: 101,
		Prev: b.m.log.end, PrevCRC: b.m.log.lastCRC, Batches: sealed(b.m.log.end, b.m.log.lastCRC, 1, 2, 3),
	}})
	c.settle()
	start := ident.Position{Offset: b.m.log.end.Offset - 10, Sequence: 50}
	b.holdAck = true
	c.wire = nil
	c.step(b, Received{From: Peer{Node: "n1", Incarnation: 1, Store: 101}, Msg: Message{
		Kind: MsgAppend, Epoch: 3, To: 102, Store: 101, Restart: true, Prev: start, PrevCRC: 4711,
	}})
	require.Equal(t, start, b.m.log.end)
	require.LessOrEqual(t, b.m.log.durable.end.Offset, start.Offset)
	_, known := b.m.recent.find(ident.RequestID{Producer: 7, N: 2})
	require.False(t, known, "a repeat of it would be answered")
}

// sealed makes batches of these requests from p on.
func sealed(p ident.Position, crc uint32, requests ...uint64) (bs []queue.Batch) {
	for _, n := range requests {
		d := draft(n, "message")
		bs = append(bs, d.Seal(p, 1, crc, 1))
		p, crc = bs[len(bs)-1].End, bs[len(bs)-1].CRC
	}
	return bs
}

// TestPutsHeldOverARollback: what came while it was under way gets its place after it.
func TestPutsHeldOverARollback(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.at(2).holdAck = true
	c.put(c.at(1), 1, "taken back")
	var asked CAS
	c.cas = func(_ *broker, x CAS) { asked = x }
	c.pass(3100)
	c.put(c.at(1), 2, "held")
	c.cas = nil
	c.apply(c.at(1), asked)
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, []Outcome{RolledBack, Committed}, []Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
	require.Equal(t, []string{"held"}, c.at(2).bodies())
}

// TestRollbackThatDoesNotLand: the key has moved, and puts are taken again.
func TestRollbackThatDoesNotLand(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.at(2).holdAck = true
	c.put(c.at(1), 1, "late")
	c.cas = func(b *broker, x CAS) {
		c.state.Revision++
		c.step(b, CASDone{Token: x.Token, State: c.state})
	}
	c.pass(3100)
	c.cas = nil
	c.at(2).holdAck = false
	c.settle()
	c.pass(10)
	c.put(c.at(1), 2, "next")
	c.pass(300)
	require.Equal(t, []Outcome{Committed, Committed}, []Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
	require.Equal(t, ident.Epoch(1), c.state.Epoch)
}
