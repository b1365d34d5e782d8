package replicas

import (
	"fmt"
	"io"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// lone is a partition with one replica on a real store, whose machine the test steps: its monotonic time and
// its wall clock are the test's.
type lone struct {
	t       *testing.T
	fs      vfs.FS
	options replica.Options
	store   *store.Store
	st      *store.Partition
	m       *replica.Machine
	nowMS   int64
	wallMS  int64 // of the broker, by which its clock is wrong
	starts  int64
	ticket  uint64
}

func newLone(t *testing.T, o replica.Options) *lone {
	l := &lone{t: t, fs: vfstest.NewMemory(), options: o}
	l.start()
	t.Cleanup(func() { require.NoError(t, l.store.Close()) })
	return l
}

// start opens the store, and lets the machine lead. Its time restarts.
func (l *lone) start() {
	id := ident.Partition{Topic: 1}
	log := logrus.New()
	log.SetOutput(io.Discard)
	var err error
	l.store, err = store.Open(store.Options{FS: l.fs, Dir: "data", BootID: "boot", SegmentBytes: 64 << 10, JournalBytes: 1 << 20, Log: log})
	require.NoError(l.t, err)
	var ok bool
	if l.st, ok = l.store.Partition(id); !ok {
		l.st, err = l.store.Create("orders", id)
		require.NoError(l.t, err)
	}
	l.starts++
	o := l.options
	o.Partition, o.Check = id, true
	o.ISRMS, o.HoldMS, o.WriteMS, o.GraceMS, o.RetryMS, o.ElectionMS = 1000, 3000, 3000, 2000, 200, 50
	o.WindowBytes, o.GroupBytes, o.TailBytes, o.HeldBytes = 8<<20, 1<<20, 1<<20, 1<<20
	o.Self = replica.Peer{Node: "n1", Incarnation: ident.Incarnation(l.starts), Store: l.st.StoreID()}
	l.nowMS = 5000 * l.starts
	r := l.st.Restored()
	l.st.LoadIdentities(&r)
	l.m = replica.New(r, l.st.Index(), register{}, o)
	l.st.ReleaseRestored()
	l.step(replica.Tick{NowMS: l.nowMS})
	l.step(replica.Live{Node: "n1", Incarnation: o.Self.Incarnation})
	l.step(replica.PeerState{Node: "n1", Up: true})
	l.step(replica.Meta{State: metadata.PartitionState{
		V: metadata.Version, Revision: l.starts, Replicas: []ident.Node{"n1"}, ISR: []ident.Member{{Node: "n1", Store: l.st.StoreID()}},
		MinInSync: 1, Leader: "n1", LeaderIncarnation: o.Self.Incarnation, Epoch: ident.Epoch(l.starts),
	}})
	require.Equal(l.t, replica.Leader, l.m.View().Role)
}

// restart ends the process without a word, and starts another.
func (l *lone) restart() {
	require.NoError(l.t, l.store.Close())
	l.start()
}

func (l *lone) step(ev replica.Event) (done []outcome.Completion) {
	var out replica.Effects
	l.m.Step(ev, &out)
	if out.Token != 0 {
		sync := make(synced, 1)
		if l.store.Queue([]store.Submission{{Partition: l.st, Writes: out.Write}}, sync, out.Token) {
			l.store.Flush()
		}
		require.NoError(l.t, <-sync)
		return append(out.Done, l.step(replica.Synced{Token: out.Token})...)
	}
	return out.Done
}

type synced chan error

func (s synced) Synced(_ uint64, err error) { s <- err }

func (l *lone) pass(ms int64) {
	l.nowMS += ms
	l.step(replica.Tick{NowMS: l.nowMS})
}

// publish publishes messages with ids in one put, and gives the outcome.
func (l *lone) publish(ids ...string) outcome.Outcome {
	d := queue.NewDraft(0)
	for _, id := range ids {
		require.NoError(l.t, d.AddMessage(queue.Message{Identity: queue.IdentityOf([]byte(id))}))
	}
	l.ticket++
	request := ident.RequestID{Producer: uint64(l.starts), N: l.ticket}
	done := l.step(replica.Propose{TimeNS: (l.nowMS + l.wallMS) * 1e6, Puts: []replica.Put{{Ticket: l.ticket, Draft: d.Draft(request)}}})
	require.Len(l.t, done, 1)
	return done[0].Outcome
}

// trim is retention that removes all that it may.
func (l *lone) trim() {
	v := l.m.View()
	at := v.Committed
	if v.KeepsIdentified {
		at.Offset = min(at.Offset, v.IdentifiedFrom)
	}
	require.NoError(l.t, l.st.TrimHead(at))
}

type register struct{}

func (register) Snapshot() []byte { return nil }
func (register) Apply([]byte)     {}
func (register) Replace([]byte)   {}
func (register) Unlead()          {}

const hour = 3_600_000

// TestAWrongClockForgetsNoID: the clock of a broker jumps an hour ahead while it leads. It starts again while
// the clock is wrong, and once more when it is right: each message that is published again is recognised.
func TestAWrongClockForgetsNoID(t *testing.T) {
	l := newLone(t, replica.Options{DedupeMS: 120_000})
	var ids []string
	put := func() {
		t.Helper()
		for range 20 {
			ids = append(ids, fmt.Sprint(len(ids)))
			require.Equal(t, outcome.Committed, l.publish(ids[len(ids)-1]))
			l.pass(100)
		}
	}
	again := func(what string) {
		t.Helper()
		for _, id := range ids {
			require.Equal(t, outcome.Repeated, l.publish(id), "%s: %s", what, id)
		}
	}
	put()
	l.wallMS = hour
	put()
	l.restart()
	again("started while the clock is ahead")
	put()
	l.wallMS = -hour
	l.restart()
	again("started while the clock is behind")
	put()
	l.wallMS = 0
	l.restart()
	l.trim()
	again("the clock is right")
}

// TestIDsAfterARestartAtTheDocumentedRate: none is refused, none is in doubt, and none is forgotten early. The
// bound is that of the documented rate, both divided by 100.
func TestIDsAfterARestartAtTheDocumentedRate(t *testing.T) {
	const rate = 87
	l := newLone(t, replica.Options{DedupeMS: 120_000, Identities: dedupe.DefaultIdentities / 100})
	second := 0
	name := func(second, n int) string { return fmt.Sprint(second, " ", n) }
	run := func(seconds int) {
		t.Helper()
		for range seconds {
			var ids []string
			for n := range rate {
				ids = append(ids, name(second, n))
			}
			require.Equal(t, outcome.Committed, l.publish(ids...), "second %d", second)
			second++
			l.pass(1000)
			l.trim()
		}
	}
	run(300)
	for range 3 {
		l.restart()
		require.Equal(t, outcome.Repeated, l.publish(name(second-119, 0)), "almost a window ago")
		run(150)
	}
}

// TestALongerWindowAfterARestart: the messages that the shorter window forgot may be in the log. They are in
// doubt until the longer one has passed, however often the broker starts; the restarts alone cause no doubt.
func TestALongerWindowAfterARestart(t *testing.T) {
	l := newLone(t, replica.Options{DedupeMS: 60_000})
	require.Equal(t, outcome.Committed, l.publish("x"))
	l.pass(73_000)
	require.Equal(t, outcome.Committed, l.publish("y"))
	l.restart()
	require.Equal(t, outcome.Committed, l.publish("z"), "no doubt without a change")
	l.options.DedupeMS = hour
	l.restart()
	require.Equal(t, outcome.BelowWindow, l.publish("x"))
	require.Equal(t, outcome.Repeated, l.publish("y"))
	l.pass(hour - 75_000)
	require.Equal(t, outcome.BelowWindow, l.publish("x"))
	l.restart()
	require.Equal(t, outcome.Repeated, l.publish("z"))
	l.pass(hour)
	require.Equal(t, outcome.Committed, l.publish("x"))
}

// TestAnIdlePartitionIsNotInDoubt: its window is empty, and retention has removed all of it. It starts again
// without the time that it was idle, and takes new messages at once.
func TestAnIdlePartitionIsNotInDoubt(t *testing.T) {
	l := newLone(t, replica.Options{DedupeMS: 60_000})
	for n := range 2000 {
		require.Equal(t, outcome.Committed, l.publish(fmt.Sprint(n)))
	}
	l.pass(61_000)
	l.trim()
	require.NotZero(t, l.st.Start().Offset)
	l.restart()
	require.Equal(t, outcome.Committed, l.publish("new"))
	require.Equal(t, outcome.Committed, l.publish("0"), "its window has passed")
}
