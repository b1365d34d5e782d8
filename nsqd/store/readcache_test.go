package store

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestReadsAreShared: a read of a range that was just read does not reach the disk.
func TestReadsAreShared(t *testing.T) {
	mem := vfstest.NewMemory()
	s, _, batches := twoBatches(t, mem)
	require.NoError(t, s.Close())
	var reads atomic.Int64
	p := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if op.Call == vfstest.CallRead {
			reads.Add(1)
		}
		return nil
	}))).Partitions()[0]
	first, err := p.ReadAt(0, 1<<20)
	require.NoError(t, err)
	require.Len(t, first, 2)
	once := reads.Load()
	require.Positive(t, once)
	again, err := p.ReadSequence(0, 1<<20)
	require.NoError(t, err)
	require.Equal(t, first, again)
	second, err := p.ReadAt(batches[1].At.Offset, 1)
	require.NoError(t, err)
	require.Equal(t, first[1:], second)
	small, err := p.ReadAt(0, 1)
	require.NoError(t, err)
	require.Equal(t, first[:1], small)
	require.Equal(t, once, reads.Load())
}

// TestCutInvalidatesTheReadCache: batches behind a cut are not returned any more.
func TestCutInvalidatesTheReadCache(t *testing.T) {
	mem := vfstest.NewMemory()
	s, _, batches := twoBatches(t, mem)
	require.NoError(t, s.Close())
	s = reopen(t, testOptions(mem))
	p := s.Partitions()[0]
	b, err := p.ReadAt(0, 1<<20)
	require.NoError(t, err)
	require.Len(t, b, 2)
	kept := batches[0]
	p.Index().Truncate(kept.End.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, At: kept.End, PrevCRC: kept.CRC})
	m := &model{p: p, borders: []border{{}, {at: kept.End, crc: kept.CRC, time: kept.Time}}}
	rng := rand.New(rand.NewPCG(2, 2))
	other := m.batch(rng, m.draft(rng))
	submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{other}})
	var all []queue.Batch
	for at := ident.Offset(0); at < other.End.Offset; at = all[len(all)-1].End.Offset {
		b, err := p.ReadAt(at, 1<<20)
		require.NoError(t, err)
		require.NotEmpty(t, b)
		all = append(all, b...)
	}
	require.Len(t, all, 2)
	require.Equal(t, other.CRC, all[1].CRC)
}

// TestReadCacheIsShort: reads of single messages, as for redeliveries, do not fill a list that
// every read must search.
func TestReadCacheIsShort(t *testing.T) {
	var r readCache
	p := &Partition{}
	for i := range 20_000 {
		at := ident.Offset(i) * 200
		r.add(run{p: p, batches: []queue.Batch{{At: ident.Position{Offset: at}, End: ident.Position{Offset: at + 200}}}})
	}
	require.LessOrEqual(t, len(r.mu.runs), 256)
}

// TestReadCacheIsBounded: over all partitions.
func TestReadCacheIsBounded(t *testing.T) {
	var r readCache
	one, other := &Partition{}, &Partition{}
	at := func(i int) queue.Batch {
		return queue.Batch{At: ident.Position{Offset: ident.Offset(i) * minRunBytes}, End: ident.Position{Offset: ident.Offset(i+1) * minRunBytes}}
	}
	for i := range 3 * readCacheBytes / minRunBytes {
		r.add(run{p: one, batches: []queue.Batch{at(i)}})
	}
	require.Len(t, r.mu.runs, readCacheBytes/minRunBytes)
	require.Equal(t, readCacheBytes, r.mu.bytes)
	r.add(run{p: other, batches: []queue.Batch{at(0)}})
	require.Len(t, r.mu.runs, readCacheBytes/minRunBytes)
	last := 3*readCacheBytes/minRunBytes - 1
	require.Nil(t, r.find(one, 0, at(0).At.Offset, 1))
	require.NotNil(t, r.find(one, 0, at(last).At.Offset, 1))
	require.Nil(t, r.find(one, 1, at(last).At.Offset, 1), "the log was cut since")
	require.Nil(t, r.find(one, 0, at(last).At.Offset+1, 1), "no batch begins there")
	require.NotNil(t, r.find(other, 0, 0, 1))
}

// TestLargeBatchIsKept until another read: before, a batch of 5 MiB was read again for every few
// messages of it.
func TestLargeBatchIsKept(t *testing.T) {
	var r readCache
	p := &Partition{}
	at := func(from, to ident.Offset) queue.Batch {
		return queue.Batch{At: ident.Position{Offset: from}, End: ident.Position{Offset: to}}
	}
	r.add(run{p: p, batches: []queue.Batch{at(0, 100)}})
	r.add(run{p: p, batches: []queue.Batch{at(100, 2*readCacheBytes)}})
	require.NotNil(t, r.find(p, 0, 100, 1))
	require.Len(t, r.mu.runs, 1)
	r.add(run{p: p, batches: []queue.Batch{at(2*readCacheBytes, 3*readCacheBytes)}})
	require.Nil(t, r.find(p, 0, 100, 1))
	require.NotNil(t, r.find(p, 0, 2*readCacheBytes, 1))
}
