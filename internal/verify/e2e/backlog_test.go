package e2e

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

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

const blob = 64 << 10

// TestEightChannelsOneCopy: a channel is a place in the log, not a copy of it;
// and one that is far behind reads fast, without costing producers or memory.
func TestEightChannelsOneCopy(t *testing.T) {
	const topic = "blobs"
	messages := rounds(64<<20, 1<<30) / blob
	c := start(t, 3, "--max-bytes-per-file=16777216")
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "retention_time": {"1h"}})
	for i := range 8 {
		c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {fmt.Sprintf("c%d", i)}})
	}
	c.blobs(topic, messages)
	c.whole(topic)
	for _, b := range c.Brokers {
		bytes := c.segments(b.Name)
		t.Logf("%s: %d MiB of messages, %d MiB on disk, 8 channels", b.Name, messages*blob>>20, bytes>>20)
		require.Less(t, bytes, int64(messages*blob)*11/10)
		require.Greater(t, bytes, int64(messages*blob)*8/10, "the segments are elsewhere")
	}

	// In turn: puts alone, puts beside a channel that reads everything, and, to
	// compare, puts beside programs that do nothing but take the processors.
	memory := c.watchMemory()
	idle := c.readAll(topic, "c0", messages)
	var alone, beside, speed, busy []float64
	wait := func() { pause(time.Duration(rounds(1, 4)) * time.Second) }
	for i := range rounds(1, 7) {
		alone = append(alone, c.steadyPuts("steady", 5000, wait))
		beside = append(beside, c.steadyPuts("steady", 5000, func() {
			speed = append(speed, c.readAll(topic, fmt.Sprintf("c%d", i+1), messages))
		}))
		stop := c.occupy(runtime.NumCPU())
		busy = append(busy, c.steadyPuts("steady", 5000, wait))
		stop()
	}
	t.Logf("a channel %d MiB behind reads %.0f MB/s, beside 5,000 puts/s %.0f %.0f",
		messages*blob>>20, idle, median(speed), speed)
	t.Logf("p99 of 5,000 puts/s: %.1f ms alone %.1f, %.1f ms beside it %.1f: %.2f ×",
		median(alone), alone, median(beside), beside, median(beside)/median(alone))
	t.Logf("beside a busy loop for each processor: %.1f ms %.1f: %.2f ×", median(busy), busy, median(busy)/median(alone))
	for name, m := range memory() {
		t.Logf("%s: %d MiB resident before, %d MiB at most", name, m.before>>20, m.most>>20)
		require.Less(t, m.most-m.before, int64(256<<20), "memory is not flat")
	}
	if env.Long() { // else there are too few puts
		// Where the processors are full anything that runs makes puts wait; a
		// reader may cost no more than programs do that touch nothing of ours.
		limit := 1.5 * slackFactor * max(median(alone), median(busy))
		require.Less(t, median(beside), limit, "promised 1.5 × of puts on a machine as busy")
	}
}

// blobs fills a topic.
func (c *cluster) blobs(topic string, n int) {
	c.t.Helper()
	p := c.producer(0)
	bodies := make([][]byte, 16)
	for i := range bodies {
		bodies[i] = []byte(strings.Repeat(string(rune('a'+i)), blob))
	}
	for range n / len(bodies) {
		require.NoError(c.t, p.MultiPublish(topic, bodies))
	}
}

// producer connects to one broker until the end of the test.
func (c *cluster) producer(broker int) *nsq.Producer {
	c.t.Helper()
	p, err := nsq.NewProducer(c.Brokers[broker].TCP, nsq.NewConfig())
	require.NoError(c.t, err)
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	c.t.Cleanup(p.Stop)
	return p
}

// segments is how many bytes of segment files a broker has.
func (c *cluster) segments(broker string) (bytes int64) {
	c.t.Helper()
	require.NoError(c.t, filepath.WalkDir(filepath.Join(c.dir, broker), func(path string, d fs.DirEntry, err error) error {
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
func (c *cluster) readAll(topic, channel string, n int) float64 {
	c.t.Helper()
	args := []string{"tail", "--topic", topic, "--channel", channel, "-n", fmt.Sprint(n), "--max-in-flight", "192"}
	for _, b := range c.Brokers {
		args = append(args, "--nsqd-tcp-address", b.TCP)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*waitLimit)
	defer cancel()
	begin := time.Now()
	require.NoError(c.t, exec.CommandContext(ctx, built.path("nsqctl"), args...).Run(), "all messages of %s", channel)
	return float64(n) * blob / 1e6 / time.Since(begin).Seconds()
}

// occupy starts programs that are always busy, and returns what ends them.
func (c *cluster) occupy(n int) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var all []*exec.Cmd
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		require.NoError(c.t, cmd.Start())
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
// something goes on, and returns the 99th percentile of their latency in ms,
// counted from when each was due.
func (c *cluster) steadyPuts(topic string, perSecond int, during func()) float64 {
	c.t.Helper()
	var producers []*nsq.Producer
	for i := range c.Brokers {
		producers = append(producers, c.producer(i))
		require.NoError(c.t, producers[i].Publish(topic, []byte("first"))) // it connects
	}
	done := make(chan *nsq.ProducerTransaction, perSecond)
	latency, ended, answered := hdrhistogram.New(1, 60_000_000, 3), make(chan struct{}), make(chan error, 1)
	begin := time.Now()
	due := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond)) }
	sent := make(chan int, 1)
	go func() { // ends when what goes on has ended
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
	require.NoError(c.t, <-answered)
	return float64(latency.ValueAtQuantile(99)) / 1000
}

// resident is the memory of one broker.
type resident struct{ before, most int64 }

// watchMemory samples the brokers' resident memory until the function that it
// returns is called.
func (c *cluster) watchMemory() (stop func() map[string]resident) {
	all := map[string]resident{}
	for _, b := range c.Brokers {
		now := bench.Memory([]int{b.PID})
		all[b.Name] = resident{now, now}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, b := range c.Brokers {
				m := all[b.Name]
				all[b.Name] = resident{m.before, max(m.most, bench.Memory([]int{b.PID}))}
			}
		}
	}()
	return func() map[string]resident {
		close(end)
		<-ended
		return all
	}
}
