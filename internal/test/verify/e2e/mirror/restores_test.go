package mirror

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// restorable is a side of one broker with a copy of its data path, as a backup has it (docs/operations/changes.md), and what its topic has.
type restorable struct {
	*e2etest.Cluster
	has, had []string // bodies: now, and in the copy
	own      int      // messages published here so far
}

func newRestorable(t *testing.T) *restorable { return &restorable{Cluster: e2etest.Start(t, 1)} }

func (r *restorable) copyDir() string { return r.Brokers[0].DataDir + ".copy" }

// publish publishes messages, each with a body of its own.
func (r *restorable) publish(prefix string, n int) {
	r.T.Helper()
	for range n {
		body := fmt.Sprintf("%s%d", prefix, r.own)
		r.own++
		require.True(r.T, publish(r.Cluster, "orders", body))
		r.has = append(r.has, body)
	}
}

// while does something to the files of the broker, which does not run in the meantime.
func (r *restorable) while(what func()) {
	r.T.Helper()
	r.Crash("n1")
	what()
	r.Restart("n1")
	r.Back()
}

// backUp makes a copy.
func (r *restorable) backUp() {
	r.while(func() {
		require.NoError(r.T, os.RemoveAll(r.copyDir()))
		require.NoError(r.T, exec.Command("cp", "-a", r.Brokers[0].DataDir, r.copyDir()).Run())
	})
	r.had = slices.Clone(r.has)
}

// restore goes back to the copy.
func (r *restorable) restore() {
	r.while(func() {
		require.NoError(r.T, os.RemoveAll(r.Brokers[0].DataDir))
		require.NoError(r.T, exec.Command("cp", "-a", r.copyDir(), r.Brokers[0].DataDir).Run())
	})
	r.has = slices.Clone(r.had)
}

// receives adds copies of those messages that are not there yet.
func (r *restorable) receives(bodies []string) {
	for _, body := range bodies {
		if !slices.Contains(r.has, body) {
			r.has = append(r.has, body)
		}
	}
}

// bodies are those of the topic, sorted.
func (r *restorable) bodies() (all []string) {
	for _, m := range r.PeekAll("orders") {
		if m.Body != "" { // an empty log is an object without one
			all = append(all, m.Body)
		}
	}
	slices.Sort(all)
	return all
}

// requireEach requires that the topic has each message once.
func (r *restorable) requireEach(what string) {
	r.T.Helper()
	want := slices.Sorted(slices.Values(r.has))
	deadline := time.Now().Add(e2etest.WaitLimit)
	for len(r.bodies()) < len(want) && time.Now().Before(deadline) {
		e2etest.Pause(e2etest.PollEvery)
	}
	require.Equal(r.T, want, r.bodies(), what)
}

// sides are a source and a target that have a topic of two partitions with a channel, and a first copy of each.
func sides(t *testing.T) (east, west *restorable) {
	e2etest.Processes(t)
	east, west = newRestorable(t), newRestorable(t)
	for _, side := range []*restorable{east, west} {
		side.Create("orders", "billing", 2)
	}
	return east, west
}

// steps is how many steps a walk has: LOCKSTEP_STEPS, 12 or, in the long form, 60.
func steps(t *testing.T) (int, *rand.Rand) {
	seed := env.Number(t, "LOCKSTEP_SEED", uint64(time.Now().Unix()))
	t.Logf("seed %d", seed)
	return env.Number(t, "LOCKSTEP_STEPS", e2etest.Rounds(12, 60)), rand.New(rand.NewPCG(seed, 0))
}

// TestMirrorThroughRestores: while a mirror runs, either side goes back to an old copy, as often as chance has it, and is published to
// in the meantime; the mirror is killed, and loses its state. After each step the target has each message once that the source has,
// and each that it had. The channel delivers all of them.
func TestMirrorThroughRestores(t *testing.T) {
	t.Parallel()
	east, west := sides(t)
	state := filepath.Join(t.TempDir(), "state")
	flags := []string{"--poll=100ms", "--batch=7"}
	run := func() *mirrored {
		return startMirror(t, east.Cluster, west.Cluster, "orders", append(flags, "--state="+state)...)
	}
	m := run()
	t.Cleanup(func() {
		if _ = m.end(syscall.SIGKILL); t.Failed() {
			t.Log(m.out.String())
		}
	})
	settled := func(what string) {
		t.Helper()
		west.receives(east.has)
		west.requireEach(what)
		east.requireEach(what)
	}
	east.publish("a", 20)
	settled("at first")
	east.backUp()
	west.backUp()
	counts := map[string]int{}
	n, random := steps(t)
	for i := range n {
		var what string
		switch random.IntN(9) {
		case 0, 1:
			what = "the source went back"
			east.restore()
		case 2, 3:
			what = "the target went back"
			west.restore()
		case 4:
			what = "both went back"
			east.restore()
			west.restore()
		case 5:
			what = "the mirror was killed"
			_ = m.end(syscall.SIGKILL)
			if random.IntN(2) == 0 {
				what = "the mirror lost its state"
				require.NoError(t, os.RemoveAll(state))
			}
			m = run()
		case 6:
			what = "a copy of the source"
			east.backUp()
		case 7:
			what = "a copy of the target"
			west.backUp()
		case 8:
			what = "nothing happened"
		}
		counts[what]++
		t.Logf("step %d: %s; %d at the source, %d at the target", i, what, len(east.has), len(west.has))
		// By chance a mirror sees the loss first, or the messages in its place.
		east.publish("a", random.IntN(25))
		if random.IntN(4) == 0 {
			west.publish("own", random.IntN(5))
		}
		settled(fmt.Sprintf("step %d: %s", i, what))
	}
	t.Logf("%v: %d messages published at the source, which has %d; the target has %d", counts, east.own, len(east.has), len(west.has))
	require.NoError(t, m.end(syscall.SIGTERM), m.out.String())
	requireDelivered(t, west)
}

// requireDelivered requires that a channel whose messages nobody has finished delivers each.
func requireDelivered(t *testing.T, side *restorable) {
	t.Helper()
	got := side.ConsumeFrom("orders", "billing", len(side.has), 1_000_000, func(string) time.Duration { return 0 })
	slices.Sort(got)
	require.Equal(t, slices.Sorted(slices.Values(side.has)), slices.Compact(got))
}

// TestImportsThroughRestores: streams of a source that goes back are imported into a target that goes back, each as often as
// chance has it, also old ones again, and imports are killed. The target has each message of the streams once.
func TestImportsThroughRestores(t *testing.T) {
	t.Parallel()
	east, west := sides(t)
	type stream struct {
		file string
		has  []string
	}
	var streams []stream
	export := func() {
		s := stream{filepath.Join(t.TempDir(), fmt.Sprintf("%d.lsx", len(streams))), slices.Clone(east.has)}
		out, problems, err := east.Ctl("export", "orders", "--file", s.file)
		require.NoError(t, err, out+problems)
		streams = append(streams, s)
	}
	east.publish("a", 20)
	export()
	east.backUp()
	west.backUp()
	counts := map[string]int{}
	n, random := steps(t)
	for i := range n {
		var what string
		switch random.IntN(8) {
		case 0:
			what = "the source went back"
			east.restore()
		case 1:
			what = "the target went back"
			west.restore()
		case 2:
			what = "a copy of a side"
			[]*restorable{east, west}[random.IntN(2)].backUp()
		case 3, 4:
			what = "an export"
			east.publish("a", random.IntN(25))
			export()
		default:
			s := streams[random.IntN(len(streams))]
			if random.IntN(3) == 0 {
				what = "an import that was killed, "
				cmd := exec.CommandContext(t.Context(), e2etest.Built.Path("nsqctl"), append([]string{"import", s.file, "--batch=3", "--max-rate=100"}, west.Addresses()...)...)
				require.NoError(t, cmd.Start())
				e2etest.Pause(time.Duration(random.IntN(300)) * time.Millisecond)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			what += "an import"
			out, problems, err := west.Ctl("import", s.file, "--batch=7")
			require.NoError(t, err, strings.Join([]string{what, out, problems}, "\n"))
			west.receives(s.has)
		}
		counts[what]++
		if random.IntN(4) == 0 {
			west.publish("own", random.IntN(5))
		}
		west.requireEach(fmt.Sprintf("step %d: %s", i, what))
	}
	t.Logf("%v: %d messages in %d streams; the target has %d", counts, east.own, len(streams), len(west.has))
	requireDelivered(t, west)
}
