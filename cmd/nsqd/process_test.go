package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

func TestStopKeepsEverything(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	c.put("orders", "a message")
	stats := func() (text string) { _, text = b.get("/stats?format=json"); return text }
	require.Contains(t, stats(), `"message_count":1,"message_bytes":9,`)
	c.put("later", "deferred")
	c.consume("later", "ch", 1)
	id, _, _ := c.message()
	c.send("REQ %s 3600000\n", id)
	b.eventually("it is deferred", func() bool { return strings.Contains(stats(), `"deferred_count":1`) })
	b.stop()
	require.Contains(t, b.logged(), "stopped")
	require.NotContains(t, b.logged(), "ERROR")
	b.run()
	b.ready()
	c = b.dial()
	b.eventually("leads", func() bool { return strings.Contains(stats(), `"message_count":1,"message_bytes":0,`) }) // bytes since the start
	b.eventually("it is still deferred", func() bool { return strings.Contains(stats(), `"deferred_count":1`) })
	c.consume("orders", "ch", 1)
	_, attempts, body := c.message()
	require.EqualValues(t, 1, attempts)
	require.Equal(t, "a message", body)
	c.send("CLS\n")
	c.expect("CLOSE_WAIT")
}

func TestHangUpReloadsTheLogLevel(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nsqd.toml")
	require.NoError(t, os.WriteFile(file, []byte("log_level = \"info\"\n"), 0o600))
	b := start(t, "--config="+file)
	_, level := b.get("/config/log_level")
	require.Equal(t, "2", level)
	require.NoError(t, os.WriteFile(file, []byte("log_level = \"debug\"\n"), 0o600))
	b.signal(syscall.SIGHUP)
	b.eventually("has the new level", func() bool { _, level := b.get("/config/log_level"); return level == "1" })
	require.NoError(t, os.WriteFile(file, []byte("log_level = \"loud\"\n"), 0o600))
	b.signal(syscall.SIGHUP)
	b.eventually("complains", func() bool { return strings.Contains(b.logged(), "cannot reload") })
	_, level = b.get("/config/log_level")
	require.Equal(t, "1", level)
}

func TestRefusals(t *testing.T) {
	code, stdout, stderr := refused(t, "--version")
	require.Zero(t, code)
	own := api.ReadBuild()
	require.True(t, strings.HasPrefix(stdout, fmt.Sprintf("lockstep %s (commit %s, feature level 1, built w/go", own.Version, own.Commit)), stdout)
	require.Contains(t, stdout, "\nnsqd v1.3.0 (", "as a stock nsqd has it")
	require.Empty(t, stderr)

	for flag, all := range map[string]bool{"--help": false, "--help-all": true} {
		code, stdout, stderr = refused(t, flag)
		require.Zero(t, code)
		require.Contains(t, stdout, "--tcp-address")
		require.Equal(t, all, strings.Contains(stdout, "--max-rdy-count"), flag)
		require.Empty(t, stderr)
	}

	code, stdout, stderr = refused(t, "--no-such-flag", "--max-deflate-level=12")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no-such-flag")
	require.Contains(t, stderr, "--max-deflate-level=12")
	require.NotContains(t, stderr, "--tcp-address", "the help hides the faults")
	require.Contains(t, stderr, "nsqd --help-all explains all settings")

	code, _, stderr = refused(t, "--tls-required")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "requires --tls-cert")
}

func TestDataPathOfStockNSQD(t *testing.T) {
	b := prepare(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "nsqd.dat"), []byte(`{"topics":[]}`), 0o600))
	b.run()
	require.Equal(t, 1, b.wait())
	require.Contains(t, b.logged(), "stock nsqd")
	require.Contains(t, b.logged(), "--data-path")
}

func TestDataPathInUse(t *testing.T) {
	t.Parallel()
	b := start(t)
	other := prepare(t)
	other.dir = b.dir
	other.run()
	require.Equal(t, 1, other.wait())
	require.Contains(t, other.logged(), "another process uses it")
	require.Contains(t, other.logged(), b.dir)
}

// TestDataPathIsRemoved: a broker whose files are removed or moved by hand stops answering.
func TestDataPathIsRemoved(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{"all": "", "metadata": "etcd"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.dial().put("orders", "a message")
			taken := filepath.Join(b.dir, name)
			require.NoError(t, os.Rename(taken, taken+".old")) // no file can be created in it now
			require.Equal(t, 1, b.wait())
			require.Contains(t, b.logged(), "the data path was removed")
			require.NotContains(t, b.logged(), "goroutine")
		})
	}
}

// TestEachPartOfTheDataPathIsHeld checks as often as a broker does once a second.
func TestEachPartOfTheDataPathIsHeld(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	for _, name := range []string{"", "journal", "nsqd.lock", "topics", "etcd"} {
		var d dataPath
		require.NoError(t, d.lock(filepath.Join(t.TempDir(), "data")))
		for _, part := range []string{"journal", "topics", "etcd"} {
			require.NoError(t, os.Mkdir(filepath.Join(d.dir, part), 0o700))
		}
		require.NoError(t, d.hold(true))
		require.NoError(t, d.check(log))
		taken := filepath.Join(d.dir, name)
		require.NoError(t, os.Rename(taken, taken+".old"))
		require.ErrorContains(t, d.check(log), "the data path was removed", name)
		require.NoError(t, d.locked.Unlock())
	}
}

// TestSecondSignal: a signal to a process and its group, as timeout(1) sends it, arrives twice and
// is one planned stop; a later one is the second.
func TestSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, signals := time.Now(), make(chan os.Signal)
		second := make(chan time.Duration)
		go func() {
			awaitSecondSignal(signals)
			second <- time.Since(began)
		}()
		for range 10 {
			signals <- syscall.SIGTERM
			time.Sleep(secondSignalAfter / 10)
		}
		signals <- syscall.SIGTERM
		require.Equal(t, secondSignalAfter, <-second)
	})
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	b := start(t)
	other := prepare(t)
	other.run("--tcp-address=" + b.address(0))
	require.Equal(t, 1, other.wait())
	require.Contains(t, other.logged(), "address already in use")
}

// TestDamagedMetadataFile: a broker whose embedded etcd cannot continue logs the reason.
func TestDamagedMetadataFile(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.dial().put("orders", "a message")
	b.stop()
	restore := b.backup()
	for what, harm := range map[string]func(wal, db string) error{
		"a byte of the log": func(wal, _ string) error {
			content, err := os.ReadFile(wal)
			if err != nil {
				return err
			}
			// The name of the topic, in a record that has a checksum. The bytes that fill a record up to
			// its boundary mean nothing, and etcd rightly ignores them.
			at := bytes.LastIndex(content, []byte("orders"))
			if at < 0 {
				return errors.New("the log does not name the topic")
			}
			content[at] ^= 0x55
			return os.WriteFile(wal, content, 0o600)
		},
		"log cut":         func(wal, _ string) error { return os.Truncate(wal, 1024) },
		"log overwritten": func(wal, _ string) error { return os.WriteFile(wal, []byte("this is no write-ahead log"), 0o600) },
		"log removed":     func(wal, _ string) error { return os.Remove(wal) },
		"folder removed":  func(wal, _ string) error { return os.RemoveAll(filepath.Dir(wal)) },
		"database cut":    func(_, db string) error { return os.Truncate(db, 20_000) },
		"database zeroed": func(_, db string) error { return os.WriteFile(db, make([]byte, 40_000), 0o600) },
	} {
		restore()
		wal, err := filepath.Glob(filepath.Join(b.dir, "etcd", "member", "wal", "*.wal"))
		require.NoError(t, err)
		require.NotEmpty(t, wal)
		require.NoError(t, harm(wal[0], filepath.Join(b.dir, "etcd", "member", "snap", "db")))
		b.run()
		require.Equal(t, 1, b.wait(), what)
		said := "its files are damaged"
		if strings.HasSuffix(what, "removed") {
			said = "the metadata directory of this broker is gone"
		}
		require.Contains(t, b.logged(), said, what)
		require.NotContains(t, b.logged(), "goroutine", what)
	}
}

// backup copies the data path of a broker that does not run, and returns a function that puts the
// copy back. node.mark, which shows that a data path is a copy, stays in its place.
func (b *broker) backup() (restore func()) {
	b.t.Helper()
	copied := filepath.Join(b.t.TempDir(), "data")
	require.NoError(b.t, os.CopyFS(copied, os.DirFS(b.dir)))
	return func() {
		b.t.Helper()
		mark := filepath.Join(b.dir, "node.mark")
		entries, err := os.ReadDir(b.dir)
		require.NoError(b.t, err)
		for _, e := range entries {
			if name := filepath.Join(b.dir, e.Name()); name != mark {
				require.NoError(b.t, os.RemoveAll(name))
			}
		}
		require.NoError(b.t, exec.Command("cp", "-a", copied+"/.", b.dir).Run()) // node.mark keeps its inode
	}
}
