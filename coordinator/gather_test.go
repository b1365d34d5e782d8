package coordinator

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/rpc"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// recorder is a machine that writes whatever is proposed, and the journal that
// gets it.
type recorder struct {
	groups  []int // puts of each proposal
	tokens  []uint64
	token   uint64
	behind  bool // what was proposed is not committed
	slow    bool // so is what will be
	changes int  // of channels, that are answered with the puts
	clock   time.Time
	loop    *loop
	host    *hosted
	kind    queue.WriteKind
	pace    *pace // of the loop
}

func (r *recorder) Step(ev replica.Event, out *replica.Effects) {
	if ev == committed {
		r.behind = false
		out.Done = make([]replica.Completion, r.groups[len(r.groups)-1]+r.changes)
	}
	if p, ok := ev.(replica.Propose); ok {
		r.groups = append(r.groups, len(p.Puts))
		r.behind = r.behind || r.slow
		r.token++
		out.Token = r.token
		out.Write = append(out.Write, queue.Write{Kind: r.kind})
	}
}

func (r *recorder) View() replica.View { return replica.View{} }
func (r *recorder) Idle() bool         { return true }
func (r *recorder) Committing() bool   { return r.behind }

func (r *recorder) Submit(_ []store.Submission, _ store.Sink, token uint64) {
	r.tokens = append(r.tokens, token)
}

func gathering() (*recorder, func(w work)) {
	r := &recorder{kind: queue.WriteAppend, pace: newPace(), clock: time.Now()}
	l := newLoop(&loop{journal: r, moved: newSignal(), space: &space{}, pace: r.pace})
	h := &hosted{id: ident.Partition{Topic: 1}, loop: l, machine: r, tickets: map[uint64]ticket{}}
	h.view.Store(&replica.View{})
	l.hosts[h.id] = h
	r.loop, r.host = l, h
	return r, func(w work) {
		l.now = r.clock
		l.nowMS = l.now.Sub(l.started).Milliseconds()
		w.id = h.id
		l.handle(&w)
		l.finish()
	}
}

func putOf(bytes int) work {
	return work{kind: workPropose, draft: queue.Draft{Bytes: make([]byte, bytes), Count: 1}}
}

// TestPutsGatherWhileTheJournalSyncs: a lone put goes at once, those that come
// during its sync go together after it.
func TestPutsGatherWhileTheJournalSyncs(t *testing.T) {
	r, handle := gathering()
	for range 11 {
		handle(putOf(100))
	}
	require.Equal(t, []int{1}, r.groups)
	handle(work{kind: workSynced, ticket: r.tokens[0]})
	require.Equal(t, []int{1, 10}, r.groups)
	require.Len(t, r.tokens, 2)
	handle(work{kind: workSynced, ticket: r.tokens[1]})
	handle(putOf(100))
	require.Equal(t, []int{1, 10, 1}, r.groups)
}

// TestManyBytesDoNotWait: the followers' disks work meanwhile.
func TestManyBytesDoNotWait(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	handle(putOf(eagerBytes / 2))
	require.Equal(t, []int{1}, r.groups)
	handle(putOf(eagerBytes / 2))
	require.Equal(t, []int{1, 2}, r.groups)
}

// TestPutsGatherWhileOthersAreCommitted: what comes while the followers sync
// goes in one append after them, unless there is much of it.
func TestPutsGatherWhileOthersAreCommitted(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.behind = true
	handle(work{kind: workSynced, ticket: r.tokens[0]})
	for range 10 {
		handle(putOf(100))
	}
	require.Equal(t, []int{1}, r.groups)
	r.behind = false
	handle(work{kind: workEvent, event: replica.Received{}})
	require.Equal(t, []int{1, 10}, r.groups)
	r.behind = true
	handle(work{kind: workSynced, ticket: r.tokens[1]})
	handle(putOf(gatherBytes))
	require.Equal(t, []int{1, 10, 1}, r.groups)
}

// TestPutsDoNotWaitForAStalledCommit: after gatherFor the machine has them,
// which answers them in time when the replicas never do.
func TestPutsDoNotWaitForAStalledCommit(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.behind = true
	handle(work{kind: workSynced, ticket: r.tokens[0]})
	handle(putOf(100))
	require.Equal(t, []int{1}, r.groups)
	r.clock = r.clock.Add(gatherFor)
	handle(work{kind: workEvent, event: replica.Received{}})
	require.Equal(t, []int{1, 1}, r.groups)
}

// committed answers the newest group.
var committed replica.Event = replica.Tick{NowMS: -1}

// round commits what was proposed last, after so long.
func (r *recorder) round(handle func(work), took time.Duration) {
	r.clock = r.host.company.since.Add(took)
	handle(work{kind: workEvent, event: committed})
}

// away: a group is written here and on its way to the others.
func (r *recorder) away(handle func(work)) {
	r.slow, r.behind = true, true
	handle(work{kind: workSynced, ticket: r.tokens[len(r.tokens)-1]})
}

// TestProducersThatWaitForAnswersShareGroups: of four, one put is being committed
// while the others gather. From then on all four go together, as each comes back
// after its answer: they are waited for.
func TestProducersThatWaitForAnswersShareGroups(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.away(handle)
	for range 3 {
		handle(putOf(100))
	}
	for range 10 {
		r.round(handle, time.Millisecond)
		for n := len(r.groups); len(r.groups) == n; {
			handle(putOf(100))
		}
		r.away(handle)
	}
	require.Equal(t, []int{1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, r.groups)
}

// TestChangesAreNoCompany: finishes of an ordered channel are answered with a lone
// put. The next put goes at once.
func TestChangesAreNoCompany(t *testing.T) {
	r, handle := gathering()
	r.changes = 5
	handle(putOf(100))
	r.away(handle)
	r.round(handle, time.Millisecond)
	handle(putOf(100))
	require.Equal(t, []int{1, 1}, r.groups)
}

// TestCompanyIsNotWaitedForLong: who does not come back is not missed for longer
// than three quarters of a round.
func TestCompanyIsNotWaitedForLong(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.away(handle)
	handle(putOf(100))
	handle(putOf(100))
	r.round(handle, 100*time.Microsecond)
	require.Equal(t, []*hosted{r.host}, r.loop.held)
	select {
	case <-r.loop.holding.C:
	case <-time.After(10 * time.Second):
		t.Fatal("forgotten")
	}
	r.loop.now = r.clock.Add(75 * time.Microsecond)
	r.loop.letGo()
	r.loop.finish()
	require.Equal(t, []int{1, 2}, r.groups)
	require.Empty(t, r.loop.held)
}

// TestPutsThatComeAnywayDoNotWait: producers that do not care for answers put while
// others' puts are being committed. Ever fewer groups wait.
func TestPutsThatComeAnywayDoNotWait(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	waited := 0
	for range 1000 {
		r.away(handle)
		handle(putOf(100))
		handle(putOf(100))
		r.round(handle, time.Millisecond)
		if r.host.held {
			waited++
			r.loop.now = r.clock.Add(time.Millisecond)
			r.loop.letGo()
			r.loop.finish()
		}
	}
	require.Len(t, r.groups, 1001)
	require.LessOrEqual(t, waited, 30)
	require.Positive(t, waited, "it is never tried again")
}

// TestCompanyIsFoundAgain: after an hour of those, four that wait for answers go
// together again.
func TestCompanyIsFoundAgain(t *testing.T) {
	r, handle := gathering()
	r.host.company = company{doubt: doubtMost, skip: doubtMost, answered: 32, gathered: 32}
	handle(putOf(100))
	for range 3 {
		handle(putOf(100))
	}
	for range 1000 {
		answered := r.groups[len(r.groups)-1]
		r.away(handle)
		r.round(handle, time.Millisecond)
		for range answered {
			handle(putOf(100))
		}
	}
	require.Equal(t, []int{4, 4, 4, 4}, r.groups[len(r.groups)-4:])
}

// BenchmarkTouch is a pass of the loop that moves nothing others may see: puts
// that gather, heartbeats, ticks.
func BenchmarkTouch(b *testing.B) {
	_, handle := gathering()
	heard := work{kind: workEvent, event: replica.Received{}}
	b.ReportAllocs()
	for b.Loop() {
		handle(heard)
	}
}

func BenchmarkMessage(b *testing.B) {
	m := wireMessage()
	f := received(b, encodeMessage(wirePartition, &replica.Envelope{Msg: m}))
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f := encodeMessage(wirePartition, &replica.Envelope{Msg: m})
			if _, err := rpc.Marshal(f.Header); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := decodeMessage(f); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// alarmist is a machine to which each event is an alarm.
type alarmist struct {
	recorder
	err error
}

func (a *alarmist) Step(_ replica.Event, out *replica.Effects) { out.Alarm = a.err }

// TestAlarmIsNotRepeated: a replica that is refused, as after an unclean recovery, is
// asked again five times a second, for days. The log says so now and then.
func TestAlarmIsNotRepeated(t *testing.T) {
	r, handle := gathering()
	log, lines := test.NewNullLogger()
	r.loop.log = log
	a := &alarmist{err: errors.New("it conflicts at 80")}
	r.host.machine = a
	ask := func() { handle(work{kind: workEvent, event: replica.Tick{}}) }
	for range 100 {
		ask()
	}
	require.Len(t, lines.AllEntries(), 1)
	a.err = errors.New("it conflicts at 160")
	ask()
	require.Len(t, lines.AllEntries(), 2, "another one")
	r.clock = r.clock.Add(alarmAgain)
	ask()
	require.Len(t, lines.AllEntries(), 3, "it is so still")
}
