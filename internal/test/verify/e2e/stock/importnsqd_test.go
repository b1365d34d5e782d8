package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/stocknsq"
)

// stockFlags make an nsqd use its disk early: the queues have several files.
var stockFlags = []string{"--mem-queue-size=50", "--max-bytes-per-file=20000", "--sync-timeout=200ms"}

// importReport is the JSON of nsqctl import-nsqd.
type importReport struct {
	Queues []struct {
		Topic, Channel, Source string
		Counted                *int64
		Read, Published        int64
	}
	Topics []struct {
		Topic             string
		Published, Growth int64
	}
}

func (r importReport) published() (n int64) {
	for _, q := range r.Queues {
		n += q.Published
	}
	return n
}

// importNSQD imports a data path.
func importNSQD(c *e2etest.Cluster, dir string) importReport {
	c.T.Helper()
	out, problems, err := c.Ctl("import-nsqd", dir, "-o=json")
	require.NoError(c.T, err, "%s%s", out, problems)
	var r importReport
	require.NoError(c.T, json.Unmarshal([]byte(out), &r), out)
	return r
}

// stockTopics are the channels of the topics of these tests. Topic idle has no channel, and the
// topic held is paused.
var stockTopics = map[string][]string{"orders": {"audit", "billing"}, "held": {"later", "never"}, "idle": nil}

// fill publishes messages to a stock nsqd, and finishes some on the channel billing; others stay
// requeued with a delay, or in flight. It returns the published and the finished bodies.
func fill(t *testing.T, http string, tcp string, from, count int) (published map[string][]string, finished map[string]bool) {
	t.Helper()
	for topic, channels := range stockTopics {
		postStock(t, http, "/topic/create?topic="+topic)
		for _, ch := range channels {
			postStock(t, http, "/channel/create?topic="+topic+"&channel="+ch)
		}
	}
	postStock(t, http, "/topic/pause?topic=held")
	postStock(t, http, "/channel/pause?topic=orders&channel=audit")
	producer, err := nsq.NewProducer(tcp, nsq.NewConfig())
	require.NoError(t, err)
	producer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	defer producer.Stop()
	published = map[string][]string{}
	for topic := range stockTopics {
		for i := range count {
			body := fmt.Sprintf("%s-%06d-%s", topic, from+i, strings.Repeat("x", i%200))
			require.NoError(t, producer.Publish(topic, []byte(body)))
			published[topic] = append(published[topic], body)
		}
	}
	for i := range 20 {
		body := fmt.Sprintf("orders-%06d-deferred", from+i)
		require.NoError(t, producer.DeferredPublish("orders", time.Hour, []byte(body)))
		published["orders"] = append(published["orders"], body)
	}
	return published, finishSome(t, tcp, count/2)
}

// finishSome consumes the channel billing until it has finished some messages; every tenth is
// requeued for an hour.
func finishSome(t *testing.T, tcp string, count int) map[string]bool {
	t.Helper()
	var mu sync.Mutex
	finished, done := map[string]bool{}, make(chan struct{})
	config := nsq.NewConfig()
	config.MaxInFlight = 20
	config.MaxRequeueDelay = time.Hour
	config.MaxAttempts = 0 // else it finishes by itself what comes back often while it stops
	consumer, err := nsq.NewConsumer("orders", "billing", config)
	require.NoError(t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case len(finished) == count:
			m.RequeueWithoutBackoff(0)
		case m.ID[15]%10 == 0 && m.Attempts == 1:
			m.RequeueWithoutBackoff(time.Hour)
		default:
			finished[string(m.Body)] = true
			if len(finished) == count {
				close(done)
			}
		}
		return nil
	}))
	require.NoError(t, consumer.ConnectToNSQD(tcp))
	select {
	case <-done:
	case <-time.After(e2etest.WaitLimit):
		require.FailNow(t, "the stock nsqd does not deliver")
	}
	consumer.Stop()
	<-consumer.StopChan
	return finished
}

func postStock(t *testing.T, address, path string) {
	t.Helper()
	resp, err := e2etest.Passing.Post("http://"+address+path, "", nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, path)
}

// drainAll consumes a channel until the condition holds, and returns the number of deliveries of
// each body.
func drainAll(t *testing.T, tcp, topic, channel string, enough func(total int) bool) map[string]int {
	t.Helper()
	var mu sync.Mutex
	bodies, total := map[string]int{}, 0
	config := nsq.NewConfig()
	config.MaxInFlight = 500
	config.MaxAttempts = 0
	consumer, err := nsq.NewConsumer(topic, channel, config)
	require.NoError(t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		mu.Lock()
		defer mu.Unlock()
		bodies[string(m.Body)]++
		total++
		return nil
	}))
	require.NoError(t, consumer.ConnectToNSQD(tcp))
	e2etest.Within(t, e2etest.WaitLimit, "the messages of "+topic+"/"+channel, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return enough(total)
	})
	e2etest.Pause(300 * time.Millisecond) // for messages too many
	consumer.Stop()
	<-consumer.StopChan
	return bodies
}

// imported consumes all channels of Lockstep after an import, topic/channel by topic/channel. The
// first channel of a topic without one gets its messages.
func imported(c *e2etest.Cluster, r importReport) map[string]map[string]int {
	c.T.Helper()
	b := c.Brokers[0]
	for _, path := range []string{"/topic/unpause?topic=held", "/channel/unpause?topic=orders&channel=audit"} {
		postStock(c.T, b.HTTP, path)
	}
	all := map[string]map[string]int{}
	for topic, channels := range stockTopics {
		if channels == nil {
			channels = []string{"first"}
		}
		for _, ch := range channels {
			want := 0
			for _, q := range r.Queues {
				if q.Topic == topic && (q.Channel == ch || q.Channel == "") {
					want += int(q.Published)
				}
			}
			all[topic+"/"+ch] = drainAll(c.T, b.TCP, topic, ch, func(total int) bool { return total >= want })
		}
	}
	return all
}

// TestImportNSQD: every message of a stopped stock nsqd, and none more, comes to the channels that
// had not finished it: backlogs on disk, in memory and in flight, deferred and requeued ones.
func TestImportNSQD(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	stock, dir := stocknsq.Build(t), t.TempDir()
	n := stock.NSQD(t, dir, stockFlags...)
	published, finished := fill(t, n.HTTP, n.TCP, 0, 1500)
	c := e2etest.Start(t, 3)
	_, problems, err := c.Ctl("import-nsqd", dir)
	require.Error(t, err)
	require.Contains(t, problems, "a running nsqd uses it")
	n.Stop()

	before := snapshot(t, dir)
	out, problems, err := c.Ctl("import-nsqd", dir, "--dry-run", "-o=json")
	require.NoError(t, err, problems)
	require.Equal(t, before, snapshot(t, dir), "a dry run writes nothing")
	var dry importReport
	require.NoError(t, json.Unmarshal([]byte(out), &dry))
	require.Zero(t, dry.published())
	require.Empty(t, c.Topics())

	_, problems, err = c.Ctl("topic", "create", "orders", "--dedupe", "content", "--partitions", "2") // one body for two channels is no repeat
	require.NoError(t, err, problems)
	r := importNSQD(c, dir)
	require.Empty(t, problems, "nothing is left out")
	for i, q := range r.Queues {
		require.Equal(t, *q.Counted, q.Read, "%+v", q)
		require.Equal(t, q.Read, q.Published, "%+v", q)
		require.Equal(t, q.Read, dry.Queues[i].Read, "%+v", q)
	}
	for _, x := range r.Topics {
		require.Equal(t, x.Published, x.Growth, "%+v", x)
	}
	again := importNSQD(c, dir)
	require.Equal(t, r.published(), again.published())
	require.Equal(t, r.Topics, again.Topics, "the second import has published nothing")

	for name, got := range imported(c, r) {
		topic, channel, _ := strings.Cut(name, "/")
		want := map[string]int{}
		for _, body := range published[topic] {
			if channel != "billing" || !finished[body] {
				want[body]++
			}
		}
		require.Equal(t, len(want), len(got), name)
		require.Equal(t, want, got, name)
	}
	n = stock.NSQD(t, dir, stockFlags...) // one that runs again changes the queues
	finishSome(t, n.TCP, 100)
	n.Stop()
	_, problems, err = c.Ctl("import-nsqd", dir)
	require.Error(t, err)
	require.Contains(t, problems, "an nsqd has changed the queue")
}

// snapshot is the content of all files of a directory.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

// TestImportNSQDAfterKill: after kill -9, everything that the stock nsqd delivers after a restart on
// a copy of the data path is in Lockstep.
func TestImportNSQDAfterKill(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	stock := stocknsq.Build(t)
	c := e2etest.Start(t, 1)
	for round := range e2etest.Rounds(1, 20) {
		dir, restarted := t.TempDir(), filepath.Join(t.TempDir(), "copy")
		n := stock.NSQD(t, dir, stockFlags...)
		published, _ := fill(t, n.HTTP, n.TCP, round*10_000, 1000)
		n.Kill()
		require.NoError(t, os.CopyFS(restarted, os.DirFS(dir)))

		n = stock.NSQD(t, restarted, stockFlags...)
		postStock(t, n.HTTP, "/topic/unpause?topic=held")
		postStock(t, n.HTTP, "/channel/unpause?topic=orders&channel=audit")
		delivered := map[string]map[string]int{}
		for topic, channels := range stockTopics {
			if channels == nil {
				channels = []string{"first"}
			}
			for _, ch := range channels {
				last, since := -1, time.Now()
				delivered[topic+"/"+ch] = drainAll(t, n.TCP, topic, ch, func(total int) bool {
					if total != last {
						last, since = total, time.Now()
					}
					return time.Since(since) > 500*time.Millisecond && leftAtStock(t, n.HTTP, topic, ch) == 0
				})
			}
		}
		n.Kill()

		interruptImport(c, dir)
		script := strings.NewReplacer("/var/lib/nsqd", dir, "ls1.example:4150", c.Brokers[0].TCP, "ls1.example:4151", c.Brokers[0].HTTP, "nsqctl ", e2etest.Built.Path("nsqctl")+" ").Replace(guideCommands(t)["import"])
		out, err := exec.Command("sh", "-euc", script).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Regexp(t, `total +[1-9][0-9]* +0\n(?s:.*)total +[1-9][0-9]* +[1-9]`, string(out), "a dry run, then the import")
		r := importNSQD(c, dir)
		for _, x := range r.Topics {
			// A put without an answer at the end is repeated: at most the window of one queue.
			require.Less(t, x.Growth-x.Published, int64(1000), "%s: it continued: %+v", x.Topic, r.Topics)
		}
		got := imported(c, r)
		more, twice := 0, 0
		for name, bodies := range delivered {
			topic, _, _ := strings.Cut(name, "/")
			for body := range bodies {
				require.Positive(t, got[name][body], "%s: the stock nsqd has delivered %.40s", name, body)
			}
			for body, n := range got[name] {
				require.True(t, slices.Contains(published[topic], body), "%s: nothing else: %.40s", name, body)
				if bodies[body] == 0 {
					more++
				}
				twice += n - 1
			}
		}
		total := 0
		for _, bodies := range delivered {
			total += len(slices.Collect(maps.Keys(bodies)))
		}
		require.Positive(t, total)
		t.Logf("kill %d: the stock nsqd delivers %d messages after it; all of them came, %d more, %d twice", round+1, total, more, twice)
		for topic := range stockTopics {
			postStock(t, c.Brokers[0].HTTP, "/topic/delete?topic="+topic)
		}
	}
}

// slowProxy passes about 200 KB a second to a broker, until cut ends its connections.
func slowProxy(t *testing.T, broker string) (address string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var passing sync.WaitGroup
	pass := func(client net.Conn) {
		to, err := net.Dial("tcp", broker)
		if err != nil {
			_ = client.Close()
			return
		}
		context.AfterFunc(ctx, func() { _ = client.Close(); _ = to.Close() })
		passing.Go(func() { _, _ = io.Copy(client, to); _ = client.Close() })
		defer to.Close()
		b := make([]byte, 4096)
		for {
			n, err := client.Read(b)
			if _, failed := to.Write(b[:n]); err != nil || failed != nil {
				return
			}
			e2etest.Pause(20 * time.Millisecond)
		}
	}
	passing.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { pass(client) })
		}
	})
	return l.Addr().String(), func() {
		_ = l.Close()
		cancel()
		passing.Wait()
	}
}

// interruptImport stops an import by Ctrl-C when its first queues are done. The others take seconds.
func interruptImport(c *e2etest.Cluster, dir string) {
	c.T.Helper()
	address, cut := slowProxy(c.T, c.Brokers[0].TCP)
	defer cut()
	var problems strings.Builder
	cmd := exec.Command(e2etest.Built.Path("nsqctl"), "import-nsqd", dir, "--nsqd-tcp-address="+address, "--nsqd-http-address="+c.Brokers[0].HTTP)
	cmd.Stderr = &problems
	require.NoError(c.T, cmd.Start())
	published := regexp.MustCompile(`"published":[1-9]`)
	e2etest.Within(c.T, e2etest.WaitLimit, "the first queue", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "lockstep-import.json"))
		return published.Match(text)
	})
	_ = cmd.Process.Signal(os.Interrupt)
	require.Error(c.T, cmd.Wait(), "it ended before the interruption")
	require.Contains(c.T, problems.String(), "the same command continues")
}

// leftAtStock is the number of messages that a channel of an nsqd has in any state but deferred.
func leftAtStock(t *testing.T, address, topic, channel string) int64 {
	t.Helper()
	var v struct {
		Topics []api.TopicStats `json:"topics"`
	}
	if clusters.Get(e2etest.Passing, address, "/stats?format=json&topic="+topic+"&channel="+channel, &v) != nil {
		return -1
	}
	left := int64(0)
	for _, x := range v.Topics {
		left += x.Depth
		for _, ch := range x.Channels {
			left += ch.Depth + int64(ch.InFlightCount)
		}
	}
	return left
}
