package stockdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nsqio/go-diskqueue"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// maxMessage and fileBytes are the limits of the tests' queues.
const (
	maxMessage = 400
	fileBytes  = 2000
)

// stock opens a queue as a stock nsqd does.
func stock(dir, name string) diskqueue.Interface {
	return diskqueue.New(name, dir, fileBytes, HeaderSize, maxMessage, 7, time.Hour, func(diskqueue.LogLevel, string, ...any) {})
}

// record is a message as nsqd writes it.
func record(n, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(n))
	b = append(b, 0, 1)
	b = fmt.Appendf(b, "%016x", n)
	return append(b, strings.Repeat("b", size)...)
}

// describe writes nsqd.dat.
func describe(t require.TestingT, dir, text string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nsqd.dat"), []byte(text), 0o600))
}

// readAll returns the numbers of the messages of a queue.
func readAll(t require.TestingT, q *Queue) (numbers []int, damage []Damage) {
	r := q.Read(q.Start())
	defer r.Close()
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return numbers, r.Damage
		}
		require.NoError(t, err)
		var n int
		_, err = fmt.Sscanf(string(m[10:HeaderSize]), "%x", &n)
		require.NoError(t, err)
		require.EqualValues(t, n, binary.BigEndian.Uint64(m))
		require.EqualValues(t, 1, binary.BigEndian.Uint16(m[8:]))
		numbers = append(numbers, n)
	}
}

// delivered returns the messages that a stock nsqd delivers from the files. A message behind them would show the
// end at once, but go-diskqueue fills the lost end of a torn file with zeros then.
func delivered(t require.TestingT, dir, name string, torn bool) (numbers []int) {
	q := stock(dir, name)
	defer q.Close()
	const end = 1 << 40
	if !torn {
		require.NoError(t, q.Put(record(end, 1)))
	}
	for {
		synctest.Wait() // the queue offers a message, or has none
		select {
		case b := <-q.ReadChan():
			var n int
			_, err := fmt.Sscanf(string(b[10:HeaderSize]), "%x", &n)
			require.NoError(t, err)
			if n == end {
				return numbers
			}
			numbers = append(numbers, n)
		default:
			if torn {
				return numbers
			}
			require.NoError(t, q.Put(record(end, 1))) // it has skipped the file with the end
		}
	}
}

func copyFiles(t require.TestingT, from string) string {
	to, err := os.MkdirTemp("", "stockdata-")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// within reports whether all of part are in whole, in this order.
func within(whole, part []int) bool {
	for _, n := range whole {
		if len(part) > 0 && part[0] == n {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// TestReadsWhatNSQDDelivers writes, reads and kills a queue of go-diskqueue, loses the ends of files, and compares
// the reader with go-diskqueue on a copy of the files.
func TestReadsWhatNSQDDelivers(t *testing.T) {
	synctest.Test(t, readsWhatNSQDDelivers)
}

func readsWhatNSQDDelivers(t *testing.T) {
	kills, torn, clean := 0, 0, 0
	rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // without the method Deadline, which a bubble does not have
		dir, err := os.MkdirTemp("", "stockdata-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		describe(t, dir, `{"version":"1.3.0","topics":[{"name":"orders","channels":[{"name":"billing"}]}]}`)
		const name = "orders:billing"
		written, exact, cut := 0, true, false
		for range rapid.IntRange(1, 3).Draw(t, "lives") {
			q := stock(dir, name)
			for range rapid.IntRange(0, 60).Draw(t, "steps") {
				if q.Depth() > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
					synctest.Wait()
					select {
					case <-q.ReadChan():
					default: // nothing but damage was left
					}
					continue
				}
				require.NoError(t, q.Put(record(written, rapid.IntRange(1, 300).Draw(t, "size"))))
				written++
			}
			if rapid.Bool().Draw(t, "kill") {
				q.Depth() // its goroutine writes no file now
				killed := copyFiles(t, dir)
				require.NoError(t, q.Close())
				require.NoError(t, os.RemoveAll(dir))
				require.NoError(t, os.Rename(killed, dir))
				kills++
				exact = false
			} else {
				require.NoError(t, q.Close())
				clean++
			}
		}
		p, err := Open(dir)
		require.NoError(t, err)
		q := p.Topics[0].Channels[0].Queue
		if len(q.files) > 0 && rapid.IntRange(0, 3).Draw(t, "tear") == 0 {
			last := filepath.Join(dir, q.file(q.last()))
			require.NoError(t, os.Truncate(last, max(0, q.files[q.last()]-int64(rapid.IntRange(1, 100).Draw(t, "lost")))))
			require.NoError(t, p.Close())
			p, err = Open(dir)
			require.NoError(t, err)
			q = p.Topics[0].Channels[0].Queue
			torn++
			exact, cut = false, true
		}
		defer p.Close()
		got, damage := readAll(t, q)
		other := copyFiles(t, dir)
		defer os.RemoveAll(other)
		want := delivered(t, other, name, cut)
		require.True(t, within(got, want), "nsqd delivers %v, read were %v (%v)", want, got, damage)
		for i, n := range got {
			require.Less(t, n, written)
			require.True(t, i == 0 || got[i-1] < n || !exact, "in order: %v", got)
		}
		if exact {
			require.Equal(t, len(want), len(got))
			require.Empty(t, damage)
			depth, known := q.Depth()
			require.True(t, known)
			require.EqualValues(t, len(want), depth)
		}
	})
	t.Logf("%d kills, %d clean stops, %d torn files", kills, clean, torn)
	require.Positive(t, min(kills, torn, clean))
}

// TestContinues: a reader that begins at a position returns the rest.
func TestContinues(t *testing.T) {
	dir := t.TempDir()
	describe(t, dir, `{"topics":[{"name":"orders"}]}`)
	q := stock(dir, "orders")
	for i := range 100 {
		require.NoError(t, q.Put(record(i, 100)))
	}
	require.NoError(t, q.Close())
	p, err := Open(dir)
	require.NoError(t, err)
	defer p.Close()
	queue := p.Topics[0].Queue
	require.Greater(t, len(queue.files), 3)
	at := queue.Start()
	for i := range 100 {
		r := queue.Read(at)
		m, err := r.Next()
		require.NoError(t, err)
		require.EqualValues(t, i, binary.BigEndian.Uint64(m))
		at = r.Position()
		r.Close()
	}
	_, err = queue.Read(at).Next()
	require.ErrorIs(t, err, io.EOF)
}

// TestNamesTheDamage: the place of a record that cannot be read, and the rest of the queue.
func TestNamesTheDamage(t *testing.T) {
	dir := t.TempDir()
	describe(t, dir, `{"topics":[{"name":"orders"}]}`)
	q := stock(dir, "orders")
	for i := range 40 {
		require.NoError(t, q.Put(record(i, 70))) // 100 bytes with the size: 20 in a file
	}
	require.NoError(t, q.Close())
	first := filepath.Join(dir, "orders.diskqueue.000000.dat")
	text, err := os.ReadFile(first)
	require.NoError(t, err)
	binary.BigEndian.PutUint32(text[500:], 3)
	require.NoError(t, os.WriteFile(first, text, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "orders.diskqueue.000001.dat"), 1950))
	p, err := Open(dir)
	require.NoError(t, err)
	defer p.Close()
	got, damage := readAll(t, p.Topics[0].Queue)
	require.Equal(t, []int{0, 1, 2, 3, 4, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38}, got)
	var texts []string
	for _, d := range damage {
		texts = append(texts, d.String())
	}
	require.Equal(t, []string{
		"orders.diskqueue.000001.dat, offset 1950: the file ends before the position of the metadata (50 bytes left out)",
		"orders.diskqueue.000000.dat, offset 500: a record of 3 bytes cannot be (1500 bytes left out)",
		"orders.diskqueue.000001.dat, offset 1900: the record of 96 bytes is cut off (50 bytes left out)",
	}, texts)
}

// TestTopicsAndChannels: nsqd.dat, and queues that it does not name.
func TestTopicsAndChannels(t *testing.T) {
	dir := t.TempDir()
	describe(t, dir, `{"version":"1.3.0","topics":[
		{"name":"orders","paused":true,"channels":[{"name":"b","paused":true},{"name":"a"},{"name":"x#ephemeral"},{"name":"no good"}]},
		{"name":"gone#ephemeral"}]}`)
	for _, name := range []string{"orders:late", "new", "a.diskqueue.b:c", "bad name"} {
		q := stock(dir, name)
		require.NoError(t, q.Put(record(1, 1)))
		require.NoError(t, q.Close())
	}
	p, err := Open(dir)
	require.NoError(t, err)
	defer p.Close()
	var names []string
	for _, topic := range p.Topics {
		names = append(names, fmt.Sprintln(topic.Name, topic.Paused, topic.Unlisted))
		for _, c := range topic.Channels {
			depth, _ := c.Queue.Depth()
			names = append(names, fmt.Sprintln(":", c.Name, c.Paused, c.Unlisted, depth))
		}
	}
	require.Equal(t, []string{
		"a.diskqueue.b false true\n", ": c false true 1\n", "new false true\n", "orders true false\n",
		": a false false 0\n", ": b true false 0\n", ": late false true 1\n",
	}, names)
}

// TestRefuses: directories that are not to be read.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(dir)
	require.ErrorIs(t, err, errNoData)

	describe(t, dir, `{"topics":[]}`)
	running, err := os.Open(dir) // as nsqd locks it
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(running.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	_, err = Open(dir)
	require.ErrorIs(t, err, errInUse)
	require.NoError(t, running.Close())
	p, err := Open(dir)
	require.NoError(t, err)
	_, err = Open(dir)
	require.ErrorIs(t, err, errInUse)
	require.NoError(t, p.Close())

	describe(t, dir, `{"topics":`)
	_, err = Open(dir)
	require.ErrorContains(t, err, "nsqd.dat")

	for _, text := range []string{`{"topics":[{"name":"orders","partition":0,"ext":false,"channels":[]}]}`, `{"topics":[],"enabled_delayedqueue":1}`} {
		fork := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(fork, "nsqd.1.dat"), []byte(text), 0o600))
		_, err = Open(fork)
		require.ErrorIs(t, err, errFork)
	}
	old := t.TempDir() // a stock nsqd before 1.0
	require.NoError(t, os.WriteFile(filepath.Join(old, "nsqd.1.dat"), []byte(`{"topics":[{"name":"orders","channels":[]}]}`), 0o600))
	_, err = Open(old)
	require.ErrorIs(t, err, errNoData)
}
