package powercut

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// unsyncedCuts is how many cuts may pass before a removed sync is noticed.
const unsyncedCuts = 4000

// removedSync takes one sync away: the disks say that they did it.
type removedSync struct {
	name  string
	lie   lie
	early bool   // the disks lie before the partitions are created, too
	why   string // it is not caught, and should not be
}

func syncOf(match func(name string) bool) lie {
	return func(op vfstest.Op) bool { return op.Call == vfstest.CallSync && match(op.Name) }
}

func syncDirOf(match func(name string) bool) lie {
	return func(op vfstest.Op) bool { return op.Call == vfstest.CallSyncDir && match(op.Name) }
}

func syncOfDisk(op vfstest.Op) bool { return op.Call == vfstest.CallSyncDisk }

func named(part string) func(string) bool {
	return func(name string) bool { return strings.HasSuffix(name, part) }
}

func folder(depth int) func(string) bool {
	return func(name string) bool {
		return strings.HasPrefix(name, "data/topics") && strings.Count(name, "/") == depth
	}
}

func removedSyncs() []removedSync {
	return []removedSync{
		{name: "no sync of any file", lie: syncOf(named(""))},
		{name: "no sync of any directory", lie: syncDirOf(named(""))},
		{name: "journal: a group's sync", lie: syncOf(named(".log"))},
		{name: "journal: the directory's sync", lie: syncDirOf(named("/journal"))},
		{name: "checkpoint: the segments' sync", lie: syncOf(named(".seg"))},
		{name: "checkpoint: the partition's directory", lie: syncDirOf(folder(3))},
		{name: "checkpoint: the channels' snapshot", lie: syncOf(named("channels.snap.tmp"))},
		{name: "checkpoint: its own file", lie: syncOf(named("/checkpoint.tmp"))},
		{name: "checkpoint: the rename", lie: syncDirOf(func(n string) bool { return path.Base(n) == "data" })},
		{name: "checkpoint: the sync of the whole disk", lie: syncOfDisk},
		{name: "create: the identity's sync", early: true, lie: syncOf(named("store.json.tmp"))},
		{name: "create: the topic's directory", early: true, lie: syncDirOf(folder(2))},
		{name: "create: the directory of topics", early: true, lie: syncDirOf(folder(1))},
		{name: "start: the directory above", early: true, lie: syncDirOf(named("."))},
		{name: "commit log: its sync", lie: syncOf(named(".idx")),
			why: "it is derived: a record that does not hold is read again from the segments"},
	}
}

// TestRemovedSyncs takes one sync away after the other. The checks must notice, by
// what was lost, that a power cut then takes what was promised; the sync itself
// is not looked at.
func TestRemovedSyncs(t *testing.T) {
	if testing.Short() {
		t.Skip("proves the checks, not the code; left out with -short")
	}
	score := map[bool]int{}
	for _, m := range removedSyncs() {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			cuts, err := survive(m, sequences(t, unsyncedCuts))
			score[err != nil]++
			if m.why != "" {
				require.NoError(t, err)
				t.Logf("not noticed in %d cuts, and should not be: %s", cuts, m.why)
				return
			}
			require.Error(t, err, "not noticed in %d cuts", cuts)
			require.NotContains(t, err.Error(), "stuck:", "a loss is told, not a silence")
			what, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("noticed at cut %d: %s", cuts, what)
		})
	}
	t.Logf("%d of %d removed syncs noticed, %d harmless", score[true], len(removedSyncs()), score[false])
}

// survive looks for a cut that shows that the sync is gone.
func survive(m removedSync, limit int) (cuts int, err error) {
	a := newTally()
	if m.why != "" {
		limit = min(limit, 2*perHistory)
	}
	for seed := uint64(1); err == nil && a.cuts < limit; seed++ {
		w := newWorld(seed, known{})
		if w.lie = m.lie; !m.early {
			w.lie = func(op vfstest.Op) bool { return w.founded && m.lie(op) }
		}
		err = run(w, seed, &a)
		cuts += w.outages
	}
	return cuts + a.cuts, err
}
