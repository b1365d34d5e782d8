package store

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestReadsAreShared: who reads where another has just read does not go to the
// disk.
func TestReadsAreShared(t *testing.T) {
	mem := vfs.NewMemory()
	s, _, batches := twoBatches(t, mem)
	require.NoError(t, s.Close())
	var reads atomic.Int64
	p := reopen(t, testOptions(vfs.Wrap(mem, func(op vfs.Op) error {
		if op.Call == vfs.CallRead {
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

// TestCutForgetsWhatWasRead: what lay behind the cut is not given any more.
func TestCutForgetsWhatWasRead(t *testing.T) {
	mem := vfs.NewMemory()
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

// TestRecentIsShort: one message here and one there, as a channel reads that is told
// to deliver again, do not make a list that every read has to go through.
func TestRecentIsShort(t *testing.T) {
	var r recent
	p := &Partition{}
	for i := range 20_000 {
		at := ident.Offset(i) * 200
		r.keep(run{p: p, batches: []queue.Batch{{At: ident.Position{Offset: at}, End: ident.Position{Offset: at + 200}}}})
	}
	require.LessOrEqual(t, len(r.mu.runs), 256)
}

// TestRecentIsBounded, over all partitions.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	one, other := &Partition{}, &Partition{}
	at := func(i int) queue.Batch {
		return queue.Batch{At: ident.Position{Offset: ident.Offset(i) * sharedLeast}, End: ident.Position{Offset: ident.Offset(i+1) * sharedLeast}}
	}
	for i := range 3 * sharedBytes / sharedLeast {
		r.keep(run{p: one, batches: []queue.Batch{at(i)}})
	}
	require.Len(t, r.mu.runs, sharedBytes/sharedLeast)
	require.Equal(t, sharedBytes, r.mu.bytes)
	r.keep(run{p: other, batches: []queue.Batch{at(0)}})
	require.Len(t, r.mu.runs, sharedBytes/sharedLeast)
	last := 3*sharedBytes/sharedLeast - 1
	require.Nil(t, r.find(one, 0, at(0).At.Offset, 1))
	require.NotNil(t, r.find(one, 0, at(last).At.Offset, 1))
	require.Nil(t, r.find(one, 1, at(last).At.Offset, 1), "the log was cut since")
	require.Nil(t, r.find(one, 0, at(last).At.Offset+1, 1), "no batch begins there")
	require.NotNil(t, r.find(other, 0, 0, 1))
}

// TestLargeBatchIsKept until something else is read: a batch of 5 MiB was read anew for
// each few messages of it.
func TestLargeBatchIsKept(t *testing.T) {
	var r recent
	p := &Partition{}
	at := func(from, to ident.Offset) queue.Batch {
		return queue.Batch{At: ident.Position{Offset: from}, End: ident.Position{Offset: to}}
	}
	r.keep(run{p: p, batches: []queue.Batch{at(0, 100)}})
	r.keep(run{p: p, batches: []queue.Batch{at(100, 2*sharedBytes)}})
	require.NotNil(t, r.find(p, 0, 100, 1))
	require.Len(t, r.mu.runs, 1)
	r.keep(run{p: p, batches: []queue.Batch{at(2*sharedBytes, 3*sharedBytes)}})
	require.Nil(t, r.find(p, 0, 100, 1))
	require.NotNil(t, r.find(p, 0, 2*sharedBytes, 1))
}
