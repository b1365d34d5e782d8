package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// inPhase makes the progress of a follower that was brought into a phase.
func inPhase(ph phase) *progress {
	p := newProgress("n2", ident.Position{Offset: 80}, 80, 1000, 200)
	switch ph {
	case probeRead:
		p.beginRead(7)
	case replicate:
		p.endProbe()
	case catchUp:
		p.endProbe()
		p.beginRead(7)
	}
	return &p
}

// transitions are the methods that change a follower's phase.
var transitions = map[string]func(*progress){
	"becomeProbe":   func(p *progress) { p.becomeProbe(ident.Position{Offset: 40}) },
	"refused":       func(p *progress) { p.probeBack(ident.Position{Offset: 40}, 1100) },
	"cameBack":      func(p *progress) { p.probeAgain(1100) },
	"answered":      func(p *progress) { p.endProbe() },
	"beginRead":     func(p *progress) { p.beginRead(8) },
	"endRead":       func(p *progress) { p.endRead() },
	"readFailed":    func(p *progress) { p.readFailed(1100) },
	"sentProbe":     func(p *progress) { p.sentProbe(80, 1100) },
	"sentAppend":    func(p *progress) { p.sentAppend(ident.Position{Offset: 160}, 1100) },
	"another store": func(p *progress) { p.noteSender(Peer{Node: "n2", Incarnation: 2, Store: 102}, 80, 1100) },
}

// impossible marks a transition that panics.
const impossible phase = 99

// TestPhases: each transition in each phase.
func TestPhases(t *testing.T) {
	for name, to := range map[string][4]phase{ // from probe, probeRead, replicate, catchUp
		"becomeProbe":   {probe, probe, probe, probe},
		"refused":       {probe, probe, probe, probe},
		"cameBack":      {probe, probe, probe, probe},
		"answered":      {replicate, catchUp, replicate, catchUp},
		"beginRead":     {probeRead, impossible, catchUp, impossible},
		"endRead":       {impossible, probe, impossible, replicate},
		"readFailed":    {impossible, probe, impossible, probe},
		"sentProbe":     {probe, impossible, impossible, impossible},
		"sentAppend":    {impossible, impossible, replicate, impossible},
		"another store": {probe, probe, replicate, replicate},
	} {
		for from := probe; from <= catchUp; from++ {
			p, want := inPhase(from), to[from]
			require.Equal(t, from, p.phase)
			if want == impossible {
				require.Panics(t, func() { transitions[name](p) }, "%s in phase %s", name, from)
				continue
			}
			transitions[name](p)
			require.Equal(t, want, p.phase, "%s in phase %s", name, from)
			require.Equal(t, p.reading(), p.readToken != 0, "%s in phase %s", name, from)
		}
	}
	require.Len(t, transitions, 10)
}

// TestStateCurrent: snapshots and deltas of the channel state, as one follower gets them.
func TestStateCurrent(t *testing.T) {
	p := inPhase(replicate)
	require.False(t, p.stateCurrent(0), "nothing was sent")
	p.sentSnapshot(3, 1000, 200)
	require.False(t, p.stateCurrent(3), "nothing is acknowledged")
	p.sentDelta(4)
	p.noteStateAck(3, 4, 1100)
	require.True(t, p.stateCurrent(4))
	require.False(t, p.stateCurrent(5), "version 5 was not sent")
	require.Panics(t, func() { p.sentDelta(6) }, "5 is missing")
	p.probeAgain(1200)
	require.Equal(t, uint64(3), p.state.sent, "what was not acknowledged may be lost")
}

// TestSnapshotsAreRepeatedEverLessOften: until one is acknowledged, up to a limit.
func TestSnapshotsAreRepeatedEverLessOften(t *testing.T) {
	p, now, waits := inPhase(replicate), int64(1000), []int64(nil)
	for range 7 {
		p.sentSnapshot(3, now, 200)
		sent := now
		for !p.snapshotDue(now, 200) {
			now += 10
		}
		waits = append(waits, now-sent)
	}
	require.Equal(t, []int64{200, 400, 800, 1600, 3200, 3200, 3200}, waits)
	p.noteStateAck(3, 3, now)
	require.True(t, p.snapshotDue(now+200, 200), "one has arrived")
}

// TestLag: the time since the last mark that is not acknowledged yet.
func TestLag(t *testing.T) {
	g := lag{mark: 100, sinceMS: 1000}
	g.advance(90, 500, 1200, 1000)
	require.Equal(t, lag{mark: 100, sinceMS: 1000}, g, "the mark is not reached")
	g.advance(100, 500, 1400, 1000)
	require.Equal(t, lag{mark: 500, sinceMS: 1400, keepsUp: true}, g)
	g.advance(500, 900, 1900, 1000)
	require.Equal(t, lag{mark: 900, sinceMS: 1900}, g, "half of T_isr is too late to keep up")
}

// TestCaughtUp: the log, the channel state and the committed end are acknowledged, and no probe is open.
func TestCaughtUp(t *testing.T) {
	at := ident.Position{Offset: 80}
	m := &Machine{lead: &leadership{stateIssued: 3}, committed: at}
	m.log.end = at
	for name, change := range map[string]func(p *progress){
		"": func(*progress) {}, "no answer": func(p *progress) { p.ack.valid = false }, "log": func(p *progress) { p.ack.end.Offset = 40 },
		"state": func(p *progress) { p.ack.state = 2 }, "committed end": func(p *progress) { p.committedAcked = 40 },
		"probe": func(p *progress) { p.becomeProbe(at) },
	} {
		p := inPhase(replicate)
		p.ack.valid, p.ack.end, p.ack.state, p.committedAcked = true, at, 3, at.Offset
		change(p)
		require.Equal(t, name == "", m.caughtUp(p), name)
	}
}
