package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// A single broker answers within a second and a half of its start on an empty directory. The
// best of three counts, because the machine may be busy with other tests.
func TestSingleBrokerStartsFast(t *testing.T) {
	best := time.Hour
	for range 3 {
		b := start(t)
		best = min(best, time.Since(b.began))
		b.stop()
		if best < 1500*time.Millisecond {
			return
		}
	}
	t.Errorf("the fastest of three starts took %v", best)
}

func TestStopKeepsEverything(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	c.put("orders", "a message")
	stats := func() (text string) { _, text = b.get("/stats?format=json"); return text }
	require.Contains(t, stats(), `"message_count":1,"message_bytes":9,`)
	b.stop()
	require.Contains(t, b.logged(), "stopped")
	require.NotContains(t, b.logged(), "ERROR")
	b.run()
	b.ready()
	c = b.dial()
	b.eventually("leads", func() bool { return strings.Contains(stats(), `"message_count":1,"message_bytes":0,`) }) // bytes since the start
	c.consume("orders", "ch", 1)
	_, attempts, body := c.message()
	require.EqualValues(t, 1, attempts)
	require.Equal(t, "a message", body)
	c.send("CLS\n")
	c.expect("CLOSE_WAIT")
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	b := start(t)
	b.dial().consume("orders", "ch", 1)
	// A pending request delays the first stop.
	c := b.dial()
	c.send("PUB orders\n")
	b.signal(syscall.SIGINT)
	b.eventually("is stopping", func() bool {
		select {
		case <-b.done:
			return true
		default:
		}
		_ = b.cmd.Process.Signal(syscall.SIGINT) // the process may have ended already
		return strings.Contains(b.logged(), "second signal")
	})
	began := time.Now()
	b.wait()
	require.Less(t, time.Since(began), 2*time.Second)
}

// TestSignalThatIsSentTwice: a signal to a process and its group, as timeout(1) sends it, is
// one planned stop.
func TestSignalThatIsSentTwice(t *testing.T) {
	b := start(t)
	c := b.dial()
	c.put("orders", "a message")
	first := time.Now()
	b.eventually("it received many signals", func() bool {
		_ = b.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended already
		return time.Since(first) > secondSignalAfter/2
	})
	require.Zero(t, b.wait())
	require.NotContains(t, b.logged(), "second signal")
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
	own := edge.ReadBuild()
	require.True(t, strings.HasPrefix(stdout, fmt.Sprintf("lockstep %s (commit %s, feature level 7, built w/go", own.Version, own.Commit)), stdout)
	require.Contains(t, stdout, "\nnsqd v1.3.0 (", "as a stock nsqd has it")
	require.Empty(t, stderr)

	code, stdout, stderr = refused(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "--max-rdy-count")
	require.Empty(t, stderr)

	code, stdout, stderr = refused(t, "--no-such-flag", "--max-deflate-level=12")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no-such-flag")
	require.Contains(t, stderr, "--max-deflate-level=12")
	require.Contains(t, stderr, "--max-rdy-count", "the help")

	code, _, stderr = refused(t, "--tls-required")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "requires --tls-cert")
}

// TestABrokerNamesItsBuild: /info has the product's version beside that of NSQ, which clients
// parse; the log has it with the durability.
func TestABrokerNamesItsBuild(t *testing.T) {
	t.Parallel()
	b := start(t, "--durability=replicated")
	own := edge.ReadBuild()
	_, text := b.get("/info")
	require.Contains(t, text, `"version":"1.3.0",`)
	require.Contains(t, text, fmt.Sprintf(`,"lockstep_version":%q,"commit":%q,"feature_level":7}`, own.Version, own.Commit))
	require.Contains(t, b.logged(), own.Describe(meta.Level)+", speaks NSQ 1.3.0, durability replicated\n")
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
	for what, name := range map[string]string{
		"all": "", "journal": "journal", "the lock": "nsqd.lock", "metadata": "etcd", "the queues": "topics",
	} {
		t.Run(what, func(t *testing.T) {
			b := start(t)
			b.dial().put("orders", "a message")
			taken := filepath.Join(b.dir, name)
			require.NoError(t, os.Rename(taken, taken+".old")) // no file can be created in it meanwhile
			require.Equal(t, 1, b.wait())
			require.Contains(t, b.logged(), "the data path was removed")
			require.NotContains(t, b.logged(), "goroutine")
		})
	}
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
		t.Run(what, func(t *testing.T) {
			b := start(t)
			b.dial().put("orders", "a message")
			b.stop()
			wal, err := filepath.Glob(filepath.Join(b.dir, "etcd", "member", "wal", "*.wal"))
			require.NoError(t, err)
			require.NotEmpty(t, wal)
			require.NoError(t, harm(wal[0], filepath.Join(b.dir, "etcd", "member", "snap", "db")))
			b.run()
			require.Equal(t, 1, b.wait())
			said := "its files are damaged"
			if strings.HasSuffix(what, "removed") {
				said = "the metadata directory of this broker is gone"
			}
			require.Contains(t, b.logged(), said)
			require.NotContains(t, b.logged(), "goroutine")
		})
	}
}
