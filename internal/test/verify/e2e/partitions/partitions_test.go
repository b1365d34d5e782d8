package partitions

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// perTopic is how many partitions a topic of these tests has; an external etcd in
// its default settings would take one more.
const perTopic = 125

// TestManyPartitionsLoseTheirLeader: a broker that leads a thousand partitions
// is killed; all have new leaders within 3 s.
func TestManyPartitionsLoseTheirLeader(t *testing.T) {
	c := e2etest.Start(t, 3)
	createMany(c, e2etest.Rounds(8, 24)) // a third of them is led by the victim
	const victim = "n2"
	led := ledBy(c, victim)
	require.Greater(t, led, e2etest.Rounds(300, 900))
	killed := time.Now()
	c.Crash(victim)
	c.Until("new leaders", func() bool { return ledBy(c, "") == 0 && ledBy(c, victim) == 0 })
	took := time.Since(killed)
	t.Logf("%d partitions of a killed broker have new leaders after %s", led, took.Round(time.Millisecond))
	require.Less(t, took, e2etest.Slack(3*time.Second))
	for i := range 5 {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Other(victim), many(i), "after"))
	}
	c.Restart(victim)
	c.Until("all in sync", func() bool { return allInSync(c) })
	t.Logf("%s", costs(c, "n1"))
}

// TestTopicOfManyPartitions: as many as message ids can name, made and deleted in
// one transaction each; the embedded etcd takes that, a stock one says no (see
// ExternalEtcd).
func TestTopicOfManyPartitions(t *testing.T) {
	c := e2etest.Start(t, 3)
	partitions := e2etest.Rounds(200, 1024)
	began := time.Now()
	c.Must("topic", "create", e2etest.Topic, "--partitions", fmt.Sprint(partitions))
	t.Logf("%d partitions made in %s", partitions, time.Since(began).Round(time.Millisecond))
	c.Whole(e2etest.Topic)
	for i := range 100 {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[i%3], e2etest.Topic, fmt.Sprintf("m%d", i)))
	}
	out, err := c.Nsqctl("topic", "create", "too-many", "--partitions", "1025")
	require.Error(t, err)
	require.Contains(t, out, "1 to 1024")
	began = time.Now()
	c.Must("topic", "delete", e2etest.Topic)
	t.Logf("deleted in %s", time.Since(began).Round(time.Millisecond))
	c.Until("no topic", func() bool { _, there := c.Topic(e2etest.Topic); return !there })
}

// TestIdlePartitions measures the cost of idle partitions. The aims for 10,000 are 5 % of
// a core above the empty cluster, 1 GiB, and 10 s until a killed broker serves again.
func TestIdlePartitions(t *testing.T) {
	c := e2etest.Start(t, 3)
	watch := time.Duration(e2etest.Rounds(2, 10)) * time.Second
	empty, _ := idle(c, watch)
	began := time.Now()
	topics := e2etest.Rounds(4, 80)
	createMany(c, topics)
	t.Logf("%d partitions made in %s", topics*perTopic, time.Since(began).Round(time.Millisecond))
	e2etest.Pause(2 * time.Second) // until all are idle
	share, resident := idle(c, watch)
	t.Logf("%d idle partitions: %.1f %% of a core (%.1f %% without them), %d MB", topics*perTopic, 100*share, 100*empty, resident)
	require.Less(t, share-empty, 0.5)
	require.Less(t, resident, 1<<10)
	began = time.Now()
	c.Crash("n1")
	c.Restart("n1")
	t.Logf("killed and ready again after %s", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), e2etest.Slack(10*time.Second))
	c.Until("all in sync", func() bool { return allInSync(c) })
	_, resident = idle(c, 0)
	t.Logf("in sync after %s, %d MB", time.Since(began).Round(time.Millisecond), resident)
}

// idle is what all brokers together take: the share of a core over a while, and
// the memory in MB.
func idle(c *e2etest.Cluster, over time.Duration) (share float64, residentMB int) {
	c.T.Helper()
	var cpu time.Duration
	for _, name := range e2etest.Names(c) {
		cpu -= costs(c, name).cpu
	}
	began := time.Now()
	e2etest.Pause(over)
	share = 1 / time.Since(began).Seconds()
	for _, name := range e2etest.Names(c) {
		now := costs(c, name)
		cpu += now.cpu
		residentMB += now.residentMB
	}
	return share * cpu.Seconds(), residentMB
}

func many(i int) string { return fmt.Sprintf("many-%02d", i) }

// createMany makes topics, some at a time, and waits until all partitions are led.
func createMany(c *e2etest.Cluster, topics int) {
	c.T.Helper()
	var makers sync.WaitGroup
	next := make(chan int)
	for _, b := range c.Brokers {
		makers.Go(func() {
			for i := range next {
				makeTopic(c, b, many(i))
			}
		})
	}
	for i := range topics {
		next <- i
	}
	close(next)
	makers.Wait()
	c.Until("all partitions led", func() bool { return ledBy(c, "") == 0 && allInSync(c) })
}

// makeTopic makes a topic, again until it is there: a busy disk may take longer than
// one request waits.
func makeTopic(c *e2etest.Cluster, b devcluster.Broker, topic string) {
	q := url.Values{"topic": {topic}, "partitions": {fmt.Sprint(perTopic)}}
	e2etest.Within(c.T, e2etest.WaitLimit, "topic "+topic, func() bool {
		resp, err := c.HTTP.Post("http://"+b.HTTP+"/topic/create?"+q.Encode(), "", nil)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// ledBy counts the partitions led by a broker; "" counts those without a leader.
func ledBy(c *e2etest.Cluster, by string) (n int) {
	topics := c.Topics()
	if topics == nil {
		return -1 // no broker answers
	}
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.Leader == ident.Node(by) {
				n++
			}
		}
	}
	return n
}

func allInSync(c *e2etest.Cluster) bool {
	topics := c.Topics()
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.UnderReplicated || p.Leader == "" {
				return false
			}
		}
	}
	return topics != nil
}

// cost is what a process takes.
type cost struct {
	residentMB int
	cpu        time.Duration
	threads    int
}

// String implements fmt.Stringer.
func (c cost) String() string {
	return fmt.Sprintf("%d MB resident, %d threads, %s of CPU so far", c.residentMB, c.threads, c.cpu)
}

// costs reads what the kernel says of a broker's process.
func costs(c *e2etest.Cluster, name string) (out cost) {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID))
	require.NoError(c.T, err)
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && f[0] == "VmRSS:":
			kb, _ := strconv.Atoi(f[1])
			out.residentMB = kb >> 10
		case len(f) > 1 && f[0] == "Threads:":
			out.threads, _ = strconv.Atoi(f[1])
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.PID))
	require.NoError(c.T, err)
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	out.cpu = time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
	return out
}
