package dump

import (
	"bytes"
	"io"
	"path"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

type sink struct{ sync.WaitGroup }

func (s *sink) Synced(uint64, error) { s.Done() }

// directory makes a data directory with five batches and closes it.
func directory(t *testing.T) (*vfstest.Memory, string) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	fs := vfstest.NewMemory()
	s, err := store.Open(store.Options{FS: fs, Dir: "d", JournalBytes: 64 << 10, Log: log})
	require.NoError(t, err)
	p, err := s.Create("orders", ident.Partition{Topic: 0xabc})
	require.NoError(t, err)
	var done sink
	at, crc := ident.Position{}, uint32(0)
	for n := range 5 {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: []byte("hello")})
		draft := d.Draft(ident.RequestID{Producer: 1, N: uint64(n)})
		b := draft.Seal(at, 1, crc, 1e18)
		p.Index().Append(commitlog.Record{Epoch: 1, First: at.Sequence, Count: 1, Offset: at.Offset, Size: uint32(len(b.Bytes)), CRC: b.CRC, TimeMS: 1e12})
		at, crc = b.End, b.CRC
		done.Add(1)
		if s.Queue([]store.Submission{{Partition: p, Writes: []queue.Write{{Kind: queue.WriteAppend, Epoch: 1, Batches: []queue.Batch{b}}}}}, &done, 0) {
			s.Flush()
		}
		done.Wait()
	}
	require.NoError(t, s.Close())
	return fs, "d/topics/orders.0000000000000abc/0"
}

func TestFile(t *testing.T) {
	fs, dir := directory(t)
	segment := path.Join(dir, "00000000000000000000.seg")
	index := path.Join(dir, "00000000000000000000.idx")
	for _, name := range []string{segment, index, "d/journal/0000000000000000.log"} {
		var out bytes.Buffer
		s, err := file(lines(&out), fs, name)
		require.NoError(t, err)
		require.Equal(t, summary{entries: 5}, s, out.String())
		require.Contains(t, out.String(), "sequence 4")
	}
	for _, name := range []string{segment, index} {
		require.NoError(t, fs.Flip(name, 100, 2)) // damages the first batch's body and the third record
		var out bytes.Buffer
		s, err := file(lines(&out), fs, name)
		require.NoError(t, err)
		require.Equal(t, summary{entries: 4, damaged: 1}, s, out.String())
		require.Contains(t, out.String(), "DAMAGED")
		require.Contains(t, out.String(), "sequence 4")
	}
	require.NoError(t, fs.Flip("d/journal/0000000000000000.log", 60, 1))
	s, err := file(lines(io.Discard), fs, "d/journal/0000000000000000.log")
	require.NoError(t, err)
	require.Equal(t, summary{entries: 4, damaged: 1}, s)
	_, err = file(lines(io.Discard), fs, path.Join(dir, "store.json"))
	require.ErrorIs(t, err, errUnknown)
}

func lines(w io.Writer) func(string) error {
	return func(line string) error { _, err := io.WriteString(w, line+"\n"); return err }
}
