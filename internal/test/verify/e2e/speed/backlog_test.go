package speed

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const blob = 64 << 10

// TestEightChannelsOneCopy: a channel is a place in the log, not a copy of it;
// and one that is far behind reads fast, without costing producers or memory.
func TestEightChannelsOneCopy(t *testing.T) {
	const topic = "blobs"
	messages := e2etest.Rounds(64<<20, 1<<30) / blob
	c := e2etest.Start(t, 3, "--max-bytes-per-file=16777216")
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "retention_time": {"1h"}})
	for i := range 8 {
		c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {fmt.Sprintf("c%d", i)}})
	}
	blobs(c, topic, messages)
	c.Whole(topic)
	for _, b := range c.Brokers {
		bytes := int64(0)
		c.Until("the messages of the journal to be in segments", func() bool {
			bytes = segments(c, b.Name)
			return bytes > int64(messages*blob)*8/10
		})
		t.Logf("%s: %d MiB of messages, %d MiB on disk, 8 channels", b.Name, messages*blob>>20, bytes>>20)
		require.Less(t, bytes, int64(messages*blob)*11/10)
	}

	// In turn: puts alone, puts while a channel reads everything, and, to
	// compare, puts while programs do nothing but take the processors.
	memory := c.WatchMemory()
	idle := readAll(c, topic, "c0", messages)
	var alone, beside, speed, busy []float64
	wait := func() { e2etest.Pause(time.Duration(e2etest.Rounds(1, 4)) * time.Second) }
	for i := range e2etest.Rounds(1, 7) {
		alone = append(alone, steadyPuts(c, "steady", 5000, wait))
		beside = append(beside, steadyPuts(c, "steady", 5000, func() {
			speed = append(speed, readAll(c, topic, fmt.Sprintf("c%d", i+1), messages))
		}))
		stop := occupy(c, runtime.NumCPU())
		busy = append(busy, steadyPuts(c, "steady", 5000, wait))
		stop()
	}
	t.Logf("a channel %d MiB behind reads %.0f MB/s, beside 5,000 puts/s %.0f %.0f",
		messages*blob>>20, idle, median(speed), speed)
	t.Logf("p99 of 5,000 puts/s: %.1f ms alone %.1f, %.1f ms beside it %.1f: %.2f ×",
		median(alone), alone, median(beside), beside, median(beside)/median(alone))
	t.Logf("beside a busy loop for each processor: %.1f ms %.1f: %.2f ×", median(busy), busy, median(busy)/median(alone))
	for name, m := range memory() {
		t.Logf("%s: %d MiB resident before, %d MiB at most", name, m.Before>>20, m.Most>>20)
		require.Less(t, m.Most-m.Before, int64(256<<20), "memory is not flat")
	}
	if env.Long() { // else there are too few puts
		// Where the processors are full anything that runs makes puts wait; a
		// reader may cost no more than programs do that touch nothing of ours.
		limit := 1.5 * e2etest.SlackFactor * max(median(alone), median(busy))
		require.Less(t, median(beside), limit, "promised 1.5 × of puts on a machine as busy")
	}
}

// blobs fills a topic.
func blobs(c *e2etest.Cluster, topic string, n int) {
	c.T.Helper()
	p := newProducer(c, 0)
	bodies := make([][]byte, 16)
	for i := range bodies {
		bodies[i] = []byte(strings.Repeat(string(rune('a'+i)), blob))
	}
	for range n / len(bodies) {
		require.NoError(c.T, p.MultiPublish(topic, bodies))
	}
}

// newProducer connects to one broker until the end of the test.
func newProducer(c *e2etest.Cluster, broker int) *nsq.Producer {
	c.T.Helper()
	p, err := nsq.NewProducer(c.Brokers[broker].TCP, nsq.NewConfig())
	require.NoError(c.T, err)
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	c.T.Cleanup(p.Stop)
	return p
}

// segments is how many bytes of segment files a broker has.
func segments(c *e2etest.Cluster, broker string) (bytes int64) {
	c.T.Helper()
	require.NoError(c.T, filepath.WalkDir(filepath.Join(c.Dir, broker), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".seg") {
			if info, statErr := d.Info(); statErr == nil {
				bytes += info.Size()
			}
		}
		return nil
	}))
	return bytes
}

// readAll drains a channel of n blobs and returns the megabytes per second. The
// reader is a process of its own: in this one, its work would delay the goroutines
// that measure the puts.
func readAll(c *e2etest.Cluster, topic, channel string, n int) float64 {
	c.T.Helper()
	args := []string{"tail", "--topic", topic, "--channel", channel, "-n", fmt.Sprint(n), "--max-in-flight", "192"}
	for _, b := range c.Brokers {
		args = append(args, "--nsqd-tcp-address", b.TCP)
	}
	ctx, cancel := context.WithTimeout(c.T.Context(), 2*e2etest.WaitLimit)
	defer cancel()
	begin := time.Now()
	require.NoError(c.T, exec.CommandContext(ctx, e2etest.Built.Path("nsqctl"), args...).Run(), "all messages of %s", channel)
	return float64(n) * blob / 1e6 / time.Since(begin).Seconds()
}

// occupy starts programs that are always busy, and returns what ends them.
func occupy(c *e2etest.Cluster, n int) (stop func()) {
	c.T.Helper()
	ctx, cancel := context.WithCancel(c.T.Context())
	var all []*exec.Cmd
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		require.NoError(c.T, cmd.Start())
		all = append(all, cmd)
	}
	return func() {
		cancel()
		for _, cmd := range all {
			_ = cmd.Wait() // it was killed
		}
	}
}

// steadyPuts puts small messages at a fixed rate, a third at each broker, while
// during runs, and returns the 99th percentile of their latency in ms,
// counted from when each was due.
func steadyPuts(c *e2etest.Cluster, topic string, perSecond int, during func()) float64 {
	c.T.Helper()
	var producers []*nsq.Producer
	for i := range c.Brokers {
		producers = append(producers, newProducer(c, i))
		require.NoError(c.T, producers[i].Publish(topic, []byte("first"))) // it connects
	}
	done := make(chan *nsq.ProducerTransaction, perSecond)
	latency, ended, answered := hdrhistogram.New(1, 60_000_000, 3), make(chan struct{}), make(chan error, 1)
	begin := time.Now()
	due := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond)) }
	sent := make(chan int, 1)
	go func() { // ends when during has returned
		i := 0
		for {
			select {
			case <-ended:
				sent <- i
				return
			case <-time.After(time.Until(due(i))):
			}
			for ; time.Now().After(due(i)); i++ {
				_ = producers[i%len(producers)].PublishAsync(topic, []byte("steady"), done, due(i))
			}
		}
	}()
	go func() { // ends with the last answer
		n, all := 0, -1
		for n != all {
			select {
			case all = <-sent:
			case x := <-done:
				n++
				if x.Error != nil {
					answered <- x.Error
					return
				}
				_ = latency.RecordValue(time.Since(x.Args[0].(time.Time)).Microseconds())
			}
		}
		answered <- nil
	}()
	during()
	close(ended)
	require.NoError(c.T, <-answered)
	return float64(latency.ValueAtQuantile(99)) / 1000
}
