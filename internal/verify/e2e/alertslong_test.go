package e2e

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

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/testkit/skew"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// walking skips a test that is a part of the long walk alone.
func walking(t *testing.T) {
	t.Helper()
	processes(t)
	if !env.Long() {
		env.Skip(t, "run by make walk (LOCKSTEP_LONG=1)")
	}
}

// TestAlertOfAConsumer: brokers that were built with a clock that the test sets. A message is
// not consumed for more than ten minutes.
func TestAlertOfAConsumer(t *testing.T) {
	walking(t)
	promtool := judged(t)
	dir := t.TempDir()
	overlay, err := skew.Overlay(dir, "")
	require.NoError(t, err)
	t.Setenv(clusters.OverlayEnv, overlay)
	require.NoError(t, clusters.Build(dir))
	clock, err := skew.New(filepath.Join(dir, "clock"))
	require.NoError(t, err)
	t.Setenv(skew.Env, filepath.Join(dir, "clock"))
	c := layOutFrom(t, filepath.Join(dir, "nsqd"), freePorts(t, 3), 3)
	require.NoError(t, c.StartAll())
	c.ready()
	c.create(topic, channel, 3)
	putOnce(c.Brokers[0], topic, "held")
	w := newWalk(c)
	w.every /= 3
	w.scrape(8)
	w.expect()
	f := w.fail("stuck", "no consumer comes; the clock goes on by 15 minutes", "n2", func() { clock.Set(15 * time.Minute) })
	f.shown(topic + "/" + channel + ": the channel has no consumers")
	w.scrape(12)
	f.fires("LockstepConsumerStuck")
	f.noted()
	w.judge(promtool)
}

// TestAlertOfTheMetadata: a client of the embedded etcd fills its database.
func TestAlertOfTheMetadata(t *testing.T) {
	walking(t)
	promtool := judged(t)
	c := start(t, 3)
	c.create(topic, channel, 3)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Brokers[0].Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	w := newWalk(c)
	w.scrape(8)
	w.expect()
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
	f := w.fail("metadata-filling", "another program writes 415 MiB into the embedded etcd", "n1", func() { require.NoError(t, fill(1660)) })
	w.scrape(22)
	f.fires("LockstepMetadataFull")
	f.shown("metadata_full: the embedded etcd of n1 has used 8")
	f.asked(1, "the embedded etcd of n1 has used 8")
	f.noted()
	f = w.fail("metadata-full", "it writes until etcd refuses", "n1", func() {
		require.ErrorContains(t, fill(800), "database space exceeded")
	})
	b := c.Brokers[0]
	// The broker returns free pages, and etcd takes writes again for a while: the program goes on.
	more := func() { _ = fill(100) }
	c.until("the page to say that etcd is full", func() bool {
		more()
		return strings.Contains(w.said(f.looked), "metadata_full: the embedded etcd of n1 is full and refuses all writes")
	})
	f.page = fmt.Sprintf("%.1f s: metadata_full", time.Since(f.caused).Seconds())
	var out string
	c.until("nsqctl to say so", func() bool {
		more()
		out, err = c.nsqctl("cluster", "health")
		return err != nil && strings.Contains(out, "the embedded etcd of n1 is full and refuses all writes")
	})
	require.Contains(t, out, "delete its keys with etcdctl")
	require.NotContains(t, out, "start the dead brokers")
	require.NotContains(t, out, "start the missing members")
	f.cli = strings.SplitN(out, "\n", 2)[0]
	_, err = client.Delete(t.Context(), "/fill/", clientv3.WithPrefix())
	require.NoError(t, err)
	c.until("topics can be created", func() bool {
		resp, err := c.http.Post("http://"+b.HTTP+"/topic/create?topic=another", "", nil)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == 200
	})
	f.noted()
	w.judge(promtool)
}

// TestAlertOfASlowDisk: each sync of one broker takes long.
func TestAlertOfASlowDisk(t *testing.T) {
	walking(t)
	promtool := judged(t)
	c := start(t, 3)
	c.create(topic, channel, 3)
	c.publishing(topic, 1)
	w := newWalk(c)
	w.every = scrapeEvery / 3
	w.scrape(8)
	w.expect()
	var slow *exec.Cmd
	f := w.fail("disk-slow", "each sync of the disk of n3 takes 0.15 s longer", "n1", func() { slow = c.slowSyncs("n3", 150*time.Millisecond) })
	w.scrape(50)
	require.NoError(t, slow.Process.Signal(syscall.SIGINT))
	_ = slow.Wait() // strace ends with the signal
	f.fires("LockstepDiskSlow")
	f.noted()
	w.judge(promtool)
}

// slowSyncs delays each fdatasync of a broker until the process that it returns is interrupted.
func (c *cluster) slowSyncs(name string, by time.Duration) *exec.Cmd {
	c.t.Helper()
	b, err := c.Broker(name)
	require.NoError(c.t, err)
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-p", fmt.Sprint(b.PID), "-e", "trace=fdatasync",
		"-e", fmt.Sprintf("inject=fdatasync:delay_enter=%d", by.Microseconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		env.Missing(c.t, "strace", err)
	}
	return cmd
}

// TestAlertOfInSyncSets: a broker stands still, again and again.
func TestAlertOfInSyncSets(t *testing.T) {
	walking(t)
	promtool := judged(t)
	c := start(t, 3)
	c.create(topic, channel, 1)
	look := c.leader(topic)
	victim := c.other(look).Name
	c.publishing(topic, 1)
	w := newWalk(c)
	w.scrape(8)
	w.expect()
	f := w.fail("stutter", "a broker stands still for 1.5 s, five times", look, func() {
		for range 5 {
			require.NoError(t, c.Signal(victim, syscall.SIGSTOP))
			pause(1500 * time.Millisecond)
			require.NoError(t, c.Signal(victim, syscall.SIGCONT))
			c.whole(topic)
			w.scrape(2)
		}
	})
	f.shown("left the in-sync set")
	f.fires("LockstepInSyncSetsUnstable")
	f.noted()
	w.judge(promtool)
}

// stuckEnv names a file; while it is there, no pass of a core loop of the broker of stuckPasses ends.
const stuckEnv = "LOCKSTEP_STUCK"

// stuckPasses builds nsqd with a bug: a pass of a core loop waits. It returns the binary.
func stuckPasses(t *testing.T) (nsqd string) {
	t.Helper()
	const file = "../../../coordinator/engine/loop.go"
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
	walking(t)
	promtool := judged(t)
	stuck := filepath.Join(t.TempDir(), "stuck")
	t.Setenv(stuckEnv, stuck)
	c := layOutFrom(t, filepath.Join(t.TempDir(), "nsqd"), freePorts(t, 3), 3)
	c.runFrom(built.path("nsqd"))
	require.NoError(t, c.Start("n1"))
	require.NoError(t, c.Start("n2"))
	c.runFrom(stuckPasses(t))
	require.NoError(t, c.Start("n3"))
	c.ready()
	c.create(topic, channel, 3)
	c.until("n3 to lead", func() bool { return c.leadsSome(topic, "n3") })
	stop := c.publishing(topic, 1)
	w := newWalk(c)
	w.scrape(8)
	w.expect()
	f := w.fail("core-loop", "a pass of a core loop of n3 does not end, by a bug", "n1", func() { require.NoError(t, os.WriteFile(stuck, nil, 0o600)) })
	f.shown("broker_hangs")
	f.asked(1, "1 broker hangs: its disk or a core loop does not go on")
	c.until("a scrape of the loop that hangs", func() bool { w.scrape(1); return w.last("lockstep_core_loop_busy_seconds", "n3") > 1 })
	f.fires("LockstepCoreLoopStalled")
	c.until("others to lead", func() bool { return !c.leadsSome(topic, "n3") })
	f.page += fmt.Sprintf("; others lead after %.1f s", time.Since(f.caused).Seconds())
	c.until("a put", func() bool { return putOnce(c.Brokers[0], topic, "beside it") == history.OK })
	require.Contains(t, c.logged("n3"), "STALLED")
	require.NoError(t, os.Remove(stuck))
	f.gone("broker_hangs")
	f.noted()
	c.whole(topic)
	require.Contains(t, c.logged("n3"), "GOES ON after a stall")
	stop()
	c.check(topic)
	w.judge(promtool)
}

// leadsSome reports whether a broker leads a partition of a topic.
func (c *cluster) leadsSome(topic, broker string) bool {
	v, _ := c.topic(topic)
	return slices.ContainsFunc(v.Partitions, func(p edge.PartitionView) bool { return string(p.Leader) == broker })
}
