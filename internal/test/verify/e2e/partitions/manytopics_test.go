package partitions

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// The measurement of many topics: LOCKSTEP_TOPICS of them, and the limits in docs/results.md.
const (
	manyTopics    = 10_000
	creators      = 32 // requests at a time
	pageTime      = 300 * time.Millisecond
	pageBytes     = 200_000
	openPages     = 10
	polledEvery   = 2 * time.Second  // the overview
	chartedEvery  = 10 * time.Second // its charts
	producing     = 16               // producers
	putEvery      = 40 * time.Millisecond
	turnsOfEach   = 5
	turnLasts     = 10 * time.Second
	idleFor       = 20 * time.Second
	tableOutlives = 1800 * time.Millisecond // times three brokers, which are asked in turn: a table serves for at most 5 s
	pagesMayCost  = 1.2
)

// TestManyTopics measures three brokers with many topics of one partition and one channel each: the time to
// make them, the answers of each page, memory and processor of the brokers without and with ten open
// pages, and the p99 of steady puts without and with them, in turns.
func TestManyTopics(t *testing.T) {
	e2etest.Processes(t)
	if !env.Long() {
		env.Skip(t, "a measurement (LOCKSTEP_LONG=1; LOCKSTEP_TOPICS of them)")
	}
	n := env.Number(t, "LOCKSTEP_TOPICS", manyTopics)
	c := e2etest.Start(t, 3)
	c.HTTP = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: creators}}
	began := time.Now()
	makeTopics(c, n)
	took := time.Since(began)
	t.Logf("%d topics with a channel each: made in %s, %.0f a second", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
	c.Until("all replicas in sync", func() bool {
		all := c.Topics()
		return len(all) == n && !slices.ContainsFunc(all, func(v api.TopicView) bool { return !clusters.InSync(v) })
	})
	pageAnswers(c, n)
	noteUse(c, "idle")
	stop := keepPagesOpen(c)
	noteUse(c, fmt.Sprintf("%d open pages", openPages))
	stop()

	steadyP99(c, n) // the first puts to each topic are slower; it is not counted
	var without, with []time.Duration
	for turn := range turnsOfEach {
		without = append(without, steadyP99(c, n))
		stop := keepPagesOpen(c)
		with = append(with, steadyP99(c, n))
		stop()
		t.Logf("turn %d: p99 of the puts %s without pages, %s with %d pages", turn+1, without[turn], with[turn], openPages)
	}
	a, b := medianOf(without), medianOf(with)
	t.Logf("median of %d turns, %d puts/s: p99 %s without pages, %s with: × %.2f", turnsOfEach, producing*int(time.Second/putEvery), a, b, b.Seconds()/a.Seconds())
	require.LessOrEqual(t, b, env.Within(t, time.Duration(pagesMayCost*float64(a))), "open pages slow producers down")
}

func manyTopic(i int) string { return fmt.Sprintf("topic-with-a-name-of-usual-length-%05d", i) }

// makeTopics makes topics with a channel each, many requests at a time, at all brokers.
func makeTopics(c *e2etest.Cluster, n int) {
	work := make(chan int)
	var all sync.WaitGroup
	for i := range creators {
		b := c.Brokers[i%len(c.Brokers)]
		all.Go(func() {
			for i := range work {
				topic := manyTopic(i)
				madeOnce(c, b, "/topic/create", url.Values{"topic": {topic}, "partitions": {"1"}})
				madeOnce(c, b, "/channel/create", url.Values{"topic": {topic}, "channel": {e2etest.Channel}})
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	all.Wait()
}

// madeOnce asks until the object is there: a busy broker may have to be asked again.
func madeOnce(c *e2etest.Cluster, b devcluster.Broker, path string, q url.Values) {
	said := ""
	for range 20 {
		resp, err := c.HTTP.Post("http://"+b.HTTP+path+"?"+q.Encode(), "", nil)
		if err != nil {
			said = err.Error()
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		said = string(text)
		e2etest.Pause(100 * time.Millisecond)
	}
	assert.Fail(c.T, "not made", "%s?%s: %s", path, q.Encode(), said)
}

// pageAnswers asks for what each page of the console asks for, three times, and never shares a table.
func pageAnswers(c *e2etest.Cluster, n int) {
	middle := manyTopic(n / 2)
	for _, page := range []struct{ name, path string }{
		{"Overview", "/v1/console/overview"},
		{"its charts", "/v1/console/series"},
		{"Topics", "/v1/console/topics?search=&sort=name&order=asc&offset=0&limit=50"},
		{"500 topics by depth", "/v1/console/topics?sort=depth&limit=500"},
		{"Topics, searched, by disk", "/v1/console/topics?search=99&sort=disk&order=desc&offset=0&limit=50"},
		{"Channels by lag", "/v1/console/channels?search=&sort=lag&order=desc&offset=0&limit=50"},
		{"500 channels", "/v1/console/channels?sort=lag&limit=500"},
		{"Brokers", "/v1/console/brokers"},
		{"a broker", "/v1/console/broker?broker=n2"},
		{"a topic", "/v1/console/topic?topic=" + middle},
		{"a partition", "/v1/console/partition?topic=" + middle + "&partition=0"},
		{"a channel", "/v1/console/channel?topic=" + middle + "&channel=" + e2etest.Channel},
		{"Events", "/v1/console/events?limit=200"},
		{"the trash", "/v1/topic/trash"},
	} {
		var took []time.Duration
		size := 0
		for _, b := range c.Brokers {
			e2etest.Pause(tableOutlives)
			began := time.Now()
			bytes, err := polled(c, b, page.path)
			require.NoError(c.T, err)
			took, size = append(took, time.Since(began)), max(size, bytes)
		}
		c.T.Logf("| %s | %s | %d |", page.name, medianOf(took).Round(time.Millisecond), size)
		require.LessOrEqual(c.T, size, pageBytes, page.name)
		require.LessOrEqual(c.T, medianOf(took), env.Within(c.T, pageTime), page.name)
	}
}

// polled asks as the page does, and returns the bytes of the body as they come.
func polled(c *e2etest.Cluster, b devcluster.Broker, path string) (bytes int, err error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+b.HTTP+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept-Encoding", "gzip") // set by hand: the client does not unpack
	resp, err := c.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", path, resp.StatusCode)
	}
	return int(n), err
}

// keepPagesOpen polls as open overviews do, spread over the brokers and over time, until it is told to stop.
func keepPagesOpen(c *e2etest.Cluster) (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	poll := func(b devcluster.Broker, path string, every, first time.Duration) {
		all.Go(func() {
			for wait := first; ; wait = every { // the page waits after each answer
				select {
				case <-done:
					return
				case <-time.After(wait):
				}
				_, err := polled(c, b, path)
				assert.NoError(c.T, err)
			}
		})
	}
	for i := range openPages {
		b := c.Brokers[i%len(c.Brokers)]
		poll(b, "/v1/console/overview", polledEvery, polledEvery*time.Duration(i)/openPages)
		poll(b, "/v1/console/series", chartedEvery, chartedEvery*time.Duration(i)/openPages)
	}
	return sync.OnceFunc(func() { close(done); all.Wait() })
}

// noteUse notes memory and processor of the brokers over a while.
func noteUse(c *e2etest.Cluster, what string) {
	c.T.Helper()
	before := map[string]time.Duration{}
	for _, b := range c.Brokers {
		_, before[b.Name] = used(c, b)
	}
	began := time.Now()
	e2etest.Pause(idleFor)
	for _, b := range c.Brokers {
		memory, processor := used(c, b)
		c.T.Logf("%s: %s has %d MB, %.3f cores", what, b.Name, memory>>20, (processor-before[b.Name]).Seconds()/time.Since(began).Seconds())
	}
}

// used are the resident memory of a broker, and the processor time since its start.
func used(c *e2etest.Cluster, b devcluster.Broker) (memory int64, processor time.Duration) {
	c.T.Helper()
	const tick = 10 * time.Millisecond // of Linux, in /proc
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.PID))
	require.NoError(c.T, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	number := func(field int) int64 { // as proc_pid_stat(5) counts; the first of fields is its third
		v, err := strconv.ParseInt(fields[field-3], 10, 64)
		require.NoError(c.T, err)
		return v
	}
	return number(24) * int64(os.Getpagesize()), time.Duration(number(14)+number(15)) * tick
}

// steadyP99 publishes to random topics for a turn, at a fixed rate, and returns the p99 from the time at
// which a put was due to its answer.
func steadyP99(c *e2etest.Cluster, topics int) time.Duration {
	c.T.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	began := time.Now()
	for i := range producing {
		producer, err := nsq.NewProducer(c.Brokers[i%len(c.Brokers)].TCP, nsq.NewConfig())
		require.NoError(c.T, err)
		producer.SetLogger(clusters.Silent(), nsq.LogLevelMax)
		all.Go(func() {
			defer producer.Stop()
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for due := began.Add(putEvery * time.Duration(i) / producing); due.Before(began.Add(turnLasts)); due = due.Add(putEvery) {
				e2etest.Pause(time.Until(due))
				if !assert.NoError(c.T, producer.Publish(manyTopic(random.IntN(topics)), []byte("a message of usual length, more or less"))) {
					return
				}
				mu.Lock()
				took = append(took, time.Since(due))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.NotEmpty(c.T, took)
	slices.Sort(took)
	return took[len(took)*99/100].Round(10 * time.Microsecond)
}

func medianOf(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}
