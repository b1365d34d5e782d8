package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// curlGuide has the commands that TestConsumeWithCurl runs.
const curlGuide = "../../../docs/guide/consume-with-curl.md"

// TestConsumeWithCurl runs the commands of the guide, in their order.
func TestConsumeWithCurl(t *testing.T) {
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	text, err := os.ReadFile(curlGuide)
	require.NoError(t, err)
	c := start(t, 3)
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
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
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
	c.drained("orders", "curl")
}

// httpMessage is a message in the answer to /v1/consume.
type httpMessage struct {
	Receipt, Body string
	Attempts      int
}

// poll takes messages at a broker by HTTP.
func (c *cluster) poll(b devcluster.Broker, topic, channel string, most int, wait time.Duration) ([]httpMessage, error) {
	client := http.Client{Timeout: wait + 20*time.Second, Transport: c.http.Transport}
	q := url.Values{"topic": {topic}, "channel": {channel}, "max": {fmt.Sprint(most)}, "wait": {wait.String()}}
	resp, err := client.Post("http://"+b.HTTP+"/v1/consume?"+q.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	var answer struct{ Messages []httpMessage }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Messages, err
}

// settle finishes messages at a broker, and returns the status and the number of those that are.
func (c *cluster) settle(b devcluster.Broker, topic, channel string, list []httpMessage) (status, finished int) {
	var body bytes.Buffer
	for _, m := range list {
		fmt.Fprintln(&body, m.Receipt)
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: c.http.Transport}
	resp, err := client.Post("http://"+b.HTTP+"/v1/finish?"+url.Values{"topic": {topic}, "channel": {channel}}.Encode(), "", &body)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Finished int }
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Finished
}

// TestReceiptsAtAnyBroker: every broker finishes what another one has answered, led there or not, and the session that took
// the messages has room again.
func TestReceiptsAtAnyBroker(t *testing.T) {
	c := start(t, 3)
	c.create(topic, channel, 3)
	all := records(t)[:900]
	multiPut(t, c.Brokers[0], topic, all, 100)
	var got []string
	for i := 0; len(got) < len(all); i++ {
		at, other := c.Brokers[i%3], c.Brokers[(i+1+i/3%2)%3]
		list, err := c.poll(at, topic, channel, 100, 20*time.Second)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		status, finished := c.settle(other, topic, channel, list)
		require.Equal(t, http.StatusOK, status, "answered by %s, finished at %s", at.Name, other.Name)
		require.Equal(t, len(list), finished)
		for _, m := range list {
			got = append(got, m.Body)
		}
		status, finished = c.settle(other, topic, channel, list)
		require.Equal(t, http.StatusConflict, status, "for the second time")
		require.Zero(t, finished)
	}
	sameRecords(t, all, got)
	c.drained(topic, channel)
	for _, b := range c.Brokers {
		var stats struct{ Topics []edge.TopicStats }
		require.NoError(t, c.get(b, "/stats?format=json&topic="+topic, &stats))
		for _, client := range stats.Topics[0].Channels[0].Clients {
			require.Equal(t, "HTTP", client.Version)
			require.Zero(t, client.InFlightCount)
		}
	}

	// A broker that is stopped answers the polls that wait, and does not wait for them.
	at := c.Brokers[2]
	ended := make(chan error, 1)
	go func() {
		_, err := c.poll(at, topic, channel, 1, time.Minute)
		ended <- err
	}()
	c.until("a poll that waits", func() bool {
		return slices.ContainsFunc(c.Brokers, func(leader devcluster.Broker) bool { // of any partition: the poll takes one message
			var stats struct{ Topics []edge.TopicStats }
			require.NoError(t, c.get(leader, "/stats?format=json&topic="+topic, &stats))
			return slices.ContainsFunc(stats.Topics[0].Channels[0].Clients, func(s edge.ClientStats) bool { return s.ReadyCount > 0 })
		})
	})
	c.down.begin(at.Name)
	require.NoError(t, c.Stop(at.Name, stopLimit))
	require.ErrorContains(t, <-ended, "503 {\"message\":\"EXITING\"}")
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
	c := start(t, 3)
	c.create(topic, channel, 1)
	all := records(t)[:3000]
	multiPut(t, c.Brokers[0], topic, all, 100)
	seen := map[string]bool{}
	poll := func(b devcluster.Broker, count int) {
		t.Helper()
		deadline := time.Now().Add(waitLimit)
		for fresh := 0; fresh < count; {
			require.True(t, time.Now().Before(deadline), "%d of %d new messages", fresh, count)
			list, err := c.poll(b, topic, channel, 100, 5*time.Second)
			require.NoError(t, err)
			status, _ := c.settle(b, topic, channel, list)
			require.Contains(t, []int{http.StatusOK, http.StatusConflict, http.StatusBadRequest}, status)
			for _, m := range list {
				if !seen[m.Body] {
					seen[m.Body] = true
					fresh++
				}
			}
		}
	}
	victim := c.leader(topic)
	at := c.Brokers[0]
	if at.Name == victim {
		at = c.Brokers[1]
	}
	poll(at, 500)
	held, err := c.poll(at, topic, channel, 50, 5*time.Second)
	require.NoError(t, err)
	require.NotEmpty(t, held)
	c.kill(victim)
	status, finished := c.settle(at, topic, channel, held)
	require.Equal(t, http.StatusOK, status, "the receipts of before are good")
	require.Equal(t, len(held), finished)
	for _, m := range held {
		seen[m.Body] = true
	}
	poll(at, 500)
	c.restart(victim)
	c.whole(topic)
	c.until("the preferred broker leads", func() bool { return c.preferred(topic) }) // else the killed one may lead by then

	leader := c.leader(topic)
	at = c.Brokers[slices.IndexFunc(c.Brokers, func(b devcluster.Broker) bool { return b.Name != leader })]
	held, err = c.poll(at, topic, channel, 50, 5*time.Second)
	require.NoError(t, err)
	require.Greater(t, len(held), 1)
	c.kill(at.Name)
	other := c.Brokers[slices.IndexFunc(c.Brokers, func(b devcluster.Broker) bool { return b.Name != leader && b.Name != at.Name })]
	half := len(held) / 2
	status, finished = c.settle(other, topic, channel, held[:half])
	require.Equal(t, http.StatusOK, status, "within the reclaim time")
	require.Equal(t, half, finished)
	for _, m := range held[:half] {
		seen[m.Body] = true
	}
	again := map[string]bool{}
	for deadline := time.Now().Add(waitLimit); len(seen) < len(all); {
		require.True(t, time.Now().Before(deadline), "%d of %d", len(seen), len(all))
		list, err := c.poll(other, topic, channel, 500, 5*time.Second)
		require.NoError(t, err)
		for _, m := range list {
			seen[m.Body], again[m.Body] = true, true
		}
		c.settle(other, topic, channel, list)
	}
	for i, m := range held {
		require.Equal(t, i >= half, again[m.Body], "message %d of %d", i, len(held))
	}
	status, finished = c.settle(other, topic, channel, held[half:])
	require.Equal(t, http.StatusConflict, status, "a clear refusal")
	require.Zero(t, finished)
	c.drained(topic, channel)
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
	c := start(t, 3)
	c.create(topic, channel, 4)
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("%0100d", i) // 100 bytes
	}
	multiPut(t, c.Brokers[0], topic, all, 500)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := make(map[string]int, count)
	began := time.Now()
	for i := range pollers {
		b := c.Brokers[i%3]
		wg.Go(func() {
			for {
				list, err := c.poll(b, topic, channel, batch, time.Second)
				if err != nil || len(list) == 0 {
					assert.NoError(t, err)
					return
				}
				if status, _ := c.settle(b, topic, channel, list); !assert.Equal(t, http.StatusOK, status) {
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
	c.drained(topic, channel)
}
