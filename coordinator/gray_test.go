package coordinator_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// followers are the brokers of three that do not lead.
var followers = map[string][]string{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}

// TestSurvivingLeaderDelivers: both followers are gone with a put in progress. The metadata still names the leader, so
// that it delivers what is committed, however long the followers are away. The put is in doubt; later ones are refused.
func TestSurvivingLeaderDelivers(t *testing.T) {
	t.Parallel()
	const messages = 40
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, hold: 3 * time.Second})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.whole("orders")
		leader := c.leader("orders")
		for i := range messages {
			require.NoError(t, c.put(leader, "orders", fmt.Sprintf("m%d", i)))
		}
		s := c.subscribe(leader, "orders", "billing", 1)
		epoch := c.epoch(leader, "orders")
		c.net.loses.Store(true)
		under := make(chan error, 1)
		go func() { under <- c.put(leader, "orders", "under way") }()
		c.eventually(func() bool { d := c.digest(leader, "orders"); return d.End > d.Committed }, "nothing is appended")
		c.net.isolate("n1", "n2", "n3")
		c.net.isolate("n2", "n3")
		c.net.loses.Store(false)
		slowest := time.Duration(0)
		for range messages { // 15 s
			asked := time.Now()
			s.finish(s.next())
			slowest = max(slowest, time.Since(asked))
			time.Sleep(390 * time.Millisecond)
		}
		t.Logf("slowest delivery %s", slowest)
		require.Less(t, slowest, time.Second, "it stopped delivering")
		require.ErrorIs(t, <-under, outcome.ErrInDoubt)
		require.Equal(t, epoch, c.epoch(leader, "orders"), "a rollback could not bring a definite answer")
		refused := c.put(leader, "orders", "refused")
		require.ErrorIs(t, refused, outcome.ErrNotEnough)
		require.EqualError(t, refused, "not enough in-sync replicas (1 of 2), not stored")
		c.net.heal()
		c.whole("orders")
		require.NoError(t, c.put(leader, "orders", "after"))
		for last := ""; last != "after"; { // finishes that no follower had may come again, and what was in doubt
			d := s.next()
			s.finish(d)
			last = string(d.Message.Body)
		}
	})
}

// TestFlappingFollowerLeaves: the links of one follower break and come back every 100 to 800 ms, silently or refused,
// as if its process were dead. It leaves the in-sync set within T_isr + 1 s, and the others serve.
func TestFlappingFollowerLeaves(t *testing.T) {
	t.Parallel()
	for _, period := range flapPeriods {
		for _, resets := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, refused %v", period, resets), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { flap(t, period, resets) })
			})
		}
	}
}

func flap(t *testing.T, period time.Duration, resets bool) {
	c := newCluster(t, 3)
	c.net.resets.Store(resets)
	c.do("n1", "topic.create", "orders", "", nil)
	c.whole("orders")
	leader := c.leader("orders")
	others := followers[leader]
	stop := c.flapping(period, others[0], leader, others[1])
	began, left, slowest := time.Now(), time.Duration(0), time.Duration(0)
	for time.Since(began) < 5*time.Second {
		asked := time.Now()
		require.NoError(t, c.put(leader, "orders", "m"))
		slowest = max(slowest, time.Since(asked))
		v, _ := c.view(leader, "orders")
		if left == 0 && len(v.Partitions[0].ISR) == 2 {
			left = time.Since(began)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("left after %s, slowest put %s, epoch %d", left, slowest, c.epoch(leader, "orders"))
	require.LessOrEqual(t, c.epoch(leader, "orders"), ident.Epoch(2), "it deposes brokers that are well")
	require.NotZero(t, left, "it stays in the in-sync set")
	require.LessOrEqual(t, left, 2*time.Second)
	require.LessOrEqual(t, slowest, 2*time.Second)
	v, _ := c.view(leader, "orders")
	require.Len(t, v.Partitions[0].ISR, 2, "it joins between two flaps")
	stop()
	c.whole("orders")
}

// TestLinkThatRefusesDeposesNobody: the link between the leader and one follower refuses
// connections occasionally. Each of them takes the other for dead, and the third broker, which
// reaches both, is asked before a registration is taken away.
func TestLinkThatRefusesDeposesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.net.resets.Store(true)
		c.do("n1", "topic.create", "orders", "", nil)
		c.whole("orders")
		leader := c.leader("orders")
		stop := c.flapping(400*time.Millisecond, followers[leader][0], leader)
		began, slowest := time.Now(), time.Duration(0)
		for time.Since(began) < 10*time.Second {
			asked := time.Now()
			assert.NoError(t, c.put(leader, "orders", "m"))
			slowest = max(slowest, time.Since(asked))
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		t.Logf("slowest put %s", slowest)
		assert.Equal(t, ident.Epoch(1), c.epoch(leader, "orders"))
		assert.LessOrEqual(t, slowest, time.Second)
		c.whole("orders")
	})
}

// TestFlappingLeader: the links of the leader break and come back. Whether it leads on or is
// replaced, a put at another broker does not wait for longer than a change of leader takes.
func TestFlappingLeader(t *testing.T) {
	t.Parallel()
	for _, period := range flapPeriods {
		t.Run(period.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.do("n1", "topic.create", "orders", "", nil)
				c.whole("orders")
				leader := c.leader("orders")
				others := followers[leader]
				stop := c.flapping(period, leader, others...)
				began, slowest := time.Now(), time.Duration(0)
				for time.Since(began) < 10*time.Second {
					asked := time.Now()
					require.NoError(t, c.put(others[0], "orders", "m"))
					slowest = max(slowest, time.Since(asked))
					time.Sleep(10 * time.Millisecond)
				}
				t.Logf("slowest put %s, led by %s, was %s", slowest, c.leader("orders"), leader)
				require.LessOrEqual(t, slowest, 4*time.Second)
				stop()
				c.whole("orders")
			})
		})
	}
}

// TestBothLinksOfAPartitionedLeaderHeal: a leader reaches the metadata alone, and its links heal at any moment before,
// while and after it says so and is replaced (EL-6). Whether it leads on or not, puts at all brokers are answered
// within the times of a change of leader, and when the race is over nobody is replaced again.
func TestBothLinksOfAPartitionedLeaderHeal(t *testing.T) {
	t.Parallel()
	for after := 900 * time.Millisecond; after <= 1700*time.Millisecond; after += 80 * time.Millisecond {
		for _, both := range []bool{true, false} { // or one of the links 60 ms after the other
			t.Run(fmt.Sprintf("after %s, both at once %v", after, both), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { healedLinks(t, after, both) })
			})
		}
	}
}

// TestPartitionedLeaderThatStops: a leader whose links end just before it is stopped is replaced while
// its edges still answer their last requests, for which a process takes seconds.
func TestPartitionedLeaderThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.whole("orders")
		leader := c.leader("orders")
		others := followers[leader]
		c.net.isolate(leader, others...)
		time.Sleep(900 * time.Millisecond)
		c.nodes[leader].TransferLeadership(t.Context())
		asked := time.Now()
		require.NoError(t, c.put(others[0], "orders", "m"))
		require.Less(t, time.Since(asked), 2*time.Second)
	})
}

func healedLinks(t *testing.T, after time.Duration, both bool) {
	c := newCluster(t, 3)
	c.do("n1", "topic.create", "orders", "", nil)
	c.whole("orders")
	leader := c.leader("orders")
	others := followers[leader]
	before := c.epoch(leader, "orders")
	c.net.isolate(leader, others...)
	var puts sync.WaitGroup
	for _, at := range all {
		puts.Go(func() {
			for range 20 {
				asked := time.Now()
				err := c.put(at, "orders", "m")
				if took := time.Since(asked); err != nil || took > 4*time.Second {
					t.Errorf("put at %s after %s: %v", at, took, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	time.Sleep(after)
	c.net.heal()
	if !both {
		c.net.isolate(leader, others[1])
		time.Sleep(60 * time.Millisecond)
		c.net.heal()
	}
	puts.Wait()
	c.whole("orders")
	settled := c.leader("orders")
	epoch := c.epoch(settled, "orders")
	require.LessOrEqual(t, epoch, before+3, "more than one replacement, and the return to the preferred leader")
	for range 50 {
		asked := time.Now()
		require.NoError(t, c.put(leader, "orders", "after"))
		require.Less(t, time.Since(asked), time.Second)
		time.Sleep(100 * time.Millisecond)
	}
	require.LessOrEqual(t, c.epoch(c.leader("orders"), "orders"), epoch+1, "its leaders are replaced again and again")
	for _, at := range all {
		r, _ := c.registration(at)
		require.Empty(t, r.Unreachable, at)
	}
}

// flapPeriods are how long links that flap are broken, and mended.
var flapPeriods = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 800 * time.Millisecond}

// flapping breaks and mends a broker's links to others again and again, until stop.
func (c *cluster) flapping(period time.Duration, name string, others ...string) (stop func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for cut := true; ; cut = !cut {
			c.net.heal()
			if cut {
				c.net.isolate(name, others...)
			}
			select {
			case <-ended:
				c.net.heal()
				return
			case <-time.After(period):
			}
		}
	}()
	return func() { close(ended); <-gone }
}

// epoch is that of a broker's replica of partition 0.
func (c *cluster) epoch(on, topic string) ident.Epoch {
	c.t.Helper()
	return c.digest(on, topic).Epoch
}
