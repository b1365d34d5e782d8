package coordinator_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// syncCounter counts the syncs of the journals, by broker.
type syncCounter struct {
	mu sync.Mutex
	of map[string]int
}

func newSyncCounter() *syncCounter { return &syncCounter{of: map[string]int{}} }

// before counts, and calls another hook then.
func (s *syncCounter) before(next vfstest.Hook) vfstest.Hook {
	return func(op vfstest.Op) error {
		_ = s.hook(op)
		return next(op)
	}
}

func (s *syncCounter) hook(op vfstest.Op) error {
	broker, file, _ := strings.Cut(op.Name, "/")
	if op.Call == vfstest.CallSync && strings.Contains(file, "/journal/") && !strings.HasSuffix(file, "acknowledged") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of[broker]++
	}
	return nil
}

// during gives the syncs on a broker while f runs.
func (s *syncCounter) during(broker string, f func()) int {
	read := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.of[broker]
	}
	before := read()
	f()
	return read() - before
}

// synced reports whether each of some puts is synced on every broker before it is answered.
func (c *cluster) synced(s *syncCounter, topic string) bool {
	c.t.Helper()
	for range 3 {
		for name := range c.nodes {
			if s.during(name, func() { require.NoError(c.t, c.put("n1", topic, "m")) }) == 0 {
				return false
			}
		}
	}
	return true
}

// TestBrokerHonoursTheTopicsDurability: one broker of three is started with
// --durability=replicated. A topic that requires sync is synced there, too.
func TestBrokerHonoursTheTopicsDurability(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSyncCounter()
		c := newClusterOf(t, cluster{size: 3, hook: s.hook})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		c.kill("n2")
		c.noSync = true
		c.restart("n2")
		c.whole("orders")
		require.True(t, c.synced(s, "orders"))
	})
}

// TestDurabilityOfATopic: brokers that sync nothing by default sync everything once a topic
// requires it, created or changed, and no longer when no topic does.
func TestDurabilityOfATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSyncCounter()
		c := newClusterOf(t, cluster{size: 3, noSync: true, hook: s.hook})
		create := func(topic, durability string) error {
			return c.nodes["n1"].Do(t.Context(), api.CreateTopic{Topic: topic, Durability: durability})
		}
		shown := func(topic string) string {
			v, _ := c.view("n1", topic)
			return v.Durability
		}
		require.NoError(t, c.put("n1", "clicks", "m0"))
		c.whole("clicks")
		require.Equal(t, "replicated", shown("clicks"))
		c.cached(s, "clicks")

		require.NoError(t, create("ledger", "sync"))
		c.whole("ledger")
		require.Equal(t, "sync", shown("ledger"))
		require.True(t, c.synced(s, "ledger"), "from the first put on")

		set := func(topic, durability string) error {
			return c.administer("n1", "topic.set", topic, map[string]string{"durability": durability})
		}
		require.NoError(t, set("ledger", "replicated"))
		c.eventually(func() bool { return !c.synced(s, "ledger") }, "it does not require sync any more")
		require.NoError(t, set("clicks", "sync"))
		require.Equal(t, "sync", shown("clicks"))
		c.eventually(func() bool { return c.synced(s, "clicks") }, "the change is not honoured")
		require.ErrorIs(t, set("clicks", "maybe"), outcome.ErrInvalid)
	})
}
