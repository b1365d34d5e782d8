package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestNewFileBeginsAFile: it begins a file also within one write, but not where an empty file lies
// already. No other control batch begins one.
func TestNewFileBeginsAFile(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	s, err := openSegments(fs, vfs.NewCache(fs, 3), "p", 1<<20)
	require.NoError(t, err)
	relocated, data := queue.NewRelocation(), queue.NewDraft(0)
	require.NoError(t, relocated.Add(queue.Message{Body: []byte("relocated")}))
	copy(data.Grow(4), "data")
	at, batches := ident.Position{Offset: 1000}, []queue.Batch(nil)
	for _, d := range []queue.Draft{queue.NewFile(), queue.Marker(), relocated.Draft(), data.Draft(ident.RequestID{}), queue.NewFile(), queue.Marker()} {
		b := d.Seal(at, 1, 0, 0)
		batches, at = append(batches, b), b.End
	}
	require.NoError(t, s.write(batches))
	require.Len(t, s.segments(), 2)
	head, _ := s.headEnd()
	require.Equal(t, batches[4].At.Offset, head)

	require.NoError(t, s.truncate(head))
	require.NoError(t, s.write(batches[4:]))
	require.Len(t, s.segments(), 2)
	err = s.trimHead(head)
	require.NoError(t, err)
	require.NoError(t, s.truncate(head))
	require.NoError(t, s.write(batches[4:]))
	require.Len(t, s.segments(), 1, "the empty file was begun for it")
}

// TestSmallBatchesAreGathered: one call writes many small batches; a large one is written by itself.
func TestSmallBatchesAreGathered(t *testing.T) {
	mem, writes := vfstest.NewMemory(), 0
	fs := vfstest.Wrap(mem, func(op vfstest.Op) error {
		if op.Call == vfstest.CallWrite {
			writes++
		}
		return nil
	})
	require.NoError(t, fs.MkdirAll("p"))
	s, err := openSegments(fs, vfs.NewCache(fs, 3), "p", 1<<30)
	require.NoError(t, err)
	var at ident.Position
	var batches []queue.Batch
	for _, size := range []int{10, 10, 10, writeBufferBytes, 10, 10} {
		d := queue.NewDraft(0)
		d.Grow(size)
		draft := d.Draft(ident.RequestID{})
		batches = append(batches, draft.Seal(at, 1, 0, 0))
		at = batches[len(batches)-1].End
	}
	require.NoError(t, s.write(batches))
	require.Equal(t, 3, writes)
}

// TestHole: the damage of a missing file ends where its neighbours begin.
func TestHole(t *testing.T) {
	s := &segments{}
	s.set([]segment{{100, 100}, {300, 100}, {600, 50}})
	for o, hole := range map[ident.Offset][2]ident.Offset{50: {50, 100}, 250: {200, 300}, 500: {400, 600}} {
		d := s.hole(o)
		require.Equal(t, hole, [2]ident.Offset{d.From, d.To}, "offset %d", o)
	}
}

// TestSegmentsModel compares segments with a slice of batches.
func TestSegmentsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfstest.NewMemory()
		require.NoError(t, fs.MkdirAll("p"))
		s, err := openSegments(fs, vfs.NewCache(fs, 3), "p", 1000)
		require.NoError(t, err)
		m := &segmentsModel{}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) { require.NoError(t, s.write(m.grow(t))) },
			"truncate": func(t *rapid.T) {
				m.log = m.log[:rapid.IntRange(0, len(m.log)).Draw(t, "keep")]
				require.NoError(t, s.truncate(m.end().End.Offset))
			},
			"trim": func(t *rapid.T) {
				below := ident.Offset(rapid.Int64Range(0, int64(m.end().End.Offset)).Draw(t, "below"))
				err := s.trimHead(below)
				require.NoError(t, err)
				start, _ := s.start()
				for len(m.log) > 0 && m.log[0].At.Offset < start {
					m.trimmed, m.log = m.log[0], m.log[1:]
				}
				require.True(t, len(m.log) == 0 || m.log[0].At.Offset == start && start <= max(below, m.log[0].At.Offset))
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, s.sync())
				require.NoError(t, s.close())
				s, err = openSegments(fs, vfs.NewCache(fs, 3), "p", 1000)
				require.NoError(t, err)
			},
			"": func(t *rapid.T) { m.compare(t, s) },
		})
	})
}

type segmentsModel struct {
	log     []queue.Batch
	trimmed queue.Batch // the newest batch that retention removed
}

func (m *segmentsModel) end() queue.Batch {
	if len(m.log) == 0 {
		return m.trimmed
	}
	return m.log[len(m.log)-1]
}

func (m *segmentsModel) grow(t *rapid.T) []queue.Batch {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	for range n {
		d := queue.NewDraft(0)
		d.Grow(rapid.SampledFrom([]int{0, 10, 300, 2000, 300 << 10}).Draw(t, "size"))
		draft, last := d.Draft(ident.RequestID{}), m.end()
		m.log = append(m.log, draft.Seal(last.End, 1, last.CRC, 1))
	}
	return m.log[len(m.log)-n:]
}

func (m *segmentsModel) compare(t *rapid.T, s *segments) {
	require.Equal(t, m.end().End.Offset, s.end())
	none, err := s.readAt(s.end(), s.end()+1000, 100)
	require.NoError(t, err)
	require.Empty(t, none)
	if len(m.log) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.log)-1).Draw(t, "from")
	limit := m.log[rapid.IntRange(i, len(m.log)-1).Draw(t, "limit")].End.Offset
	got, err := s.readAt(m.log[i].At.Offset, limit, rapid.SampledFrom([]int{1, 100, 5000}).Draw(t, "max"))
	require.NoError(t, err)
	require.NotEmpty(t, got)
	require.LessOrEqual(t, got[len(got)-1].End.Offset, limit)
	require.Equal(t, m.log[i:i+len(got)], got)
	at, err := s.headers(m.log[i].At.Offset, limit, func(b queue.Batch) bool {
		require.Equal(t, m.log[i].CRC, b.CRC)
		i++
		return true
	})
	require.NoError(t, err)
	require.Equal(t, limit, at)
}
