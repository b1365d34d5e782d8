package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestStatsOnceAndLive(t *testing.T) {
	at := "--nsqd-http-address=" + clitest.FakeBroker(t).Listener.Addr().String()
	out, err := run(t, time.Minute, "stats", at)
	require.NoError(t, err)
	require.Contains(t, out, "orders (paused)")
	r, rate := clitest.Begin(t, newRoot(), "stats", "--interval=100ms", at), regexp.MustCompile(`orders \(paused\) .* 500 +n1`)
	wait.Until(t, func() bool { return rate.MatchString(r.Said()) }, "50 messages in 100 ms")
	r.Cancel()
	require.NoError(t, r.Ends(), "Ctrl-C is no failure")
	r = clitest.Begin(t, newRoot(), "stats", "--interval=100ms", "-o=json", at)
	wait.Until(t, func() bool { return strings.Count(r.Said(), `[{"broker":"n1"`) > 1 }, "a second line")
	r.Cancel()
	require.NoError(t, r.Ends())
}

func TestPeekFollowsPages(t *testing.T) {
	at := "--nsqd-http-address=" + clitest.FakeBroker(t).Listener.Addr().String()
	out, err := run(t, time.Minute, "peek", "orders", at)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^0/0  a  .*  one\n0/1  b  .*  "\\xff"\n$`, out)
	_, err = run(t, time.Minute, "peek", "nothing", at)
	require.ErrorContains(t, err, `no topic "nothing"`)
}

func TestDumpNamesWhatItCannotRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	_, err := run(t, time.Minute, "dump", name)
	require.ErrorContains(t, err, "not a segment")
	segment := filepath.Join(t.TempDir(), "00000000000000000000.seg")
	require.NoError(t, os.WriteFile(segment, bytes.Repeat([]byte("no batch "), 50), 0o600))
	out, err := run(t, time.Minute, "dump", segment)
	require.ErrorContains(t, err, "damaged")
	require.Contains(t, out, "DAMAGED")
}

func TestHelpAndCompletion(t *testing.T) {
	root := newRoot()
	for _, c := range root.Commands() {
		require.NotEmpty(t, c.Short, c.Name())
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := run(t, time.Minute, "completion", shell)
		require.NoError(t, err)
		require.Contains(t, out, "nsqctl")
	}
}
