package speed

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestPrioritiesByTopics measures the recommendation of docs/adr/0013: a topic for each priority, and a
// consumer that splits what it holds between them. While a backlog of low priority is consumed, messages of
// high priority are handled long before it ends, and the backlog continues. In one topic a message waits for
// all that is before it.
func TestPrioritiesByTopics(t *testing.T) {
	c := e2etest.Start(t, 3)
	backlog := e2etest.Rounds(3000, 100_000)
	const handling = time.Millisecond // of each message
	fill := func(topic string) {
		c.Create(topic, "work", 1)
		for at := 0; at < backlog; at += 1000 {
			resp, err := e2etest.Passing.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic="+topic, "", strings.NewReader(strings.Repeat("low\n", 1000)))
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	}
	// consume handles messages by `workers` at a time. high receives the time of each that is not low.
	consume := func(topic string, workers int, low *atomic.Int64, high chan<- string) {
		config := nsq.NewConfig()
		config.MaxInFlight = workers
		consumer, err := nsq.NewConsumer(topic, "work", config)
		require.NoError(t, err)
		consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
		consumer.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
			e2etest.Pause(handling)
			if string(m.Body) == "low" {
				low.Add(1)
			} else {
				high <- string(m.Body)
			}
			return nil
		}), workers)
		require.NoError(t, consumer.ConnectToNSQD(c.Brokers[1].TCP))
		t.Cleanup(func() { consumer.Stop(); <-consumer.StopChan })
	}
	// publish publishes a message of high priority and waits until it is handled.
	publish := func(b devcluster.Broker, topic string, n int, high <-chan string) time.Duration {
		began, body := time.Now(), fmt.Sprint("high ", n)
		resp, err := e2etest.Passing.Post("http://"+b.HTTP+"/pub?topic="+topic, "", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, body, <-high)
		return time.Since(began)
	}

	fill("jobs-low")
	c.Create("jobs-high", "work", 1)
	var low atomic.Int64
	high := make(chan string, 1)
	consume("jobs-high", 8, &low, high)
	consume("jobs-low", 2, &low, high)
	c.Until("the backlog moves", func() bool { return low.Load() > 0 })
	began, before := time.Now(), low.Load()
	var took []time.Duration
	for n := 0; low.Load() < int64(backlog*3/4); n++ {
		took = append(took, publish(c.Brokers[n%3], "jobs-high", n, high))
		e2etest.Pause(5 * time.Millisecond)
	}
	perSecond := float64(low.Load()-before) / time.Since(began).Seconds()
	slices.Sort(took)
	require.Greater(t, len(took), 20, "messages of high priority wait for the backlog")
	t.Logf("two topics: %d of high priority beside a backlog of %d: p50 %s, p99 %s, longest %s; %.0f of low priority a second",
		len(took), backlog, took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond), perSecond)

	fill("jobs")
	low.Store(0)
	consume("jobs", 10, &low, high)
	waited := publish(c.Brokers[0], "jobs", 0, high)
	require.GreaterOrEqual(t, low.Load(), int64(backlog-10), "one topic is consumed in its order")
	t.Logf("one topic: %s behind the same backlog", waited.Round(time.Millisecond))
}
