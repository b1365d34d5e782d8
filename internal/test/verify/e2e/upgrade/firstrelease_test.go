package upgrade

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/e2e/history"
)

// firstRelease is the commit that stands for the release before this one: its data paths open,
// and its brokers work beside those of this build.
const firstRelease = "4b75fd6ba519de721d8ce4026c1b5d2ab372038c"

// firstReleaseData is a data path of that build, killed with SIGKILL. Made by
// go test ./internal/test/verify/e2e -run TestFirstReleaseOpens -make-first-release NSQD.
const firstReleaseData = "testdata/first-release.tar.zst"

var makeFirstRelease = flag.String("make-first-release", "", "nsqd of the first release: make "+firstReleaseData+" anew")

// left is what the data path of the first release holds.
type left struct {
	Waiting  []string `json:"waiting"`  // of channel billing: not finished, and due
	Deferred []string `json:"deferred"` // published with a delay of many years
	Finished []string `json:"finished"`
}

// TestFirstReleaseOpens: this build takes over a data path of the first release, with its
// metadata: nothing that was not finished is missing, nothing that was finished comes again, and
// pauses, policies and delays are as they were. The same after kill -9.
func TestFirstReleaseOpens(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	if *makeFirstRelease != "" {
		packFirstRelease(t, *makeFirstRelease)
	}
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 1), 1)
	want := unpackFirstRelease(t, c.Brokers[0].DataDir)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Until("the feature level of this build", func() bool {
		var v api.ClusterView
		return c.Get(c.Brokers[0], "/v1/cluster", &v) == nil && v.Level == metadata.Level
	})
	for _, again := range []bool{false, true} {
		if again {
			c.Crash("n1")
			c.Restart("n1")
		}
		var policy api.ChannelPolicy
		require.NoError(t, c.Get(c.Brokers[0], "/v1/channel/policy?topic=orders&channel=billing", &policy))
		require.Equal(t, api.ChannelPolicy{MaxAttempts: 7, DeadLetterTopic: "orders.dead", BackoffMS: 1000, BackoffFactor: 2, BackoffMaxMS: 60_000, BackoffJitter: 0.2}, policy)
		c.Until("all messages in the paused channel", func() bool {
			var s struct{ Topics []api.TopicStats }
			if c.Get(c.Brokers[0], "/stats?format=json&topic=orders", &s) != nil || len(s.Topics) == 0 {
				return false
			}
			held := int64(0)
			for _, ch := range s.Topics[0].Channels {
				require.Equal(t, ch.ChannelName == "paused", ch.Paused)
				if ch.ChannelName == "paused" {
					held = ch.Depth + int64(ch.DeferredCount)
				}
			}
			return held == int64(len(want.Waiting)+len(want.Deferred)+len(want.Finished))
		})
		var deferred struct{ Messages []api.DeferredMessage }
		require.NoError(t, c.Get(c.Brokers[0], "/v1/channel/deferred?topic=orders&channel=billing", &deferred))
		require.Len(t, deferred.Messages, len(want.Deferred))
	}
	got := take(c, "billing", len(want.Waiting), func(m *nsq.Message) bool { m.Finish(); return true })
	require.ElementsMatch(t, want.Waiting, got)
	c.Must("topic", "partitions", "orders", "4")
	require.Equal(t, history.OK, e2etest.PutOnce(c.Brokers[0], "orders", "later"))
	c.Post(c.Brokers[0], "/channel/unpause", url.Values{"topic": {"orders"}, "channel": {"paused"}})
	all := take(c, "paused", len(want.Waiting)+len(want.Finished)+1, func(m *nsq.Message) bool { m.Finish(); return true })
	require.ElementsMatch(t, all, append(slices.Concat(want.Waiting, want.Finished), "later"))
}

// take consumes a channel of topic orders until n messages were settled, and returns their bodies.
func take(c *e2etest.Cluster, channel string, n int, settle func(*nsq.Message) bool) (bodies []string) {
	c.T.Helper()
	config := nsq.NewConfig()
	config.MaxInFlight = 1
	config.MaxAttempts = 0 // else it finishes by itself what comes back often
	consumer, err := nsq.NewConsumer("orders", channel, config)
	require.NoError(c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	taken := make(chan string, n)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		m.DisableAutoResponse()
		if len(taken) == n || !settle(m) {
			m.RequeueWithoutBackoff(0)
			return nil
		}
		taken <- string(m.Body)
		return nil
	}))
	require.NoError(c.T, consumer.ConnectToNSQD(c.Brokers[0].TCP))
	c.Until(fmt.Sprintf("%d messages of %s", n, channel), func() bool { return len(taken) == n })
	consumer.Stop()
	<-consumer.StopChan
	close(taken)
	for body := range taken {
		bodies = append(bodies, body)
	}
	return bodies
}

// century is the delay of messages that are never due while this test is there.
const century = 100 * 365 * 24 * time.Hour

// packFirstRelease makes the data path: messages in two partitions, of which a channel has
// finished some; delayed messages; a paused channel; a policy.
func packFirstRelease(t *testing.T, nsqd string) {
	c := e2etest.LayOutFrom(t, filepath.Join(t.TempDir(), "nsqd"), e2etest.FreePorts(t, 1), 1, "--max-req-timeout="+century.String())
	c.RunFrom(nsqd)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	b := c.Brokers[0]
	c.Post(b, "/topic/create", url.Values{"topic": {"orders"}, "partitions": {"2"}})
	for _, name := range []string{"billing", "paused"} {
		c.Post(b, "/channel/create", url.Values{"topic": {"orders"}, "channel": {name}})
	}
	c.Post(b, "/channel/pause", url.Values{"topic": {"orders"}, "channel": {"paused"}})
	c.Post(b, "/v1/channel/policy", url.Values{"topic": {"orders"}, "channel": {"billing"}, "max_attempts": {"7"}, "dead_letter_topic": {"orders.dead"}, "retry_backoff": {"1s,2,1m,0.2"}})
	var have left
	put := func(body, arguments string) string {
		resp, err := c.HTTP.Post("http://"+b.HTTP+"/pub?topic=orders"+arguments, "", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return body
	}
	for i := range 60 {
		have.Waiting = append(have.Waiting, put(fmt.Sprintf("message %d of the first release", i), ""))
		if i%12 == 0 {
			have.Deferred = append(have.Deferred, put(fmt.Sprintf("much later, %d", i), fmt.Sprintf("&defer=%d", century.Milliseconds())))
		}
	}
	have.Finished = take(c, "billing", 20, func(m *nsq.Message) bool { m.Finish(); return true })
	e2etest.Pause(time.Second) // until the finishes are durable
	have.Waiting = slices.DeleteFunc(have.Waiting, func(body string) bool { return slices.Contains(have.Finished, body) })
	c.Crash("n1")
	expected, err := json.MarshalIndent(have, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.DataDir, "expected.json"), expected, 0o600))
	out, err := os.Create(firstReleaseData)
	require.NoError(t, err)
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	require.NoError(t, err)
	w := tar.NewWriter(z)
	require.NoError(t, w.AddFS(os.DirFS(b.DataDir)))
	require.NoError(t, errors.Join(w.Close(), z.Close(), out.Close()))
}

// unpackFirstRelease fills a data path.
func unpackFirstRelease(t *testing.T, dir string) (want left) {
	t.Helper()
	in, err := os.Open(firstReleaseData)
	require.NoError(t, err)
	defer in.Close()
	z, err := zstd.NewReader(in)
	require.NoError(t, err)
	defer z.Close()
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.FileInfo().IsDir() {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = io.Copy(f, r)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	content, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "expected.json")))
	require.NoError(t, json.Unmarshal(content, &want))
	return want
}

// buildFirstRelease builds nsqd of the first release from the history of this repository.
func buildFirstRelease(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err == nil {
		err = exec.Command("git", "cat-file", "-e", firstRelease+"^{commit}").Run()
	}
	if err != nil {
		env.Missing(t, "the history of this repository with commit "+firstRelease, err)
	}
	dir := t.TempDir()
	source := exec.Command("sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", firstRelease, dir)
	source.Dir = strings.TrimSpace(string(root))
	out, err := source.CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := exec.Command("go", "build", "-trimpath", "-o", "nsqd-first-release", "./cmd/nsqd")
	build.Dir = dir
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "nsqd-first-release")
}

// TestUpgradeFromTheFirstRelease: of three brokers of the first release under load two are replaced one at a time and
// go back, which the feature level allows until all are new; then all are replaced. Afterwards the first release
// is refused. No producer at a broker that is up sees an error, and nothing is lost.
func TestUpgradeFromTheFirstRelease(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	old, present := buildFirstRelease(t), e2etest.Built.Path("nsqd")
	c := e2etest.LayOutFrom(t, filepath.Join(t.TempDir(), "nsqd"), e2etest.FreePorts(t, 3), 3)
	c.RunFrom(old)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Create(e2etest.Topic, e2etest.Channel, 6)
	s := c.Loaded(1)
	replace := func(name, nsqd string) {
		c.Down.Begin(name)
		require.NoError(t, c.Stop(name, 20*time.Second))
		c.RunFrom(nsqd)
		c.Restart(name)
		c.Whole(e2etest.Topic)
		s.WaitProgress(e2etest.Rounds(200, 20_000))
	}
	level := func() int {
		var v api.ClusterView
		require.NoError(t, c.Get(c.Brokers[0], "/v1/cluster", &v))
		return v.Level
	}
	before := level()
	for _, nsqd := range []string{present, old} { // back, as long as one broker of the first release is there
		for _, name := range e2etest.Names(c)[:2] {
			replace(name, nsqd)
			require.Equal(t, before, level(), "a broker of the first release is there")
		}
	}
	for _, name := range e2etest.Names(c) {
		out, err := c.Nsqctl("cluster", "upgrade", "status")
		require.Error(t, err, "not done: %s", out)
		require.Equal(t, before, level(), "a broker of the first release is there")
		replace(name, present)
	}
	c.Until("the feature level of this build", func() bool { return level() == metadata.Level })
	out, err := c.Nsqctl("cluster", "upgrade", "status")
	require.NoError(t, err, out)
	c.Crash("n2")
	c.RunFrom(old)
	require.NoError(t, c.Start("n2"))
	c.Until("the old build is refused", func() bool { return slices.Contains(c.Dead(), "n2") })
	c.RunFrom(present)
	c.Restart("n2")
	s.Finish(t)
}
