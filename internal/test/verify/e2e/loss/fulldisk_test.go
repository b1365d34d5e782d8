package loss

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

const (
	fullTopics  = 50
	fullReserve = 64 << 20
	fullDisk    = 1 << 30
	// fullLimit is the time from the full disk until puts to all topics are answered OK at all brokers.
	fullLimit = 3 * time.Second
)

// TestPromiseOneFullDisk: the disk of a broker of three, which leads some of 50 topics and follows the others, fills: at first
// below its reserve, then, of another broker, to the last byte. Puts to all topics are OK at all brokers within 3 s, none is refused and none is
// lost, and all is as before when there is room again.
func TestPromiseOneFullDisk(t *testing.T) {
	e2etest.Processes(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3, fmt.Sprintf("--min-free-disk-bytes=%d", fullReserve))
	for _, b := range c.Brokers {
		c.OwnDataPath(b, fullDisk)
	}
	require.NoError(t, c.StartAll())
	c.WaitReady()
	for i := range fullTopics {
		c.Create(fullTopic(i), "reader", 1)
	}
	c.Until("the preferred leaders", func() bool { return preferredAll(c) })
	stored := map[string]bool{}
	for victim, free := range []int64{fullReserve / 2, 0} {
		b := c.Brokers[victim]
		leads, follows := rolesOf(c, b)
		f := startFill(t, c, stored, fmt.Sprint(victim))
		f.until(t, time.Now())
		filler := filepath.Join(b.DataDir, "filler")
		e2etest.FillDisk(t, filler, free)
		full := time.Now()
		took := f.until(t, full)
		c.Until(b.Name+" out of the in-sync sets", func() bool { return outOfAll(c, b) })
		out := time.Since(full)
		again := f.until(t, time.Now())
		require.NoError(t, os.Remove(filler))
		room := time.Now()
		c.Until("all in sync, the preferred leaders", func() bool { return preferredAll(c) })
		back := time.Since(room)
		f.until(t, time.Now())
		n := f.stop()
		t.Logf("%s led %d and followed %d partitions, %d bytes left: puts OK at all brokers after %s, %s while it was full; out of all sets after %s; %d puts, %d refused, the slowest %s; all as before %s after there was room",
			b.Name, leads, follows, free, took.Round(time.Millisecond), again.Round(time.Millisecond), out.Round(time.Millisecond), n, len(f.refused), f.slowest.Round(time.Millisecond), back.Round(time.Millisecond))
		require.NotZero(t, leads)
		require.NotZero(t, follows)
		require.Empty(t, f.refused[:min(len(f.refused), 5)])
		require.LessOrEqual(t, took, e2etest.Slack(fullLimit))
		require.Empty(t, c.Dead())
	}
	for i := range fullTopics {
		for _, m := range c.PeekAll(fullTopic(i)) {
			delete(stored, fullTopic(i)+m.Body)
		}
	}
	require.Empty(t, stored, "acknowledged messages are lost")
}

func fullTopic(i int) string { return fmt.Sprintf("topic%02d", i) }

// rolesOf counts the partitions that a broker leads, and those that it follows.
func rolesOf(c *e2etest.Cluster, b devcluster.Broker) (leads, follows int) {
	for _, v := range c.Topics() {
		if v.Partitions[0].Leader == ident.Node(b.Name) {
			leads++
		} else {
			follows++
		}
	}
	return leads, follows
}

// preferredAll reports whether every topic is in sync and led by its preferred leader.
func preferredAll(c *e2etest.Cluster) bool {
	all := c.Topics()
	return len(all) == fullTopics && !slices.ContainsFunc(all, func(v api.TopicView) bool {
		return !clusters.InSync(v) || v.Partitions[0].Leader != v.Partitions[0].Replicas[0]
	})
}

// outOfAll reports whether no in-sync set has a broker.
func outOfAll(c *e2etest.Cluster, b devcluster.Broker) bool {
	return !slices.ContainsFunc(c.Topics(), func(v api.TopicView) bool {
		return slices.Contains(v.Partitions[0].ISR, ident.Node(b.Name))
	})
}

// fill publishes to all topics at all brokers, a producer for five topics of a broker.
type fill struct {
	mu      sync.Mutex
	stored  map[string]bool      // topic and body
	began   map[string]time.Time // broker and topic → when the newest put that is OK began
	refused []string
	slowest time.Duration
	puts    int
	quit    chan struct{}
	wg      sync.WaitGroup
}

const perFiller = 5

func startFill(t *testing.T, c *e2etest.Cluster, stored map[string]bool, run string) *fill {
	f := &fill{stored: stored, began: map[string]time.Time{}, quit: make(chan struct{})}
	for _, b := range c.Brokers {
		for from := 0; from < fullTopics; from += perFiller {
			f.wg.Go(func() { f.publish(b, from, run) })
		}
	}
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *fill) publish(b devcluster.Broker, from int, run string) {
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for n := 0; ; n++ {
		select {
		case <-f.quit:
			return
		default:
		}
		topic := fullTopic(from + n%perFiller)
		body := fmt.Sprintf("%s-%s-%d", run, b.Name, n)
		began := time.Now()
		resp, err := client.Post("http://"+b.HTTP+"/pub?topic="+topic, "", strings.NewReader(body))
		f.mu.Lock()
		f.puts++
		f.slowest = max(f.slowest, time.Since(began))
		switch {
		case err != nil:
			f.refused = append(f.refused, err.Error())
		case resp.StatusCode != http.StatusOK:
			f.refused = append(f.refused, fmt.Sprintf("%s at %s: %s", topic, b.Name, resp.Status))
		default:
			f.stored[topic+body], f.began[b.Name+topic] = true, began
		}
		f.mu.Unlock()
		if err == nil {
			_ = resp.Body.Close()
		}
		e2etest.Pause(20 * time.Millisecond)
	}
}

// until waits until each broker has answered a put OK to each topic that began after a moment, and returns how long after.
func (f *fill) until(t *testing.T, moment time.Time) time.Duration {
	t.Helper()
	e2etest.Within(t, e2etest.WaitLimit, "puts to all topics at all brokers", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		for _, began := range f.began {
			if began.After(moment) {
				n++
			}
		}
		return n == 3*fullTopics
	})
	return time.Since(moment)
}

// stop ends the producers.
func (f *fill) stop() int {
	select {
	case <-f.quit:
	default:
		close(f.quit)
	}
	f.wg.Wait()
	return f.puts
}
