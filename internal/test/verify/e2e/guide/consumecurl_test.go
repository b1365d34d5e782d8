package guide

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// curlGuide has the commands that TestConsumeWithCurl runs.
const curlGuide = "../../../../../docs/guide/consume-with-curl.md"

// TestConsumeWithCurl runs the commands of the guide, in their order.
func TestConsumeWithCurl(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	text, err := os.ReadFile(curlGuide)
	require.NoError(t, err)
	c := e2etest.Start(t, 3)
	var ports []string
	for i, b := range c.Brokers {
		ports = append(ports, fmt.Sprintf("127.0.0.1:4%d51", i+1), b.HTTP)
	}
	dir := t.TempDir()
	run := func(script string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-e", "-c", strings.NewReplacer(ports...).Replace(script))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		require.NotContains(t, string(out), `"message":`, "a command is refused: %s", script)
		return string(out)
	}
	want := map[string]string{
		"one":    `"body":"an order"`,
		"finish": `{"finished":1}`,
		"batch":  `{"finished":`,
		"parts":  "as it is",
		"stream": "streamed\n{\"finished\":1}",
	}
	var ran []string
	for _, m := range e2etest.GuideBlock.FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, want, m[1])
		out := run(m[2])
		require.Contains(t, out, want[m[1]])
		ran = append(ran, m[1])
	}
	require.Equal(t, []string{"one", "finish", "batch", "parts", "stream"}, ran)
	done, err := os.ReadFile(filepath.Join(dir, "done"))
	require.NoError(t, err)
	numbers := strings.Fields(string(done))
	slices.Sort(numbers)
	require.Len(t, slices.Compact(numbers), 1000)
	c.Drained("orders", "curl")
}

// TestReceiptsAtAnyBroker: every broker finishes what another one has answered, led there or not, and the session that took
// the messages has room again.
func TestReceiptsAtAnyBroker(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	all := e2etest.Records(t)[:900]
	e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, all, 100)
	var got []string
	for i := 0; len(got) < len(all); i++ {
		at, other := c.Brokers[i%3], c.Brokers[(i+1+i/3%2)%3]
		list, err := c.Poll(at, e2etest.Topic, e2etest.Channel, 100, 20*time.Second)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		status, finished := c.Settle(other, e2etest.Topic, e2etest.Channel, list)
		require.Equal(t, http.StatusOK, status, "answered by %s, finished at %s", at.Name, other.Name)
		require.Equal(t, len(list), finished)
		for _, m := range list {
			got = append(got, m.Body)
		}
		status, finished = c.Settle(other, e2etest.Topic, e2etest.Channel, list)
		require.Equal(t, http.StatusConflict, status, "for the second time")
		require.Zero(t, finished)
	}
	sameRecords(t, all, got)
	c.Drained(e2etest.Topic, e2etest.Channel)
	for _, b := range c.Brokers {
		var stats struct{ Topics []api.TopicStats }
		require.NoError(t, c.Get(b, "/stats?format=json&topic="+e2etest.Topic, &stats))
		for _, client := range stats.Topics[0].Channels[0].Clients {
			require.Equal(t, "HTTP", client.Version)
			require.Zero(t, client.InFlightCount)
		}
	}

	// A broker that is stopped answers the polls that wait, and does not wait for them.
	at := c.Brokers[2]
	ended := make(chan error, 1)
	go func() {
		_, err := c.Poll(at, e2etest.Topic, e2etest.Channel, 1, time.Minute)
		ended <- err
	}()
	c.Until("a poll that waits", func() bool {
		return slices.ContainsFunc(c.Brokers, func(leader devcluster.Broker) bool { // of any partition: the poll takes one message
			var stats struct{ Topics []api.TopicStats }
			require.NoError(t, c.Get(leader, "/stats?format=json&topic="+e2etest.Topic, &stats))
			return slices.ContainsFunc(stats.Topics[0].Channels[0].Clients, func(s api.ClientStats) bool { return s.ReadyCount > 0 })
		})
	})
	c.Down.Begin(at.Name)
	require.NoError(t, c.Stop(at.Name, e2etest.StopLimit))
	require.ErrorContains(t, <-ended, "503 {\"message\":\"EXITING\"")
}

// sameRecords: every record was delivered, and none twice.
func sameRecords(t *testing.T, want, got []string) {
	t.Helper()
	slices.Sort(got)
	require.Equal(t, slices.Sorted(slices.Values(want)), got)
}

// TestPollsThroughKills: leaders die while a client polls at another broker. Every message comes, and what was finished a second
// before a kill does not come again. Then the broker that answers the polls dies: its receipts are good at another
// broker within the reclaim time, and the messages without a finish come again.
func TestPollsThroughKills(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	all := e2etest.Records(t)[:3000]
	e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, all, 100)
	seen := map[string]bool{}
	poll := func(b devcluster.Broker, count int) {
		t.Helper()
		deadline := time.Now().Add(e2etest.WaitLimit)
		for fresh := 0; fresh < count; {
			require.True(t, time.Now().Before(deadline), "%d of %d new messages", fresh, count)
			list, err := c.Poll(b, e2etest.Topic, e2etest.Channel, 100, 5*time.Second)
			require.NoError(t, err)
			status, _ := c.Settle(b, e2etest.Topic, e2etest.Channel, list)
			require.Contains(t, []int{http.StatusOK, http.StatusConflict, http.StatusBadRequest}, status)
			for _, m := range list {
				if !seen[m.Body] {
					seen[m.Body] = true
					fresh++
				}
			}
		}
	}
	victim := c.Leader(e2etest.Topic)
	at := c.Brokers[0]
	if at.Name == victim {
		at = c.Brokers[1]
	}
	poll(at, 500)
	held, err := c.Poll(at, e2etest.Topic, e2etest.Channel, 50, 5*time.Second)
	require.NoError(t, err)
	c.Crash(victim)
	require.Greater(t, len(held), 1)
	third := c.Brokers[slices.IndexFunc(c.Brokers, func(b devcluster.Broker) bool { return b.Name != victim && b.Name != at.Name })]
	first := len(held) / 2
	status, finished := c.Settle(at, e2etest.Topic, e2etest.Channel, held[:first])
	require.Equal(t, http.StatusOK, status, "the receipts of before are good")
	require.Equal(t, first, finished)
	status, finished = c.Settle(third, e2etest.Topic, e2etest.Channel, held[first:])
	require.Equal(t, http.StatusOK, status, "at another broker, too")
	require.Equal(t, len(held)-first, finished)
	for _, m := range held {
		seen[m.Body] = true
	}
	poll(at, 500)
	c.Restart(victim)
	c.Whole(e2etest.Topic)
	c.Until("the preferred broker leads", func() bool { return c.Preferred(e2etest.Topic) }) // else the killed one may lead by then

	leader := c.Leader(e2etest.Topic)
	at = c.Brokers[slices.IndexFunc(c.Brokers, func(b devcluster.Broker) bool { return b.Name != leader })]
	held, err = c.Poll(at, e2etest.Topic, e2etest.Channel, 50, 5*time.Second)
	require.NoError(t, err)
	require.Greater(t, len(held), 1)
	c.Crash(at.Name)
	other := c.Brokers[slices.IndexFunc(c.Brokers, func(b devcluster.Broker) bool { return b.Name != leader && b.Name != at.Name })]
	half := len(held) / 2
	status, finished = c.Settle(other, e2etest.Topic, e2etest.Channel, held[:half])
	require.Equal(t, http.StatusOK, status, "within the reclaim time")
	require.Equal(t, half, finished)
	for _, m := range held[:half] {
		seen[m.Body] = true
	}
	again := map[string]bool{}
	for deadline := time.Now().Add(e2etest.WaitLimit); len(seen) < len(all); {
		require.True(t, time.Now().Before(deadline), "%d of %d", len(seen), len(all))
		list, err := c.Poll(other, e2etest.Topic, e2etest.Channel, 500, 5*time.Second)
		require.NoError(t, err)
		for _, m := range list {
			seen[m.Body], again[m.Body] = true, true
		}
		c.Settle(other, e2etest.Topic, e2etest.Channel, list)
	}
	for i, m := range held {
		require.Equal(t, i >= half, again[m.Body], "message %d of %d", i, len(held))
	}
	status, finished = c.Settle(other, e2etest.Topic, e2etest.Channel, held[half:])
	require.Equal(t, http.StatusConflict, status, "a clear refusal")
	require.Zero(t, finished)
	c.Drained(e2etest.Topic, e2etest.Channel)
}

// TestManyPollers: clients at all brokers work through a backlog in batches, and no message comes twice. It logs the rate;
// LOCKSTEP_CONSUME is the number of messages of a measurement.
func TestManyPollers(t *testing.T) {
	const pollers, batch = 8, 500
	count := 20_000
	if text := os.Getenv("LOCKSTEP_CONSUME"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 4)
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("%0100d", i) // 100 bytes
	}
	e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, all, 500)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := make(map[string]int, count)
	began := time.Now()
	for i := range pollers {
		b := c.Brokers[i%3]
		wg.Go(func() {
			for {
				list, err := c.Poll(b, e2etest.Topic, e2etest.Channel, batch, time.Second)
				if err != nil || len(list) == 0 {
					assert.NoError(t, err)
					return
				}
				if status, _ := c.Settle(b, e2etest.Topic, e2etest.Channel, list); !assert.Equal(t, http.StatusOK, status) {
					return
				}
				mu.Lock()
				for _, m := range list {
					seen[m.Body]++
				}
				if len(seen) == count {
					t.Logf("%d pollers took and finished %d messages in batches of at most %d: %.0f/s", pollers, count, batch, float64(count)/time.Since(began).Seconds())
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, count)
	for body, n := range seen {
		require.Equal(t, 1, n, body)
	}
	c.Drained(e2etest.Topic, e2etest.Channel)
}
