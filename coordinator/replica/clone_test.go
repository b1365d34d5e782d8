package replica

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

func (x *memoryIndex) clone() *memoryIndex {
	c := *x
	c.records = append(c.records[:0:0], x.records...)
	return &c
}

func (b *broker) cloneMachine() *Machine {
	reg := *b.reg
	return b.m.Clone(b.m.index.(*memoryIndex).clone(), &reg)
}

// TestCloneContinuesAlike: a copy has the same effects as the original, and neither
// disturbs the other.
func TestCloneContinuesAlike(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.put(c.at(1), 1, "a")
	c.settle()
	c.at(3).holdAck = true
	c.put(c.at(1), 2, "pending")
	c.settle()
	leader := c.at(1)
	for _, ev := range []Event{
		Tick{NowMS: c.now + 1500}, Tick{NowMS: c.now + 9000}, PeerState{Node: "n3", Dead: true}, TransferLeadership{To: "n2"},
		Live{Node: "n1", Incarnation: 9}, Change{Delta: []byte("x"), Ticket: 9},
	} {
		before := leader.m.Canonical(nil)
		a, b := leader.cloneMachine(), leader.cloneMachine()
		require.Equal(t, before, a.Canonical(nil))
		var first, second Effects
		a.Step(ev, &first)
		b.Step(ev, &second)
		require.Equal(t, first, second, "%T", ev)
		require.Equal(t, a.Canonical(nil), b.Canonical(nil), "%T", ev)
		require.Equal(t, before, leader.m.Canonical(nil), "%T to a copy reached the original", ev)
	}
}

// TestCanonicalTellsApart: time beyond all deadlines is not part of the canonical form; a
// put, a promise and an acknowledgement are.
func TestCanonicalTellsApart(t *testing.T) {
	c := newCluster(t, 2, 2)
	c.pass(7000)
	at := func() string { return string(c.at(1).m.Canonical(nil)) }
	rest := at()
	c.pass(7000)
	require.Equal(t, rest, at())
	c.put(c.at(1), 1, "a")
	asked := at()
	require.NotEqual(t, rest, asked)
	c.settle()
	require.NotEqual(t, asked, at())
}

// TestCloneKnowsEveryField: a new field must be added to Clone and Canonical, and then
// here.
func TestCloneKnowsEveryField(t *testing.T) {
	known := map[reflect.Type]string{
		reflect.TypeFor[Machine]():       "o self index register nowMS role log recent dedupe marks committed committedWritten committedMS promised channels state nodes lows follow lead campaign cas requestToken transfers counters out",
		reflect.TypeFor[node]():          "name incarnation known up dead changedMS lostMS losses low",
		reflect.TypeFor[proposal]():      "token kind state replaces",
		reflect.TypeFor[log]():           "end lastCRC timeNS epochs token pending durable tail",
		reflect.TypeFor[tail]():          "batches head bytes",
		reflect.TypeFor[submission]():    "token atMS end epoch state",
		reflect.TypeFor[version]():       "epoch n",
		reflect.TypeFor[channelState]():  "version deltas full",
		reflect.TypeFor[following]():     "leader verified",
		reflect.TypeFor[campaign]():      "startMS asked replies proposedMS",
		reflect.TypeFor[logTip]():        "node epoch end",
		reflect.TypeFor[leadership]():    "epoch start markerEnd sinceMS openToken open followers pending held heldBytes paused review unresolved retryMS transfer rollback afterRollback rolledBack stateIssued stateCommitted changes",
		reflect.TypeFor[progress]():      "node incarnation ack phase next probedAt searched readToken askedMS sentMS state lag committedSent committedAcked",
		reflect.TypeFor[ack]():           "store valid end state",
		reflect.TypeFor[stateProgress](): "sent snapshot movedMS waitMS",
		reflect.TypeFor[lag]():           "mark sinceMS keepsUp",
		reflect.TypeFor[transfer]():      "target sinceMS number stopMS stopped",
		reflect.TypeFor[pendingPut]():    "ticket first end sentMS outcome",
		reflect.TypeFor[heldPut]():       "put sinceMS",
		reflect.TypeFor[rolledBackPut](): "ticket sinceMS",
		reflect.TypeFor[pendingChange](): "ticket n",
		reflect.TypeFor[ident.Member]():  "Node Store",
	}
	for typ, fields := range known {
		var have []string
		for i := range typ.NumField() {
			have = append(have, typ.Field(i).Name)
		}
		require.Equal(t, fields, strings.Join(have, " "), "%s: is the new field in Clone and in Canonical?", typ)
	}
}
