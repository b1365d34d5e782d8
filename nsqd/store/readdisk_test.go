package store

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// readAllDisk reads the whole log past all caches.
func readAllDisk(p *Partition) (all []queue.Batch, err error) {
	for at := p.Start().Offset; ; {
		batches, err := p.ReadDisk(at, 5000)
		if err != nil || len(batches) == 0 {
			return all, err
		}
		all = append(all, batches...)
		at = batches[len(batches)-1].End.Offset
	}
}

// TestReadDiskBypassesMemory: the newest batches are in memory, some are in the read cache, and the
// page cache has all of them. A bit decays on the disk alone.
func TestReadDiskBypassesMemory(t *testing.T) {
	mem, _, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	for range 60 {
		m.put(t, s, 1, 700)
	}
	_, err := p.ReadAt(0, 5000) // from the segments, now in the read cache
	require.NoError(t, err)
	got, err := readAllDisk(p)
	require.NoError(t, err)
	require.Equal(t, m.end().at, got[len(got)-1].End, "batches in the journal only are included")
	require.NoError(t, s.Checkpoint())
	for _, i := range []int{0, 30, 59} {
		b := got[i]
		name, at := p.fileOf(t, b)
		require.NoError(t, mem.FlipDisk(name, at+queue.HeaderSize+100, 3))
		cached, err := p.ReadAt(b.At.Offset, 1)
		require.NoError(t, err)
		require.Equal(t, b.CRC, cached[0].CRC)
		_, err = readAllDisk(p)
		var d *queue.Damage
		require.ErrorAs(t, err, &d, "batch %d", i)
		require.Equal(t, b.At.Offset, d.From)
		require.Equal(t, []queue.Damage{{From: b.At.Offset, To: b.End.Offset, Err: d.Err}}, p.Damaged())

		_, err = p.Repair([]queue.Batch{b})
		require.NoError(t, err)
		require.Empty(t, p.Damaged())
		whole, err := readAllDisk(p)
		require.NoError(t, err, "the repair ignores the page cache")
		require.Equal(t, got, whole)
	}
}

// TestReadDiskAfterRetention: the same error as with ReadAt.
func TestReadDiskAfterRetention(t *testing.T) {
	_, p, sent := longLog(t)
	require.NoError(t, p.TrimHead(sent[len(sent)-1].At))
	_, err := p.ReadDisk(0, 1000)
	require.ErrorIs(t, err, ErrTrimmed)
	got, err := readAllDisk(p)
	require.NoError(t, err)
	require.Equal(t, sent[len(sent)-1].End, got[len(got)-1].End)
	got, err = p.ReadDisk(got[len(got)-1].End.Offset, 1000)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestReadDiskExcludesCutBatches: the segments hold them until the cut is durable and the writer
// has applied it.
func TestReadDiskExcludesCutBatches(t *testing.T) {
	_, _, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	for range 60 {
		m.put(t, s, 1, 1500)
	}
	_, err := readAllDisk(p)
	require.NoError(t, err)
	cut := m.borders[40]
	p.Index().Truncate(cut.at.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, At: cut.at, PrevCRC: cut.crc})
	got, err := readAllDisk(p)
	require.NoError(t, err)
	require.Equal(t, cut.at, got[len(got)-1].End)
}

// early reads the disk as soon as a submission is durable.
type early struct {
	p    *Partition
	read chan []queue.Batch
	done chan struct{}
}

// Synced implements Sink. It gives a reader that would not wait for the writer the time to answer.
func (e *early) Synced(uint64, error) {
	go func() {
		b, _ := e.p.ReadDisk(0, 1000)
		e.read <- b
		close(e.done)
	}()
	for range 1000 {
		select {
		case <-e.done:
			return
		default:
			runtime.Gosched()
		}
	}
}

// TestReadDiskIncludesDurableBatches: the sink is called before the writer has the group.
func TestReadDiskIncludesDurableBatches(t *testing.T) {
	_, _, s, p := alone(t, 1<<30)
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte("x")})
	draft := d.Draft(ident.RequestID{})
	b := draft.Seal(ident.Position{}, 1, 0, 1)
	p.Index().Append(b.Record())
	e := &early{p, make(chan []queue.Batch, 1), make(chan struct{})}
	s.Submit([]Submission{{p, []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, e, 1)
	got := <-e.read
	require.Len(t, got, 1)
	require.Equal(t, b.CRC, got[0].CRC)
}

// TestReadDiskThatCannotSync: a failing sync stops the store.
func TestReadDiskThatCannotSync(t *testing.T) {
	var armed atomic.Bool
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if armed.Load() && op.Call == vfstest.CallSync && strings.HasSuffix(op.Name, ".seg") {
			return syscall.EIO
		}
		return nil
	})))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 1, 100)
	m.checkpoint(t, s)
	m.put(t, s, 1, 100)
	armed.Store(true)
	_, err = p.ReadDisk(0, 1000)
	require.ErrorIs(t, err, syscall.EIO)
	require.Error(t, s.Checkpoint(), "the writer reaches this request after it has failed")
	require.ErrorIs(t, s.Err(), syscall.EIO)
	require.Error(t, s.Close())
	_, err = p.ReadDisk(0, 1000)
	require.True(t, errors.Is(err, errClosed), "%v", err)
}
