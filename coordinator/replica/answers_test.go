package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
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

// TestAcknowledgementBeyondTheEnd: an acknowledgement of more than the leader has does
// not count.
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
	for _, claim := range []Message{{Durable: beyond, StateVersion: l.stateIssued}, {Durable: end, StateVersion: l.stateIssued + 1}} {
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
	require.Equal(t, []outcome.Outcome{outcome.Committed, outcome.Committed}, []outcome.Outcome{leader.outcome(1), leader.outcome(50)})
	require.Equal(t, ident.Epoch(1), c.state.Epoch)
}

func draft(n uint64, body string) queue.Draft {
	d := queue.NewDraft(len(body))
	_ = d.AddMessage(queue.Message{Body: []byte(body)})
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
	require.Equal(t, []outcome.Outcome{outcome.Committed, outcome.Committed}, []outcome.Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
}

// TestHeldBytesAreGivenBack: held puts that were refused make room for later ones.
func TestHeldBytesAreGivenBack(t *testing.T) {
	c := newCluster(t, 2, 2)
	d := draft(1, "held")
	c.at(1).m.o.HeldBytes = d.Size()
	c.down("n2", false)
	for i := range uint64(3) {
		c.put(c.at(1), 10*i+1, "held")
		require.Zero(t, c.at(1).outcome(10*i+1))
		c.put(c.at(1), 10*i+2, "more")
		require.Equal(t, outcome.NotEnoughReplicas, c.at(1).outcome(10*i+2))
		c.pass(3100)
		require.Equal(t, outcome.NotEnoughReplicas, c.at(1).outcome(10*i+1))
	}
}

// TestNoRollbackWithoutMetadata: while the metadata store does not answer, a put can be
// neither committed nor rolled back. It is answered in doubt.
func TestNoRollbackWithoutMetadata(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.cas = func(b *broker, x CAS) { c.step(b, CASDone{Token: x.Token, Unknown: true}) }
	c.at(2).holdAck = true
	c.put(c.at(1), 1, "open")
	c.pass(4900)
	require.Zero(t, c.at(1).outcome(1))
	c.pass(200)
	require.Equal(t, outcome.InDoubt, c.at(1).outcome(1))
}

// TestTimeNeverGoesBack: a search by time requires times that do not decrease.
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

// TestBeginAfreshForgets: a follower that begins its log afresh below its end has none of
// the old log: neither the durable end nor the request ids of that log count.
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
	_, known := b.m.recent.Find(ident.RequestID{Producer: 7, N: 2})
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

// TestPutsHeldOverARollback: puts that arrive during a rollback get their place after it.
func TestPutsHeldOverARollback(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.at(2).holdAck = true
	c.put(c.at(1), 1, "rolled back")
	var asked CAS
	c.cas = func(_ *broker, x CAS) { asked = x }
	c.pass(3100)
	c.put(c.at(1), 2, "held")
	c.cas = nil
	c.apply(c.at(1), asked)
	c.at(2).holdAck = false
	c.pass(300)
	require.Equal(t, []outcome.Outcome{outcome.RolledBack, outcome.Committed}, []outcome.Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
	require.Equal(t, []string{"held"}, c.at(2).bodies())
}

// TestRollbackThatDoesNotLand: the key has moved, and the leader accepts puts again.
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
	require.Equal(t, []outcome.Outcome{outcome.Committed, outcome.Committed}, []outcome.Outcome{c.at(1).outcome(1), c.at(1).outcome(2)})
	require.Equal(t, ident.Epoch(1), c.state.Epoch)
}

// TestPositionOfAPut: the answer has the sequence of the put's first message, also if that message was in the log before.
func TestPositionOfAPut(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{DedupeMS: 60_000})
	m.out, m.lead = &Effects{}, &leadership{epoch: 1}
	for _, row := range []struct {
		ids   []string
		first ident.Sequence
	}{{ids: []string{"a"}, first: 0}, {ids: []string{"b", "c"}, first: 1}, {ids: []string{"b", "d"}, first: 1}, {ids: []string{"e", "f"}, first: 4}} {
		d := queue.NewDraft(0)
		for _, id := range row.ids {
			require.NoError(t, d.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(id))}))
		}
		m.appendPut(Put{Ticket: 1, Draft: d.Draft(ident.RequestID{})})
		require.Equal(t, row.first, m.lead.pending[len(m.lead.pending)-1].first, row.ids)
	}
}

// TestStepDownAnswersAll: each open operation of a leadership gets one answer when the leadership ends (I9).
func TestStepDownAnswersAll(t *testing.T) {
	m := New(queue.Restored{}, &memoryIndex{}, &listRegister{}, Options{})
	m.out = &Effects{}
	m.lead = &leadership{
		pending: []pendingPut{{ticket: 1}}, rolledBack: []rolledBackPut{{ticket: 2}}, held: []heldPut{{put: Put{Ticket: 3}}},
		changes: []pendingChange{{ticket: 4}},
	}
	m.stepDown()
	require.Equal(t, []outcome.Completion{
		{Ticket: 1, Outcome: outcome.InDoubt}, {Ticket: 2, Outcome: outcome.InDoubt}, {Ticket: 3, Outcome: outcome.NotLeader},
		{Ticket: 4, Outcome: outcome.InDoubt},
	}, m.out.Done)
}
