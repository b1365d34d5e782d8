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

	"github.com/lockstepmq/lockstep/internal/testenv"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// seeds are the histories that are tried: in a long run LOCKSTEP_SEQUENCES of
// them, from LOCKSTEP_SEED on.
func seeds(t *testing.T, otherwise uint64) iter.Seq[uint64] {
	t.Helper()
	first, n := testenv.Number(t, "LOCKSTEP_SEED", uint64(0)), testenv.Number(t, "LOCKSTEP_SEQUENCES", otherwise)
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+n && yield(seed); seed++ {
		}
	}
}

// TestRandomCallsFail is TestEveryCallFails with one call of each of many
// histories. A short write ends in the middle of a sector.
func TestRandomCallsFail(t *testing.T) {
	faults := []error{syscall.EIO, syscall.ENOSPC, vfs.ErrShort}
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		failOnce(t, 1000+seed, 10+rng.IntN(20), 1+rng.Int64N(400), faults[seed%3])
	}
}

// decay is what happens to a directory that no process uses, without an error.
// Renames that a power cut loses: vfs.Memory.CrashClone.
var decay = map[string]func(t *testing.T, rng *rand.Rand, mem *vfs.Memory){
	"bit flip": func(t *testing.T, rng *rand.Rand, mem *vfs.Memory) {
		name, size := anyFile(t, rng, mem)
		require.NoError(t, mem.Flip(name, rng.Int64N(size), uint8(rng.IntN(8))))
	},
	"torn sector": func(t *testing.T, rng *rand.Rand, mem *vfs.Memory) {
		name, size := anyFile(t, rng, mem)
		f, err := mem.Open(name)
		require.NoError(t, err)
		at := rng.Int64N(size) / vfs.SectorBytes * vfs.SectorBytes
		_, err = f.WriteAt(make([]byte, min(vfs.SectorBytes/2, size-at)), at)
		require.NoError(t, err)
	},
	"truncated file": func(t *testing.T, rng *rand.Rand, mem *vfs.Memory) {
		name, size := anyFile(t, rng, mem)
		if path.Dir(name) == "data/journal" {
			return // a journal cut short behind a whole group looks like one that ends there
		}
		f, err := mem.Open(name)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(rng.Int64N(size)))
	},
}

// anyFile chooses a file that is not empty.
func anyFile(t *testing.T, rng *rand.Rand, mem *vfs.Memory) (name string, size int64) {
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

// TestDecay: whatever became of a directory, it opens, nothing is served that
// was not written at that place, and what is missing is either named in a log
// that has its length and its store id, or the store id is another one. One
// thing cannot be told: the journal's last group, if nothing was written after
// it, may have been torn as well as decayed.
func TestDecay(t *testing.T) {
	for what, harm := range decay {
		for seed := range seeds(t, 20) {
			rng := rand.New(rand.NewPCG(seed, 12))
			mem := vfs.NewMemory()
			w, err := newWorld(t, 5000+seed, mem)
			require.NoError(t, err)
			require.NoError(t, w.run(5+rng.IntN(30)))
			before := w.submitted()
			w.step()
			require.NoError(t, w.settle()) // alone in the journal's last group
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

// endsAt compares the newest batch too: a marker in the place of another one ends
// where that did.
func endsAt(p *Partition, e border) bool {
	r := p.Restored()
	return r.End == e.at && r.LastCRC == e.crc
}

// judge reads what can be read. trusted: the store says that nothing is missing
// but what it names. What retention took after the checkpoint may be back, since
// the journal still had it; what was cut may not.
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
			require.True(t, m.sent[b.CRC], "%s: a batch that nobody wrote, at %+v", name, b.At)
			require.True(t, !trusted || chain[border{b.End, b.CRC, b.Time}], "%s: a batch that was cut is back, at %+v", name, b.At)
			at = b.End.Offset
		}
	}
}
