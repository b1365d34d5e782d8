package queue

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// golden returns a sealed batch with every field set.
func golden(t *testing.T) Batch {
	t.Helper()
	d := NewDraft(0)
	d.Add([]byte("one"))
	require.NoError(t, d.AddMessage(Message{Trace: 1, DeliverAt: 2, Header: []byte("{}"), Body: []byte("two")}))
	draft := d.Draft(ident.RequestID{Producer: 5, N: 6})
	return draft.Seal(ident.Position{Offset: 4096, Sequence: 7}, 3, 0x01020304, 1700000000123456789)
}

func TestGoldenBatch(t *testing.T) {
	b := golden(t)
	want, err := os.ReadFile("testdata/batch.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(b.Bytes))
	got, n, err := Decode(b.Bytes)
	require.NoError(t, err)
	require.Equal(t, len(b.Bytes), n)
	require.Equal(t, b, got)
	messages := got.Messages(0, 10, nil)
	require.Len(t, messages, 2)
	require.Equal(t, Message{Time: b.Time, DeliverAt: 2, Trace: 1, Header: []byte("{}"), Body: []byte("two"), Seq: 8}, messages[1])
}

func TestBodyBytesExcludeEncoding(t *testing.T) {
	b := NewDraft(0)
	b.Add([]byte("12345"))
	require.NoError(t, b.AddMessage(Message{Trace: 1, DeliverAt: 2, Header: []byte("header"), Body: []byte("678")}))
	d := b.Draft(ident.RequestID{})
	require.Equal(t, 8, d.BodyBytes())
	marker := Marker()
	require.Zero(t, marker.BodyBytes())
	d.Bytes = d.Bytes[:len(d.Bytes)-1]
	require.Equal(t, 5, d.BodyBytes(), "a message that is cut short does not count")
}

// TestEveryFlippedBitIsFound: no change of a single bit of a batch goes undetected.
func TestEveryFlippedBitIsFound(t *testing.T) {
	b := golden(t).Bytes
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, _, err := Decode(b)
			require.Error(t, err, "byte %d bit %d", i, bit)
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		_, _, err := Decode(b[:n])
		require.ErrorIs(t, err, errTorn)
	}
}

// TestNewFileBeginsAFile: it begins a file also within one write, but not where an empty file lies
// already. No other control batch begins one.
func TestNewFileBeginsAFile(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	s, err := OpenSegments(fs, vfs.NewCache(fs, 3), "p", 1<<20)
	require.NoError(t, err)
	relocated, data := NewRelocation(), NewDraft(0)
	require.NoError(t, relocated.Add(Message{Body: []byte("relocated")}))
	data.Add([]byte("data"))
	at, batches := ident.Position{Offset: 1000}, []Batch(nil)
	for _, d := range []Draft{NewFile(), Marker(), relocated.Draft(), data.Draft(ident.RequestID{}), NewFile(), Marker()} {
		b := d.Seal(at, 1, 0, 0)
		batches, at = append(batches, b), b.End
	}
	require.NoError(t, s.Write(batches))
	require.Len(t, s.segments(), 2)
	head, _ := s.HeadEnd()
	require.Equal(t, batches[4].At.Offset, head)

	require.NoError(t, s.Truncate(head))
	require.NoError(t, s.Write(batches[4:]))
	require.Len(t, s.segments(), 2)
	err = s.TrimHead(head)
	require.NoError(t, err)
	require.NoError(t, s.Truncate(head))
	require.NoError(t, s.Write(batches[4:]))
	require.Len(t, s.segments(), 1, "the empty file was begun for it")
}

// TestSegmentsModel compares segments with a slice of batches.
func TestSegmentsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfstest.NewMemory()
		require.NoError(t, fs.MkdirAll("p"))
		s, err := OpenSegments(fs, vfs.NewCache(fs, 3), "p", 1000)
		require.NoError(t, err)
		m := &segmentsModel{}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) { require.NoError(t, s.Write(m.grow(t))) },
			"truncate": func(t *rapid.T) {
				m.log = m.log[:rapid.IntRange(0, len(m.log)).Draw(t, "keep")]
				require.NoError(t, s.Truncate(m.end().End.Offset))
			},
			"trim": func(t *rapid.T) {
				below := ident.Offset(rapid.Int64Range(0, int64(m.end().End.Offset)).Draw(t, "below"))
				err := s.TrimHead(below)
				require.NoError(t, err)
				start, _ := s.Start()
				for len(m.log) > 0 && m.log[0].At.Offset < start {
					m.trimmed, m.log = m.log[0], m.log[1:]
				}
				require.True(t, len(m.log) == 0 || m.log[0].At.Offset == start && start <= max(below, m.log[0].At.Offset))
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, s.Sync())
				require.NoError(t, s.Close())
				s, err = OpenSegments(fs, vfs.NewCache(fs, 3), "p", 1000)
				require.NoError(t, err)
			},
			"": func(t *rapid.T) { m.compare(t, s) },
		})
	})
}

type segmentsModel struct {
	log     []Batch
	trimmed Batch // the newest batch that retention removed
}

func (m *segmentsModel) end() Batch {
	if len(m.log) == 0 {
		return m.trimmed
	}
	return m.log[len(m.log)-1]
}

func (m *segmentsModel) grow(t *rapid.T) []Batch {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	for range n {
		d := NewDraft(0)
		d.Add(make([]byte, rapid.SampledFrom([]int{0, 10, 300, 2000, 300 << 10}).Draw(t, "size")))
		draft, last := d.Draft(ident.RequestID{}), m.end()
		m.log = append(m.log, draft.Seal(last.End, 1, last.CRC, 1))
	}
	return m.log[len(m.log)-n:]
}

func (m *segmentsModel) compare(t *rapid.T, s *Segments) {
	require.Equal(t, m.end().End.Offset, s.End())
	none, err := s.ReadAt(s.End(), s.End()+1000, 100)
	require.NoError(t, err)
	require.Empty(t, none)
	if len(m.log) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.log)-1).Draw(t, "from")
	limit := m.log[rapid.IntRange(i, len(m.log)-1).Draw(t, "limit")].End.Offset
	got, err := s.ReadAt(m.log[i].At.Offset, limit, rapid.SampledFrom([]int{1, 100, 5000}).Draw(t, "max"))
	require.NoError(t, err)
	require.NotEmpty(t, got)
	require.LessOrEqual(t, got[len(got)-1].End.Offset, limit)
	require.Equal(t, m.log[i:i+len(got)], got)
	at, err := s.Headers(m.log[i].At.Offset, limit, func(b Batch) bool {
		require.Equal(t, m.log[i].CRC, b.CRC)
		i++
		return true
	})
	require.NoError(t, err)
	require.Equal(t, limit, at)
}

func FuzzDecode(f *testing.F) {
	d := NewDraft(0)
	d.Add([]byte("one"))
	draft := d.Draft(ident.RequestID{Producer: 1, N: 1})
	b := draft.Seal(ident.Position{}, 1, 0, 1)
	marker := Marker()
	f.Add(b.Bytes)
	f.Add(marker.Seal(ident.Position{}, 1, 0, 1).Bytes)
	f.Add(b.Bytes[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, n, err := Decode(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, n, len(b))
		require.Len(t, batch.Messages(0, int(batch.Count)+1, nil), int(batch.Count))
		again, _, err := Decode(batch.Bytes)
		require.NoError(t, err)
		require.Equal(t, batch, again)
	})
}

// Add appends a message with a body only.
func (b *DraftBuilder) Add(body []byte) { copy(b.Grow(len(body)), body) }
