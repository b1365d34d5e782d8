package speed

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestDelayPrecision: of 10,000 messages due per second, put at all brokers and
// consumed at all, none comes early and hardly one 10 ms late.
func TestDelayPrecision(t *testing.T) {
	const topic, channel, perSecond, wait = "alarms", "clock", 10_000, 3 * time.Second
	n := e2etest.Rounds(2, 30) * perSecond
	c := e2etest.Start(t, 3)
	c.Create(topic, channel, 1)
	base := time.Now()
	var mu sync.Mutex
	late, early, seen := hdrhistogram.New(1, 60_000_000, 3), time.Duration(0), 0
	stop := c.Handle(topic, channel, 2500, func(m *nsq.Message) error {
		due := time.Duration(binary.BigEndian.Uint64(m.Body))
		passed := time.Since(base) - due
		mu.Lock()
		defer mu.Unlock()
		seen++
		early = max(early, -passed)
		return late.RecordValue(max(passed.Microseconds(), 0))
	})
	defer stop()
	postpone(c, topic, n, perSecond, wait, base)
	c.Until("every message", func() bool { mu.Lock(); defer mu.Unlock(); return seen >= n })
	us := func(q float64) time.Duration { return time.Duration(late.ValueAtQuantile(q)) * time.Microsecond }
	t.Logf("%d messages, %d due per second: late p50 %s, p99 %s, p99.9 %s, max %s; earliest %s early",
		n, perSecond, us(50), us(99), us(99.9), us(100), early)
	require.Zero(t, early)
	require.Equal(t, n, seen)
	require.Less(t, us(99), e2etest.Slack(time.Duration(e2etest.Rounds(200, 10))*time.Millisecond), "promised 10 ms; in short runs a busy machine counts for much")
}

// postpone puts n messages at a fixed rate, each delayed by the same time. Bodies
// say when they are due: since base, counted from before the put.
func postpone(c *e2etest.Cluster, topic string, n, perSecond int, wait time.Duration, base time.Time) {
	c.T.Helper()
	var producers []*nsq.Producer
	for i := range c.Brokers {
		producers = append(producers, newProducer(c, i))
	}
	done := make(chan *nsq.ProducerTransaction, n)
	begin := time.Now()
	for i := 0; i < n; {
		for due := int(time.Since(begin).Seconds() * float64(perSecond)); i < min(due, n); i++ {
			body := binary.BigEndian.AppendUint64(nil, uint64(time.Since(base)+wait))
			require.NoError(c.T, producers[i%len(producers)].DeferredPublishAsync(topic, wait, body, done))
		}
		e2etest.Pause(time.Millisecond)
	}
	for range n {
		require.NoError(c.T, (<-done).Error)
	}
}
