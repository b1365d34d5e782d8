package store

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// seeds are the seeds of the histories: in a long run LOCKSTEP_SEQUENCES of them, from
// LOCKSTEP_SEED on.
func seeds(t *testing.T, otherwise uint64) iter.Seq[uint64] {
	t.Helper()
	first, n := env.Number(t, "LOCKSTEP_SEED", uint64(0)), env.Number(t, "LOCKSTEP_SEQUENCES", otherwise)
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+n && yield(seed); seed++ {
		}
	}
}

// TestRandomCallsFail is TestEveryCallFails with one call of each of many
// histories. A short write ends in the middle of a sector.
func TestRandomCallsFail(t *testing.T) {
	faults := []error{syscall.EIO, syscall.ENOSPC, vfstest.ErrShort}
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		failOnce(t, 1000+seed, 10+rng.IntN(20), 1+rng.Int64N(400), faults[seed%3])
	}
}

// decay is a fault of a directory that no process uses, without an error. vfstest.Memory.CrashClone
// covers renames that a power cut loses.
var decay = map[string]func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory){
	"bit flip": func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) {
		name, size := anyFile(t, rng, mem)
		require.NoError(t, mem.Flip(name, rng.Int64N(size), uint8(rng.IntN(8))))
	},
	"torn sector": func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) {
		name, size := anyFile(t, rng, mem)
		f, err := mem.Open(name)
		require.NoError(t, err)
		at := rng.Int64N(size) / vfs.SectorBytes * vfs.SectorBytes
		_, err = f.WriteAt(make([]byte, min(vfs.SectorBytes/2, size-at)), at)
		require.NoError(t, err)
	},
	"truncated file": func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) {
		name, size := anyFile(t, rng, mem)
		if path.Dir(name) == "data/journal" {
			return // see TestDecayOfAKilledStore
		}
		f, err := mem.Open(name)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(rng.Int64N(size)))
	},
}

// anyFile chooses a file that is not empty.
func anyFile(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) (name string, size int64) {
	t.Helper()
	var files []string
	var walk func(dir string)
	walk = func(dir string) {
		names, err := mem.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			st, err := mem.Stat(path.Join(dir, name))
			require.NoError(t, err)
			if st.Dir {
				walk(path.Join(dir, name))
			} else if st.Size > 0 {
				files = append(files, path.Join(dir, name))
			}
		}
	}
	walk("data")
	name = files[rng.IntN(len(files))]
	st, err := mem.Stat(name)
	require.NoError(t, err)
	return name, st.Size
}

// journalDecay is a fault at the end of a journal whose acknowledgement record is intact.
var journalDecay = map[string]func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory){
	"bit flip":    decay["bit flip"],
	"torn sector": decay["torn sector"],
	"lost writes": func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) {
		harmJournal(t, mem, func(f vfs.File, size int64) error {
			at := rng.Int64N(size) / vfs.SectorBytes * vfs.SectorBytes
			_, err := f.WriteAt(make([]byte, size-at), at)
			return err
		})
	},
	"truncated journal": func(t *testing.T, rng *rand.Rand, mem *vfstest.Memory) {
		harmJournal(t, mem, func(f vfs.File, size int64) error { return f.Truncate(rng.Int64N(size)) })
	},
}

// harmJournal harms the newest file of the journal.
func harmJournal(t *testing.T, mem *vfstest.Memory, harm func(f vfs.File, size int64) error) {
	name := newestJournalFile(t, mem)
	if name == "" {
		return // nothing was written yet
	}
	f, err := mem.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	require.NoError(t, harm(f, size))
}

// TestDecayOfAKilledStore is TestDecay for a store whose last groups wait for the replay, and whose
// acknowledgement record is exact: even the loss of the last group must change the store id.
func TestDecayOfAKilledStore(t *testing.T) {
	for what, harm := range journalDecay {
		for seed := range seeds(t, 20) {
			rng := rand.New(rand.NewPCG(seed, 13))
			mem := vfstest.NewMemory()
			w, err := newWorld(t, 7000+seed, mem)
			require.NoError(t, err)
			require.NoError(t, w.run(5+rng.IntN(30)))
			wait.Until(t, func() bool {
				group, err := journal.Acknowledged(mem, "data/journal")
				return err == nil && group == w.store.journal.Mark().Group
			}, "the acknowledgement record is exact")
			ids, left := storeIDs(w), killed(mem)
			require.NoError(t, w.store.Close())
			harm(t, rng, left)
			name := fmt.Sprintf("%s, seed %d", what, seed)
			s, err := Open(testOptions(left))
			require.NoError(t, err, name)
			for i, p := range s.Partitions() {
				trusted := p.StoreID() == ids[i]
				require.True(t, !trusted || endsAt(p, w.models[i].end()), "%s: acknowledged up to %+v, here %+v, and still under the old store id", name, w.models[i].end().at, p.Restored().End)
				w.models[i].judge(t, p, trusted, name)
			}
			require.NoError(t, s.Close(), name)
		}
	}
}

// TestDecay: after any decay a directory opens, and nothing is served that was not written at that
// place. Missing data is either reported in a log that has its length and its store id, or the
// store id is new. One case cannot be distinguished: the last group of the journal, if nothing was
// written after it, may be torn or decayed.
func TestDecay(t *testing.T) {
	for what, harm := range decay {
		for seed := range seeds(t, 20) {
			rng := rand.New(rand.NewPCG(seed, 12))
			mem := vfstest.NewMemory()
			w, err := newWorld(t, 5000+seed, mem)
			require.NoError(t, err)
			require.NoError(t, w.run(5+rng.IntN(30)))
			before := w.submitted()
			w.step()
			require.NoError(t, w.settle()) // it is the only submission in the journal's last group
			ids := storeIDs(w)
			left := mem
			if rng.IntN(2) == 0 { // with a journal to replay, or without
				left = mem.CrashClone(rng)
			}
			require.NoError(t, w.store.Close())
			harm(t, rng, left)
			name := fmt.Sprintf("%s, seed %d", what, seed)
			s, err := Open(testOptions(left))
			require.NoError(t, err, name)
			for i, p := range s.Partitions() {
				trusted := p.StoreID() == ids[i]
				if trusted && !endsAt(p, w.models[i].end()) {
					require.True(t, endsAt(p, w.history[before][i].end), "%s: more than the last group is missing", name)
					trusted = false
				}
				w.models[i].judge(t, p, trusted, name)
			}
			require.NoError(t, s.Close(), name)
		}
	}
}

// endsAt also compares the newest batch: a marker in the place of another one has the same end.
func endsAt(p *Partition, e border) bool {
	r := p.Restored()
	return r.End == e.at && r.LastCRC == e.crc
}

// judge reads everything readable. trusted: the store reports no other loss than the ranges it
// names. Segments that retention removed after the checkpoint may be back, since the journal still
// had the batches; batches that were cut may not.
func (m *model) judge(t *testing.T, p *Partition, trusted bool, name string) {
	t.Helper()
	chain := map[border]bool{}
	for _, b := range slices.Concat(m.trimmed, m.borders) {
		chain[b] = true
	}
	end := p.Restored().End
	for at := p.Start().Offset; at < end.Offset; {
		batches, err := p.ReadAt(at, 5000)
		var d *queue.Damage
		if errors.As(err, &d) {
			at = max(d.To, at+1)
			continue
		}
		require.NoError(t, err, name)
		if len(batches) == 0 {
			require.False(t, trusted, "%s: nothing at %d, and it is not named", name, at)
			return
		}
		for _, b := range batches {
			require.True(t, m.sent[b.CRC], "%s: a batch that was never written, at %+v", name, b.At)
			require.True(t, !trusted || chain[border{b.End, b.CRC, b.Time}], "%s: a batch that was cut is back, at %+v", name, b.At)
			at = b.End.Offset
		}
	}
}
