package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/nsqd/journal"
)

// TestTornJournalTail: an incomplete write behind the last group loses no acknowledged message.
func TestTornJournalTail(t *testing.T) {
	t.Parallel()
	b := start(t)
	want := 0
	c := b.dial()
	for _, tail := range []string{"half a group", strings.Repeat("\xff", 5000)} {
		for range 50 {
			c.put("orders", fmt.Sprint("message ", want))
			want++
		}
		b.signal(os.Kill)
		<-b.done
		b.tear(tail)
		b.run()
		b.ready()
		c = b.dial()
	}
	c.consume("orders", "ch", 10)
	for i := range want {
		id, _, text := c.message()
		require.Equal(t, fmt.Sprint("message ", i), text)
		c.send("FIN %s\n", id)
	}
	b.quiet()
}

// tear writes bytes behind the last group of the journal that begin like one.
func (b *broker) tear(tail string) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "journal", "*.log"))
	require.NoError(b.t, err)
	torn := false
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(b.t, err)
		end := len(bytes.TrimRight(content, "\x00"))
		if end == 0 {
			continue
		}
		at := (end + journal.Align - 1) / journal.Align * journal.Align
		copy(content[at:], content[:20]) // the beginning of a group
		copy(content[at+20:], tail)
		require.NoError(b.t, os.WriteFile(name, content, 0o600))
		torn = true
	}
	require.True(b.t, torn)
}

// TestDamagedFiles writes garbage into each kind of file of the data path. The broker restores
// content that follows from other files. Otherwise the log names the file, the broker
// acknowledges nothing that it cannot prove, and no message is removed from the disk.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	for range 20 {
		c.put("orders", "a message")
	}
	b.stop()
	restore := b.backup()
	for file, complaint := range map[string]string{
		"topics/*/0/*.idx":      "",
		"node.json":             "node.json: ",
		"topics/*/0/store.json": "the folder's identity is lost",
		"checkpoint":            "acknowledged data may be missing",
	} {
		restore()
		found, err := filepath.Glob(filepath.Join(b.dir, filepath.FromSlash(file)))
		require.NoError(t, err)
		require.NotEmpty(t, found, file)
		for _, name := range found {
			require.NoError(t, os.WriteFile(name, []byte("\x01garbage"), 0o600))
		}
		b.run()
		b.says(complaint)
		require.NotContains(t, b.logged(), "goroutine")
		if complaint != "" {
			b.eventually("keeps the messages", func() bool { return b.stored("a message") == 20 }) // recovery may be writing
		} else {
			b.ready()
			c := b.dial()
			c.consume("orders", "ch", 1)
			for range 20 {
				id, _, _ := c.message()
				c.send("FIN %s\n", id)
			}
		}
		b.signalIfAlive(os.Kill)
		<-b.done
	}
}

// stored counts a body in the segments on the disk.
func (b *broker) stored(body string) (n int) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "topics", "*", "0", "*.seg"))
	require.NoError(b.t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(b.t, err)
		n += bytes.Count(content, []byte(body))
	}
	return n
}
