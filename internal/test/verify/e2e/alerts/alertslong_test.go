package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/skew"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestAlertOfAConsumer: brokers that were built with a clock that the test sets. A message is
// not consumed for more than ten minutes.
func TestAlertOfAConsumer(t *testing.T) {
	e2etest.Walking(t)
	promtool := e2etest.Judged(t)
	dir := t.TempDir()
	overlay, err := skew.Overlay(dir, "")
	require.NoError(t, err)
	t.Setenv(clusters.OverlayEnv, overlay)
	require.NoError(t, clusters.Build(dir))
	clock, err := skew.New(filepath.Join(dir, "clock"))
	require.NoError(t, err)
	t.Setenv(skew.Env, filepath.Join(dir, "clock"))
	c := e2etest.LayOutFrom(t, filepath.Join(dir, "nsqd"), e2etest.FreePorts(t, 3), 3)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "held")
	w := e2etest.NewWalk(c)
	w.Every /= 3
	w.Scrape(8)
	w.Expect()
	f := w.Fail("stuck", "no consumer comes; the clock goes on by 15 minutes", "n2", func() { clock.Set(15 * time.Minute) })
	f.Shown(e2etest.Topic + "/" + e2etest.Channel + ": the channel has no consumers")
	w.Scrape(12)
	f.Fires("LockstepConsumerStuck")
	f.Noted()
	w.Judge(promtool)
}

// TestAlertOfTheMetadata: a client of the embedded etcd fills its database.
func TestAlertOfTheMetadata(t *testing.T) {
	e2etest.Walking(t)
	promtool := e2etest.Judged(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Brokers[0].Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	value := strings.Repeat("x", 256<<10)
	written := 0
	fill := func(values int) error {
		for range values {
			if _, err := client.Put(t.Context(), fmt.Sprintf("/fill/%d", written), value); err != nil {
				return err
			}
			written++
		}
		return nil
	}
	f := w.Fail("metadata-filling", "another program writes 415 MiB into the embedded etcd", "n1", func() { require.NoError(t, fill(1660)) })
	w.Scrape(22)
	f.Fires("LockstepMetadataFull")
	f.Shown("metadata_full: the embedded etcd of n1 has used 8")
	f.Asked(1, "the embedded etcd of n1 has used 8")
	f.Noted()
	f = w.Fail("metadata-full", "it writes until etcd refuses", "n1", func() {
		require.ErrorContains(t, fill(800), "database space exceeded")
	})
	b := c.Brokers[0]
	// The broker returns free pages, and etcd takes writes again for a while: the program continues.
	more := func() { _ = fill(100) }
	c.Until("the page to say that etcd is full", func() bool {
		more()
		return strings.Contains(w.Said(f.Looked), "metadata_full: the embedded etcd of n1 is full and refuses all writes")
	})
	f.Page = fmt.Sprintf("%.1f s: metadata_full", time.Since(f.Caused).Seconds())
	var out string
	c.Until("nsqctl to say so", func() bool {
		more()
		out, err = c.Nsqctl("cluster", "health")
		return err != nil && strings.Contains(out, "the embedded etcd of n1 is full and refuses all writes")
	})
	require.Contains(t, out, "delete its keys with etcdctl")
	require.NotContains(t, out, "start the dead brokers")
	require.NotContains(t, out, "start the missing members")
	f.Cli = strings.SplitN(out, "\n", 2)[0]
	_, err = client.Delete(t.Context(), "/fill/", clientv3.WithPrefix())
	require.NoError(t, err)
	c.Until("topics can be created", func() bool {
		resp, err := c.HTTP.Post("http://"+b.HTTP+"/topic/create?topic=another", "", nil)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == 200
	})
	f.Noted()
	w.Judge(promtool)
}

// TestAlertOfASlowDisk: each sync of one broker takes long.
func TestAlertOfASlowDisk(t *testing.T) {
	e2etest.Walking(t)
	promtool := e2etest.Judged(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Every = e2etest.ScrapeEvery / 3
	w.Scrape(8)
	w.Expect()
	var slow *exec.Cmd
	f := w.Fail("disk-slow", "each sync of the disk of n3 takes 0.15 s longer", "n1", func() { slow = slowSyncs(c, "n3", 150*time.Millisecond) })
	w.Scrape(50)
	require.NoError(t, slow.Process.Signal(syscall.SIGINT))
	_ = slow.Wait() // strace ends with the signal
	f.Fires("LockstepDiskSlow")
	f.Noted()
	w.Judge(promtool)
}

// slowSyncs delays each fdatasync of a broker until the process that it returns is interrupted.
func slowSyncs(c *e2etest.Cluster, name string, by time.Duration) *exec.Cmd {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-p", fmt.Sprint(b.PID), "-e", "trace=fdatasync",
		"-e", fmt.Sprintf("inject=fdatasync:delay_enter=%d", by.Microseconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		env.Missing(c.T, "strace", err)
	}
	return cmd
}

// TestAlertOfInSyncSets: a broker stands still, again and again.
func TestAlertOfInSyncSets(t *testing.T) {
	e2etest.Walking(t)
	promtool := e2etest.Judged(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	look := c.Leader(e2etest.Topic)
	victim := c.Other(look).Name
	c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	f := w.Fail("stutter", "a broker stands still for 1.5 s, five times", look, func() {
		for range 5 {
			require.NoError(t, c.Signal(victim, syscall.SIGSTOP))
			e2etest.Pause(1500 * time.Millisecond)
			require.NoError(t, c.Signal(victim, syscall.SIGCONT))
			c.Whole(e2etest.Topic)
			w.Scrape(2)
		}
	})
	f.Shown("left the in-sync set")
	f.Fires("LockstepInSyncSetsUnstable")
	f.Noted()
	w.Judge(promtool)
}

// stuckEnv names a file; while it is there, no pass of a core loop of the broker of stuckPasses ends.
const stuckEnv = "LOCKSTEP_STUCK"

// stuckPasses builds nsqd with a bug: a pass of a core loop waits. It returns the binary.
func stuckPasses(t *testing.T) (nsqd string) {
	t.Helper()
	const file = "../../../../../coordinator/engine/loop.go"
	source, err := filepath.Abs(file)
	require.NoError(t, err)
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	const imports, begins = "import (\n", "\tdefer l.passes.End()\n"
	for _, place := range []string{imports, begins} {
		require.Equal(t, 1, strings.Count(string(text), place), "%s: %s", file, place)
	}
	changed := strings.Replace(string(text), imports, imports+"\t\"os\"\n", 1)
	changed = strings.Replace(changed, begins, begins+`	for _, err := os.Stat(os.Getenv("`+stuckEnv+`")); err == nil; _, err = os.Stat(os.Getenv("`+stuckEnv+`")) {
		time.Sleep(10 * time.Millisecond)
	}
`, 1)
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop.go")
	require.NoError(t, os.WriteFile(loop, []byte(changed), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: loop}})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	t.Setenv(clusters.OverlayEnv, overlay)
	require.NoError(t, clusters.Build(dir))
	return filepath.Join(dir, "nsqd")
}

// TestAlertOfACoreLoop: one of three brokers is built with a bug in its core loops. A pass does not end;
// others take its leaderships, and it joins again when the pass has ended.
func TestAlertOfACoreLoop(t *testing.T) {
	e2etest.Walking(t)
	promtool := e2etest.Judged(t)
	stuck := filepath.Join(t.TempDir(), "stuck")
	t.Setenv(stuckEnv, stuck)
	c := e2etest.LayOutFrom(t, filepath.Join(t.TempDir(), "nsqd"), e2etest.FreePorts(t, 3), 3)
	c.RunFrom(e2etest.Built.Path("nsqd"))
	require.NoError(t, c.Start("n1"))
	require.NoError(t, c.Start("n2"))
	c.RunFrom(stuckPasses(t))
	require.NoError(t, c.Start("n3"))
	c.WaitReady()
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	c.Until("n3 to lead", func() bool { return leadsSome(c, e2etest.Topic, "n3") })
	stop := c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	f := w.Fail("core-loop", "a pass of a core loop of n3 does not end, by a bug", "n1", func() { require.NoError(t, os.WriteFile(stuck, nil, 0o600)) })
	f.Shown("broker_hangs")
	f.Asked(1, "1 broker hangs: its disk or a core loop is stuck")
	c.Until("a scrape of the loop that hangs", func() bool { w.Scrape(1); return last(w.Scrapes, "lockstep_core_loop_busy_seconds", "n3") > 1 })
	f.Fires("LockstepCoreLoopStalled")
	c.Until("others to lead", func() bool { return !leadsSome(c, e2etest.Topic, "n3") })
	f.Page += fmt.Sprintf("; others lead after %.1f s", time.Since(f.Caused).Seconds())
	c.Until("a put", func() bool { return e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "beside it") == judge.OK })
	require.Contains(t, c.Logged("n3"), "stalled: ")
	require.NoError(t, os.Remove(stuck))
	f.Gone("broker_hangs")
	f.Noted()
	c.Whole(e2etest.Topic)
	require.Contains(t, c.Logged("n3"), "stall ended")
	stop()
	c.Check(e2etest.Topic)
	w.Judge(promtool)
}

// leadsSome reports whether a broker leads a partition of a topic.
func leadsSome(c *e2etest.Cluster, topic, broker string) bool {
	v, _ := c.Topic(topic)
	return slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool { return string(p.Leader) == broker })
}
