package walk

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestWalkOfACutOffBroker: the others and n3 do not reach each other, and all of them reach the metadata. n3 keeps its
// registration: it is not dead, and to start it does not help.
func TestWalkOfACutOffBroker(t *testing.T) {
	e2etest.Walking(t)
	if os.Getenv(e2etest.NetworkEnv) == "" {
		e2etest.InNamespace(t, e2etest.NetworkEnv+"=1")
		return
	}
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	stop := c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	_, port, err := net.SplitHostPort(c.Brokers[2].RPC)
	require.NoError(t, err)
	cut := fmt.Sprintf("table inet cut { chain out { type filter hook output priority 0\n tcp dport %s drop\n tcp sport %s drop\n }\n}\n", port, port)
	f := w.Fail("cut-off", "n3 is cut off from the others, and reaches the metadata", "n1", func() { e2etest.Nft(t, cut) })
	f.Shown("broker_unreachable: 1 broker is registered and does not answer n1")
	f.Asked(1, "1 broker is registered and does not answer n1")
	require.NotContains(t, w.Said(f.Looked), "broker_dead")
	out, err := c.Nsqctl("cluster", "status")
	require.NoError(t, err)
	require.Regexp(t, `n3 +false .*registered, does not answer n1`, out)
	waits(c, "n3", "reaches none of the other brokers")
	e2etest.Nft(t, "flush ruleset\n")
	f.Gone("broker_unreachable")
	c.Whole(e2etest.Topic)
	f.Noted()

	f = w.Fail("cut-off-itself", "the same, looked at on n3", "n3", func() { e2etest.Nft(t, cut) })
	f.Shown("broker_unreachable: n3 reaches none of the other brokers")
	f.Asked(2, "n3 reaches none of the other brokers")
	e2etest.Nft(t, "flush ruleset\n")
	f.Gone("broker_unreachable")
	c.Whole(e2etest.Topic)
	f.Noted()
	stop()
	c.Check(e2etest.Topic)
}

// TestWalkOfForeignDisks: n3 is started with a database of etcd that the system does not open, and on a disk of another foundation;
// n1 on a copy of its disk, while too few others run.
func TestWalkOfForeignDisks(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	n1, n3 := c.Brokers[0], c.Brokers[2]

	db := filepath.Join(n3.DataDir, "etcd", "member", "snap", "db")
	f := w.Fail("etcd-files", "n3 is started with a database of etcd that is a link to itself", "n1", func() {
		c.Crash("n3")
		require.NoError(t, errors.Join(os.Rename(db, db+".away"), os.Symlink("db", db)))
		require.Contains(t, startsNot(c, "n3", ""), "the operating system refuses access")
	})
	deadUntil(f, "n3", func() { require.NoError(t, errors.Join(os.Remove(db), os.Rename(db+".away", db))) })

	record := filepath.Join(n3.DataDir, "node.json")
	own, err := os.ReadFile(record)
	require.NoError(t, err)
	another := regexp.MustCompile(`("foundation":\s*\{\s*"id":\s*")[^"]+`).ReplaceAll(own, []byte("${1}another"))
	require.NotEqual(t, string(own), string(another))
	f = w.Fail("foundation", "n3 is started on a disk of another foundation", "n1", func() {
		c.Crash("n3")
		require.NoError(t, os.WriteFile(record, another, 0o600))
		require.Contains(t, startsNot(c, "n3", ""), "belongs to another foundation")
	})
	deadUntil(f, "n3", func() { require.NoError(t, os.WriteFile(record, own, 0o600)) })

	yesterday := n1.DataDir + ".yesterday"
	c.Crash("n1")
	require.NoError(t, exec.Command("cp", "-a", n1.DataDir, yesterday).Run())
	c.Crash("n3") // before n1's later life: n3 is no witness of it, the marks of the copy are
	c.Restart("n1")
	e2etest.MultiPut(t, n1, e2etest.Topic, e2etest.Numbered("new", 500), 20)
	f = w.Fail("copy-without-others", "n1 is started on an older copy of its disk with n3, and n2 does not run", "n1", func() {
		c.Crash("n1")
		c.Crash("n2")
		require.NoError(t, errors.Join(os.RemoveAll(n1.DataDir), os.Rename(yesterday, n1.DataDir), c.Start("n1"), c.Start("n3")))
	})
	noPage(f, "the data path is a copy")
	require.NoError(t, c.Start("n2"))
	for _, b := range c.Brokers {
		c.ReadyAgain(b.Name)
	}
	c.Whole(e2etest.Topic)
	f.Noted()
	c.Check(e2etest.Topic)
}

// deadUntil is for a broker that does not start until its disk is mended: it is dead for the others.
func deadUntil(f *e2etest.Failure, broker string, mend func()) {
	f.W.C.T.Helper()
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	mend()
	require.NoError(f.W.C.T, f.W.C.Start(broker))
	f.W.C.ReadyAgain(broker)
	f.Gone("broker_dead")
	f.W.C.Whole(e2etest.Topic)
	f.Noted()
}

// noPage is for a broker that waits: it gives the reason in place of a page, after --put-hold (9 s), and nsqctl repeats it.
func noPage(f *e2etest.Failure, reason string) {
	t := f.W.C.T
	t.Helper()
	waits(f.W.C, f.Looked.Name, reason)
	browser := http.Client{Timeout: 15 * time.Second}
	resp, err := browser.Get("http://" + f.Looked.HTTP + "/ui")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Contains(t, string(text), reason)
	f.Page = fmt.Sprintf("%.1f s: no page; in its place %d: %s …", time.Since(f.Caused).Seconds(), resp.StatusCode, reason)
	out, err := exec.Command(e2etest.Built.Path("nsqctl"), "cluster", "health", "--nsqd-http-address", f.Looked.HTTP).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(t, err, &exit)
	require.Contains(t, string(out), reason)
	f.Cli = fmt.Sprintf("%d: %s", exit.ExitCode(), strings.SplitN(string(out), "\n", 2)[0])
}
