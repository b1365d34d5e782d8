package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// recorder is a machine that writes all that is proposed, and the journal that gets it.
type recorder struct {
	groups  []int // puts of each proposal
	tokens  []uint64
	token   uint64
	behind  bool // puts are in flight
	slow    bool // so will be those that come
	changes int  // of channels, that are answered with the puts
	clock   time.Time
	loop    *loop
	host    *Partition
	kind    queue.WriteKind
	pace    *pace // of the loop
}

func (r *recorder) Step(ev replica.Event, out *replica.Effects) {
	if ev == committed {
		r.behind = false
		out.Done = make([]outcome.Completion, r.groups[len(r.groups)-1]+r.changes)
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

func (r *recorder) Queue(_ []store.Submission, _ store.Sink, token uint64) bool {
	r.tokens = append(r.tokens, token)
	return false
}

func (r *recorder) Flush() {}
func (r *recorder) Wake()  {}

func gathering() (*recorder, func(e event)) {
	r := &recorder{kind: queue.WriteAppend, pace: newPace(), clock: time.Now()}
	l := newLoop(&Options{Journal: r, Moved: func() {}, Reserve: &cluster{}}, nil, r.pace)
	p := &Partition{id: ident.Partition{Topic: 1}, loop: l}
	p.machine = r
	p.view.Store(&replica.View{})
	l.hosted[p.id] = p
	r.loop, r.host = l, p
	return r, func(e event) {
		l.now = r.clock
		l.nowMS = l.now.Sub(l.began).Milliseconds()
		e.id = p.id
		l.handle(&e)
		l.applyEffects()
	}
}

func putOf(bytes int) event {
	return event{kind: eventPut, draft: queue.Draft{Bytes: make([]byte, bytes), Count: 1}}
}

// TestPutsGatherWhileTheJournalSyncs: an uncontended put is proposed at once, those that
// come during its sync go together after it.
func TestPutsGatherWhileTheJournalSyncs(t *testing.T) {
	r, handle := gathering()
	for range 11 {
		handle(putOf(100))
	}
	require.Equal(t, []int{1}, r.groups)
	handle(event{kind: eventSynced, token: r.tokens[0]})
	require.Equal(t, []int{1, 10}, r.groups)
	require.Len(t, r.tokens, 2)
	handle(event{kind: eventSynced, token: r.tokens[1]})
	handle(putOf(100))
	require.Equal(t, []int{1, 10, 1}, r.groups)
}

// TestManyBytesDoNotWait: the followers' disks work.
func TestManyBytesDoNotWait(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	handle(putOf(eagerBytes / 2))
	require.Equal(t, []int{1}, r.groups)
	handle(putOf(eagerBytes / 2))
	require.Equal(t, []int{1, 2}, r.groups)
}

// TestPutsGatherWhileOthersAreCommitted: puts that come while the followers sync go in one
// append after them, unless they are many bytes.
func TestPutsGatherWhileOthersAreCommitted(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.behind = true
	handle(event{kind: eventSynced, token: r.tokens[0]})
	for range 10 {
		handle(putOf(100))
	}
	require.Equal(t, []int{1}, r.groups)
	r.behind = false
	handle(event{kind: eventStep, step: replica.Received{}})
	require.Equal(t, []int{1, 10}, r.groups)
	r.behind = true
	handle(event{kind: eventSynced, token: r.tokens[1]})
	handle(putOf(gatherBytes))
	require.Equal(t, []int{1, 10, 1}, r.groups)
}

// TestPutsDoNotWaitForAStalledCommit: after gatherFor the machine has them, which answers
// them in time when the replicas never do.
func TestPutsDoNotWaitForAStalledCommit(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.behind = true
	handle(event{kind: eventSynced, token: r.tokens[0]})
	handle(putOf(100))
	require.Equal(t, []int{1}, r.groups)
	r.clock = r.clock.Add(gatherFor)
	handle(event{kind: eventStep, step: replica.Received{}})
	require.Equal(t, []int{1, 1}, r.groups)
}

// committed answers the newest group.
var committed replica.Event = replica.Tick{NowMS: -1}

// round commits the newest group, after so long.
func (r *recorder) round(handle func(event), took time.Duration) {
	r.clock = r.host.window.proposed.Add(took)
	handle(event{kind: eventStep, step: committed})
}

// away: a group is written here and on its way to the others.
func (r *recorder) away(handle func(event)) {
	r.slow, r.behind = true, true
	handle(event{kind: eventSynced, token: r.tokens[len(r.tokens)-1]})
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

// TestChangesOpenNoWindow: finishes of an ordered channel are answered with an uncontended
// put. The next put is proposed at once.
func TestChangesOpenNoWindow(t *testing.T) {
	r, handle := gathering()
	r.changes = 5
	handle(putOf(100))
	r.away(handle)
	r.round(handle, time.Millisecond)
	handle(putOf(100))
	require.Equal(t, []int{1, 1}, r.groups)
}

// TestWindowIsShort: producers that do not come back are waited for no longer than three
// quarters of a round.
func TestWindowIsShort(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.away(handle)
	handle(putOf(100))
	handle(putOf(100))
	r.round(handle, 100*time.Microsecond)
	require.Equal(t, []*Partition{r.host}, r.loop.awaitWindow)
	wait.For(t, r.loop.windows.C, "the window's timer fires")
	r.loop.now = r.clock.Add(75 * time.Microsecond)
	r.loop.closeWindows()
	r.loop.applyEffects()
	require.Equal(t, []int{1, 2}, r.groups)
	require.Empty(t, r.loop.awaitWindow)
}

// TestPutsThatComeAnywayDoNotWait: producers that do not wait for answers put while other
// puts are in flight. Ever fewer groups wait.
func TestPutsThatComeAnywayDoNotWait(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	waited := 0
	for range 1000 {
		r.away(handle)
		handle(putOf(100))
		handle(putOf(100))
		r.round(handle, time.Millisecond)
		if r.host.awaitsWindow {
			waited++
			r.loop.now = r.clock.Add(time.Millisecond)
			r.loop.closeWindows()
			r.loop.applyEffects()
		}
	}
	require.Len(t, r.groups, 1001)
	require.LessOrEqual(t, waited, 30)
	require.Positive(t, waited, "it is never tried again")
}

// TestWindowIsFoundAgain: after an hour of those, four producers that wait for answers go
// together again.
func TestWindowIsFoundAgain(t *testing.T) {
	r, handle := gathering()
	r.host.window = window{backoff: backoffMost, skip: backoffMost, answered: 32, arrived: 32}
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

// BenchmarkTouch is a pass of the loop that changes no view: puts that gather, heartbeats,
// ticks.
func BenchmarkTouch(b *testing.B) {
	_, handle := gathering()
	heard := event{kind: eventStep, step: replica.Received{}}
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
// asked again five times a second, for days. The log has it occasionally.
func TestAlarmIsNotRepeated(t *testing.T) {
	r, handle := gathering()
	log, lines := test.NewNullLogger()
	r.loop.o.Log, r.loop.o.Events = log, events.New()
	a := &alarmist{err: errors.New("it conflicts at 80")}
	r.host.machine = a
	ask := func() { handle(event{kind: eventStep, step: replica.Tick{}}) }
	for range 100 {
		ask()
	}
	require.Len(t, lines.AllEntries(), 1)
	a.err = errors.New("it conflicts at 160")
	ask()
	first := errors.New("it conflicts at 80")
	for i := range 100 { // two requests that are refused in turn
		a.err = []error{first, errors.New("it conflicts at 160")}[i%2]
		ask()
	}
	require.Len(t, lines.AllEntries(), 2, "another one")
	list, _ := r.loop.o.Events.Since(time.Time{}, 10, func(e *events.Event) bool { return e.Code == events.ReplicaAlarm })
	require.Len(t, list, 2)
	require.Contains(t, list[0].Text, "it conflicts at 160")
	r.clock = r.clock.Add(alarmAgain)
	ask()
	require.Len(t, lines.AllEntries(), 3, "it is so still")
}

// TestFullTopicCarries: that makes room.
func TestFullTopicCarries(t *testing.T) {
	r, handle := gathering()
	r.host.ceiling.Store(1)
	done := make(single, 1)
	put := putOf(100)
	put.done = done
	handle(put)
	require.Equal(t, outcome.TopicFull, (<-done).Outcome)
	carry := putOf(100)
	carry.draft.Control, carry.done = queue.ControlRelocation, done
	handle(carry)
	require.Equal(t, []int{1}, r.groups)
}

// TestPutsThatGatherCount: for the topic's limit, and for the size of a group; and those
// that have waited for a sync wait for the next one, too.
func TestPutsThatGatherCount(t *testing.T) {
	r, handle := gathering()
	r.slow = true
	handle(putOf(100))
	r.host.ceiling.Store(150)
	handle(putOf(100))
	done := make(single, 1)
	third := putOf(100)
	third.done = done
	handle(third)
	require.Len(t, done, 1)
	require.Equal(t, outcome.TopicFull, (<-done).Outcome)

	r, _ = gathering()
	w := putOf(groupBytes * 2 / 3)
	w.id = r.host.id
	for range 2 {
		r.loop.handle(&w)
	}
	r.loop.applyEffects()
	require.Equal(t, []int{1, 1}, r.groups)

	r, handle = gathering()
	for n := range 3 {
		r.loop.token++ // another partition's
		r.loop.unsynced = append(r.loop.unsynced, submission{token: r.loop.token})
		handle(putOf(100))
		require.Len(t, r.groups, n)
		handle(event{kind: eventSynced, token: r.loop.token})
		require.Len(t, r.groups, n+1)
		handle(event{kind: eventSynced, token: r.tokens[n]})
	}
}
