package store

import (
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// longLog is a store with one partition whose segments are only on the disk, and its batches as a
// replica would send them.
func longLog(t *testing.T) (*vfstest.Memory, *Partition, []queue.Batch) {
	t.Helper()
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(mem))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	w := &world{t: t, rng: rand.New(rand.NewPCG(5, 5)), store: s, models: []*model{{p: p, borders: []border{{}}}}}
	w.cond.L = &w.mu
	w.note()
	var sent []queue.Batch
	for p.segments.bytes() < 4*testOptions(mem).SegmentBytes {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: make([]byte, 500+w.rng.IntN(1000))})
		b := w.models[0].batch(w.rng, d.Draft(ident.RequestID{Producer: 7, N: uint64(len(sent) + 1)}))
		sent = append(sent, b)
		w.note()
		s.Submit([]Submission{{p, []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, w, uint64(w.submitted()))
		require.NoError(t, w.settle())
		require.NoError(t, s.Checkpoint())
	}
	require.NoError(t, s.Close())
	return mem, reopen(t, testOptions(mem)).Partitions()[0], sent
}

func (p *Partition) fileOf(t *testing.T, b queue.Batch) (name string, at int64) {
	t.Helper()
	base, ok := p.segments.base(b.At.Offset)
	require.True(t, ok)
	return p.segments.name(base), int64(b.At.Offset - base)
}

// repairAll reads the log from the start and repairs damaged ranges with the sent batches. It
// returns the number of repairs.
func repairAll(t *testing.T, p *Partition, sent []queue.Batch) (times int) {
	t.Helper()
	for i := 0; i < len(sent); {
		got, err := p.ReadAt(sent[i].At.Offset, 10_000)
		if err == nil {
			require.NotEmpty(t, got)
			for _, b := range got {
				require.Equal(t, sent[i].CRC, b.CRC)
				i++
			}
			continue
		}
		damaged := p.Damaged()
		require.NotEmpty(t, damaged)
		require.LessOrEqual(t, damaged[0].From, sent[i].At.Offset)
		for sent[i].At.Offset > damaged[0].From {
			i--
		}
		times++
		repairedTo, err := p.Repair(sent[i:min(i+20, len(sent))])
		require.NoError(t, err)
		require.Greater(t, repairedTo, sent[i].At.Offset)
	}
	require.Empty(t, p.Damaged())
	return times
}

// TestRepair: after any damage of old segments, another replica's batches restore them, and a
// restart finds them restored.
func TestRepair(t *testing.T) {
	decay := map[string]func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch){
		"header": func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch) {
			name, at := p.fileOf(t, b)
			require.NoError(t, mem.Flip(name, at+9, 3))
		},
		"payload": func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch) {
			name, at := p.fileOf(t, b)
			require.NoError(t, mem.Flip(name, at+queue.HeaderSize+1, 3))
		},
		"cut short": func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch) {
			name, at := p.fileOf(t, b)
			f, err := mem.Open(name)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(at+100))
		},
		"emptied": func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch) {
			name, _ := p.fileOf(t, b)
			_, err := mem.Create(name)
			require.NoError(t, err)
		},
		"removed": func(t *testing.T, mem *vfstest.Memory, p *Partition, b queue.Batch) {
			name, _ := p.fileOf(t, b)
			require.NoError(t, mem.Remove(name))
		},
	}
	for what, harm := range decay {
		for _, restarted := range []bool{false, true} {
			if what == "removed" && !restarted { // an open file is not removed
				continue
			}
			t.Run(what, func(t *testing.T) {
				mem, p, sent := longLog(t)
				harm(t, mem, p, sent[len(sent)/2])
				harm(t, mem, p, sent[len(sent)/3])
				if restarted {
					require.NoError(t, p.store.Close())
					p = reopen(t, testOptions(mem)).Partitions()[0]
				}
				id := p.StoreID()
				require.Positive(t, repairAll(t, p, sent))
				left := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
				again := reopen(t, testOptions(left)).Partitions()[0]
				require.Equal(t, id, again.StoreID())
				require.Zero(t, repairAll(t, again, sent), "a power cut undid a repair")
			})
		}
	}
}

// TestRetentionAfterDamage: the header at the new start is damaged. The commit log has the start's sequence and checksum.
func TestRetentionAfterDamage(t *testing.T) {
	mem, p, sent := longLog(t)
	head, ok := p.HeadEnd()
	require.True(t, ok)
	at := slices.IndexFunc(sent, func(b queue.Batch) bool { return b.At.Offset == head })
	name, in := p.fileOf(t, sent[at])
	require.NoError(t, mem.Flip(name, in+9, 3))
	require.NoError(t, p.TrimHead(sent[at].At))
	require.Equal(t, sent[at].At, p.Start())
	require.Equal(t, sent[at].PrevCRC, p.durable.startCRC)
	require.Equal(t, head, p.segments.bases()[0])
}

// TestLostIndexAndDamage: the index is rebuilt on both sides of a header that cannot be read.
func TestLostIndexAndDamage(t *testing.T) {
	mem, p, sent := longLog(t)
	head, ok := p.HeadEnd()
	require.True(t, ok)
	at := slices.IndexFunc(sent, func(b queue.Batch) bool { return b.At.Offset == head })
	name, in := p.fileOf(t, sent[at])
	require.NoError(t, p.store.Close())
	require.NoError(t, mem.Flip(name, in+9, 3))
	names, err := mem.List(p.dir)
	require.NoError(t, err)
	for _, name := range names {
		if path.Ext(name) == ".idx" {
			require.NoError(t, mem.Remove(path.Join(p.dir, name)))
		}
	}
	index := reopen(t, testOptions(mem)).Partitions()[0].Index()
	for _, b := range []queue.Batch{sent[0], sent[at-1], sent[len(sent)-1]} {
		r, ok := index.AtOffset(b.At.Offset)
		require.True(t, ok)
		require.Equal(t, b.Record(), r)
	}
	_, ok = index.AtOffset(sent[at].At.Offset)
	require.False(t, ok)
}

// TestUnprovenBytesAreRefused: whole batches other than the original ones repair nothing.
func TestUnprovenBytesAreRefused(t *testing.T) {
	mem, p, sent := longLog(t)
	i := len(sent) / 2
	name, at := p.fileOf(t, sent[i])
	require.NoError(t, mem.Flip(name, at+queue.HeaderSize+1, 3))
	_, err := p.ReadAt(sent[i].At.Offset, 1)
	require.Error(t, err)
	other := func(prev uint32) queue.Batch {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: make([]byte, len(sent[i].Bytes)-queue.HeaderSize-5)})
		draft := d.Draft(ident.RequestID{Producer: 1, N: 1})
		return draft.Seal(sent[i].At, 1, prev, sent[i].Time)
	}
	for _, offered := range [][]queue.Batch{
		nil,
		{other(sent[i].PrevCRC)},
		{other(sent[i].PrevCRC), sent[i+1]},
	} {
		_, err = p.Repair(offered)
		require.ErrorIs(t, err, errUnproven)
	}
	require.Len(t, p.Damaged(), 1)
	// Without the commit log, the following batch is the proof.
	p.index.Restart(p.Start())
	_, err = p.Repair([]queue.Batch{other(sent[i].PrevCRC)})
	require.ErrorIs(t, err, errUnproven)
	_, err = p.Repair(sent[i : i+1])
	require.NoError(t, err)
	require.Empty(t, p.Damaged())
}

// TestRepairOnAFailingDisk: as after any failed write, the store stops.
func TestRepairOnAFailingDisk(t *testing.T) {
	mem, p, sent := longLog(t)
	require.NoError(t, p.store.Close())
	name, at := p.fileOf(t, sent[3])
	require.NoError(t, mem.Flip(name, at+queue.HeaderSize+1, 3))
	var broken atomic.Bool
	s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if broken.Load() && op.Call == vfstest.CallSync {
			return syscall.EIO
		}
		return nil
	})))
	p = s.Partitions()[0]
	_, err := p.ReadAt(sent[3].At.Offset, 1)
	require.Error(t, err)
	broken.Store(true)
	_, err = p.Repair(sent[3:4])
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, s.Err(), syscall.EIO)
	require.Len(t, p.Damaged(), 1)
}

// TestTrimmedIsNotDamaged: a range that retention has removed is distinguished from a decayed one,
// also during the removal.
func TestTrimmedIsNotDamaged(t *testing.T) {
	_, p, sent := longLog(t)
	stop, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for i := 0; ; i = (i + 1) % len(sent) {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.ReadAt(sent[i].At.Offset, 1); err != nil {
				requireTrimmed(t, err)
			}
			if b, err := p.ReadSequence(sent[i].At.Sequence, 1); err != nil || len(b) == 0 {
				t.Errorf("sequence %d: %d batches, %v", sent[i].At.Sequence, len(b), err)
			}
		}
	}()
	for _, b := range sent {
		if err := p.TrimHead(b.At); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-looked
	_, err := p.ReadAt(sent[0].At.Offset, 1)
	requireTrimmed(t, err)
	b, err := p.ReadSequence(0, 1)
	require.NoError(t, err)
	require.Equal(t, p.Start(), b[0].At)
	require.Empty(t, p.Damaged())
}

func requireTrimmed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrTrimmed) {
		t.Errorf("not called trimmed: %v", err)
	}
}

// TestRepairAtTheEnd: the newest batch in the segments decays while the next ones are still in
// memory and the journal only. A peer's copies, which continue after it, must repair it, not stop
// the store.
func TestRepairAtTheEnd(t *testing.T) {
	mem, p, sent := longLog(t)
	s := p.store
	last := sent[len(sent)-1]
	name, at := p.fileOf(t, last)
	require.NoError(t, mem.Flip(name, at+queue.HeaderSize+1, 3))
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte("newer")})
	draft := d.Draft(ident.RequestID{Producer: 7, N: 9999})
	next := draft.Seal(last.End, last.Epoch, last.CRC, last.Time)
	p.Index().Append(next.Record())
	submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{next}})
	_, err := p.ReadAt(last.At.Offset, 1)
	var damage *queue.Damage
	require.ErrorAs(t, err, &damage)
	require.Len(t, p.Damaged(), 1)
	// a peer's answer has up to 1 MiB of committed batches from here on
	repairedTo, err := p.Repair([]queue.Batch{last, next})
	require.NoError(t, s.Err(), "the store has stopped")
	require.NoError(t, err)
	require.Equal(t, last.End.Offset, repairedTo)
	require.Empty(t, p.Damaged())
	got, err := p.ReadAt(last.At.Offset, 1)
	require.NoError(t, err)
	require.Equal(t, last.CRC, got[0].CRC)
}
