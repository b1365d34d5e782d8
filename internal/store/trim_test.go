package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestTrimBehindACut: a log is cut and grows again, durably, but the segments
// still hold what was cut. Retention must not take the borders of their files for
// those of the log.
func TestTrimBehindACut(t *testing.T) {
	s := reopen(t, testOptions(vfs.NewMemory()))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	put := func(n, size int) {
		w := queue.Write{Kind: queue.WriteAppend}
		for range n {
			d := queue.NewDraft(0)
			d.Add(make([]byte, size))
			draft := d.Draft(ident.RequestID{})
			e := m.end()
			b := draft.Seal(e.at, 1, e.crc, e.time)
			m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
			p.Index().Append(indexRecord(b))
			w.Batches = append(w.Batches, b)
		}
		submit(t, s, p, w)
	}
	put(20, 3000)
	require.NoError(t, s.Checkpoint())
	m.borders = m.borders[:2]
	p.Index().Truncate(m.end().at.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, Epoch: 1, At: m.end().at, PrevCRC: m.end().crc})
	put(25, 1999)
	require.NoError(t, p.TrimHead(m.end().at))
	starts := func() {
		start, borders := p.Start(), map[ident.Position]bool{}
		for _, b := range m.borders {
			borders[b.at] = true
		}
		require.True(t, borders[start], "no batch begins at the start %+v", start)
		b, err := p.ReadAt(start.Offset, 1)
		require.NoError(t, err)
		require.Equal(t, start, b[0].At)
	}
	starts()
	require.NoError(t, s.Checkpoint())
	require.NoError(t, p.TrimHead(m.end().at))
	require.Positive(t, p.Start().Offset, "nothing went")
	starts()
}

func submit(t *testing.T, s *Store, p *Partition, w queue.Write) {
	t.Helper()
	a := make(answer, 1)
	s.Submit([]Submission{{p, []queue.Write{w}}}, a, 1)
	require.NoError(t, <-a)
}
