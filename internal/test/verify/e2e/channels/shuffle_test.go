package channels

import (
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// shuffler is a consumer that holds thousands of messages and finishes any of
// them; one of a hundred it gives back, to come again after a while.
type shuffler struct {
	mu       sync.Mutex
	hold     int // messages kept in hand
	pool     []*nsq.Message
	finished int
	requeued int
}

// HandleMessage implements nsq.Handler.
func (s *shuffler) HandleMessage(m *nsq.Message) error {
	m.DisableAutoResponse()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = append(s.pool, m)
	for len(s.pool) > s.hold {
		s.settleLocked()
	}
	return nil
}

func (s *shuffler) settleLocked() {
	i, last := rand.IntN(len(s.pool)), len(s.pool)-1
	m := s.pool[i]
	s.pool[i] = s.pool[last]
	s.pool = s.pool[:last]
	if m.Attempts == 1 && rand.IntN(100) == 0 {
		m.RequeueWithoutBackoff(500 * time.Millisecond)
		s.requeued++
		return
	}
	m.Finish()
	s.finished++
}

// release lets it hold no more than n.
func (s *shuffler) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = n
	for len(s.pool) > n {
		s.settleLocked()
	}
}

func (s *shuffler) done() (finished, requeued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished, s.requeued
}

// TestFinishedInRandomOrder: whatever the order of the finishes, every message is
// counted once at every moment, and what the brokers remember stays small.
func TestFinishedInRandomOrder(t *testing.T) {
	t.Parallel()
	const topic, channel, inFlight = "cards", "dealer", 7500
	n := e2etest.Rounds(50_000, 1_000_000)
	c := e2etest.Start(t, 3)
	c.Create(topic, channel, 1)
	e2etest.MultiPut(t, c.Brokers[0], topic, e2etest.Numbered("card", n), 1000)
	leader, err := c.Broker(c.Leader(topic))
	require.NoError(t, err)
	memory := c.WatchMemory()
	s := &shuffler{hold: inFlight * 3 / 4}
	stop := c.Handle(topic, channel, inFlight, s.HandleMessage)
	defer stop()
	before, samples, deferred, limit := 0, 0, 0, time.Now().Add(5*e2etest.WaitLimit)
	for before < n {
		require.True(t, time.Now().Before(limit), "stuck at %d", before)
		e2etest.Pause(e2etest.PollEvery)
		st, ok := statsOf(c, *leader, topic, channel)
		sent, _ := s.done()
		if !ok {
			continue
		}
		finished := int(st.MessageCount) - int(st.Depth) - st.InFlightCount - st.DeferredCount
		require.EqualValues(t, n, st.MessageCount)
		require.GreaterOrEqual(t, finished, before, "%+v", st)
		require.LessOrEqual(t, finished, sent, "%+v", st)
		before, deferred = finished, max(deferred, st.DeferredCount)
		if samples++; int(st.Depth)+st.DeferredCount == 0 {
			s.release(0) // the last ones
		}
	}
	sent, requeued := s.done()
	require.Equal(t, n, sent)
	t.Logf("%d messages finished in random order, %d of them given back once (%d deferred at most): %d samples, all exact",
		n, requeued, deferred, samples)
	for name, m := range memory() {
		t.Logf("%s: %d MiB resident before, %d MiB at most", name, m.Before>>20, m.Most>>20)
		require.Less(t, m.Most-m.Before, int64(256<<20), "memory is not bounded")
	}
	c.Drained(topic, channel)
}

// statsOf is what one broker says of a channel.
func statsOf(c *e2etest.Cluster, b devcluster.Broker, topic, channel string) (api.ChannelStats, bool) {
	var s struct{ Topics []api.TopicStats }
	q := url.Values{"format": {"json"}, "topic": {topic}, "channel": {channel}}
	if c.Get(b, "/stats?"+q.Encode(), &s) != nil || len(s.Topics) != 1 || len(s.Topics[0].Channels) != 1 {
		return api.ChannelStats{}, false
	}
	return s.Topics[0].Channels[0], true
}
