package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

const diskReserve = 1 << 30

// topicsUnderLoad publishes to n topics at all brokers for a while, and returns how many puts of each topic were stored, the
// refusals, and the longest put.
func (c *cluster) topicsUnderLoad(n int, lasts time.Duration) (stored map[string]int, refused []error, longest time.Duration) {
	var mu sync.Mutex
	var puts sync.WaitGroup
	stored = map[string]int{}
	for i := range n {
		topic := fmt.Sprint("topic", i)
		for _, on := range slices.Sorted(maps.Keys(c.nodes)) {
			puts.Go(func() {
				for began := time.Now(); time.Since(began) < lasts; time.Sleep(50 * time.Millisecond) {
					at := time.Now()
					err := c.put(on, topic, "m")
					mu.Lock()
					if err == nil {
						stored[topic]++
					} else {
						refused = append(refused, fmt.Errorf("%s at %s: %w", topic, on, err))
					}
					longest = max(longest, time.Since(at))
					mu.Unlock()
				}
			})
		}
	}
	puts.Wait()
	return stored, refused, longest
}

// outOfSets waits until a broker is in no in-sync set, and leads nothing.
func (c *cluster) outOfSets(full string) {
	c.t.Helper()
	c.eventually(func() bool {
		for name, b := range c.nodes {
			for _, t := range b.Cluster().Topics {
				for _, p := range t.Partitions {
					if name != full && (p.Leader == ident.Node(full) || slices.Contains(p.ISR, ident.Node(full))) {
						return false
					}
				}
			}
		}
		return true
	}, "%s is still in an in-sync set", full)
}

// TestOneFullDiskOfThree: a broker whose disk is below its reserve leaves the in-sync sets and gives its leaderships away. No put at
// any broker is refused, none is lost, and everything is as before when there is room.
func TestOneFullDiskOfThree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const topics = 50
		c := newClusterOf(t, cluster{size: 3, minFree: diskReserve})
		before, refused, _ := c.topicsUnderLoad(topics, 100*time.Millisecond)
		require.Empty(t, refused)
		led := c.leaderships("n1", "n2")
		require.NotZero(t, led)

		c.disks["n2"].SetFreeBytes(diskReserve - 1)
		stored, refused, longest := c.topicsUnderLoad(topics, 3*time.Second)
		require.Empty(t, refused)
		require.Less(t, longest, 3*time.Second)
		c.outOfSets("n2")
		ends := c.logEnds("n2")
		more, refused, _ := c.topicsUnderLoad(topics, time.Second)
		require.Empty(t, refused)
		require.Equal(t, ends, c.logEnds("n2"), "nothing is written to the full disk")
		for name, b := range c.nodes {
			for _, of := range b.Cluster().Brokers {
				require.Equal(t, of.Name == "n2", of.LowSpace, "%s of %s", of.Name, name)
			}
		}

		c.disks["n2"].SetFreeBytes(diskReserve)
		time.Sleep(time.Second)
		c.outOfSets("n2") // not before it has had room for a while
		for i := range topics {
			c.whole(fmt.Sprint("topic", i))
		}
		c.eventually(func() bool { return c.leaderships("n1", "n2") == led }, "the leaderships do not return")
		for topic, n := range before {
			v, ok := c.view("n1", topic)
			require.True(t, ok)
			require.EqualValues(t, n+stored[topic]+more[topic], v.Partitions[0].CommittedSequence, topic)
		}
	})
}

// logEnds are the ends of the replicas on a broker.
func (c *cluster) logEnds(on string) map[string]int64 {
	ends := map[string]int64{}
	for _, topic := range c.nodes[on].Topics() {
		ends[topic] = c.digest(on, topic).End
	}
	return ends
}

// TestTwoFullDisksOfThree: with fewer than the minimum that have room, puts are refused, definitely and by name. Consumers drain
// on, and puts are taken again when one has room.
func TestTwoFullDisksOfThree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, minFree: diskReserve})
		require.NoError(t, c.put("n1", "orders", "m0"))
		require.NoError(t, c.put("n1", "orders", "m1"))
		c.whole("orders")
		leader := c.leader("orders")
		one, two := "n1", "n2"
		switch leader {
		case "n1":
			one = "n3"
		case "n2":
			two = "n3"
		}
		for _, full := range []string{leader, one} {
			c.disks[full].SetFreeBytes(diskReserve - 1)
		}
		var err error
		c.eventually(func() bool { err = c.put(two, "orders", "probe"); return errors.Is(err, outcome.ErrDiskFull) }, "puts are still taken")
		for _, on := range []string{leader, one, two} {
			began := time.Now()
			require.ErrorIs(t, c.put(on, "orders", "refused"), outcome.ErrDiskFull, on)
			require.Less(t, time.Since(began), 100*time.Millisecond, "at once")
		}
		got := c.drain(one, "orders", 2)
		require.NotContains(t, got, "refused")

		c.disks[leader].SetFreeBytes(diskReserve)
		for _, on := range []string{leader, one, two} {
			c.eventually(func() bool { return c.put(on, "orders", "after") == nil }, "puts are still refused at %s", on)
		}
		c.outOfSets(one)
		c.disks[one].SetFreeBytes(diskReserve)
		c.whole("orders")
	})
}

// TestBrokerThatIsShortOfSpaceIsForgottenWhenItDies: its full disk stops no puts any more.
func TestBrokerThatIsShortOfSpaceIsForgottenWhenItDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, minFree: diskReserve})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.disks["n1"].SetFreeBytes(diskReserve - 1)
		c.disks["n2"].SetFreeBytes(diskReserve - 1)
		c.eventually(func() bool { return errors.Is(c.put("n3", "orders", "probe"), outcome.ErrDiskFull) }, "puts are still taken")
		c.kill("n1")
		c.kill("n2")
		c.disks["n1"].SetFreeBytes(diskReserve)
		c.restart("n1")
		c.eventually(func() bool { return c.put("n3", "orders", "after") == nil }, "puts are still refused")
	})
}

// TestAStartWithAFullDisk: the broker joins no in-sync set, and gets no replica and no leadership while others can have them.
func TestAStartWithAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, minFree: diskReserve})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		c.kill("n2")
		c.eventually(func() bool { return c.put("n1", "orders", "m1") == nil }, "puts do not go on")
		c.outOfSets("n2")
		end := c.digest("n1", "orders").End
		c.disks["n2"].SetFreeBytes(diskReserve - 1)
		c.restart("n2")
		require.NoError(t, c.put("n2", "orders", "m2"))
		require.NoError(t, c.put("n2", "fresh", "m0"))
		require.NoError(t, c.administer("n2", "topic.create", "wide", map[string]string{"partitions": "8"}))
		time.Sleep(2 * time.Second)
		c.outOfSets("n2")
		require.Less(t, c.digest("n2", "orders").End, end, "nothing is copied to the full disk")
		for _, topic := range []string{"fresh", "wide"} {
			v, ok := c.view("n1", topic)
			require.True(t, ok)
			for _, p := range v.Partitions {
				require.Len(t, p.Replicas, 3, "the replication factor does not shrink")
			}
		}
		c.disks["n2"].SetFreeBytes(diskReserve)
		for _, topic := range []string{"orders", "fresh", "wide"} {
			c.whole(topic)
		}
	})
}

// TestAFullBrokerGetsNoReplica while others can have it: of a new topic, of a move, of a balance.
func TestAFullBrokerGetsNoReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 4, minFree: diskReserve})
		c.disks["n4"].SetFreeBytes(diskReserve - 1)
		c.eventually(func() bool {
			for _, b := range c.nodes {
				if !slices.ContainsFunc(b.Cluster().Brokers, func(v api.BrokerView) bool { return v.Name == "n4" && v.LowSpace }) {
					return false
				}
			}
			return true
		}, "nobody knows of the full disk")
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"partitions": "8", "replication_factor": "3"}))
		v, _ := c.view("n1", "orders")
		for _, p := range v.Partitions {
			require.NotContains(t, p.Replicas, ident.Node("n4"))
		}
		require.ErrorContains(t, c.move("n1", "orders", "0", "n1", "n4"), "below its disk reserve")
	})
}

// TestAFullDiskWhileTheMetadataIsSilent: the in-sync set cannot change, so that puts are refused after the hold, and none is written to
// the full disk.
func TestAFullDiskWhileTheMetadataIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, minFree: diskReserve, hold: 3 * time.Second})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		full := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.sessions[leader].Cut()
		c.disks[full].SetFreeBytes(diskReserve - 1)
		time.Sleep(time.Second)
		end := c.digest(full, "orders").End
		require.ErrorIs(t, c.put(leader, "orders", "refused"), outcome.ErrDiskFull)
		require.Equal(t, end, c.digest(full, "orders").End)
		c.sessions[leader].Heal()
		c.eventually(func() bool { return c.put(leader, "orders", "m1") == nil }, "puts are still refused")
		c.outOfSets(full)
	})
}

// TestFullDiskOfNewestFilesHeals: all that fills the disk is in the newest file of a
// log, which the next put would go to. When it is consumed, it goes.
func TestFullDiskOfNewestFilesHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, maxDisk: 1 << 20})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		put := 0
		c.eventually(func() bool {
			err := c.put("n2", "orders", strings.Repeat("x", 64<<10))
			if err == nil {
				put++
			}
			return errors.Is(err, outcome.ErrDiskFull)
		}, "puts are still taken")
		s := c.subscribe("n1", "orders", "billing", 100)
		s.finish(s.take(put)...)
		c.eventually(func() bool { return c.put("n2", "orders", "after") == nil }, "puts are refused for good")
		s.finish(s.take(1)...)
		c.whole("orders")
	})
}

// TestFullDiskOfAFollowersNewestFileHeals: the files of a follower end elsewhere than
// its leader's, whose own log is small again.
func TestFullDiskOfAFollowersNewestFileHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, maxDisk: 1 << 20, segmentBytes: 1})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.whole("orders")
		leader := c.leader("orders")
		follower := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.segmentBytes = 0
		c.kill(follower)
		c.restart(follower)
		c.whole("orders")
		put := 0
		c.eventually(func() bool {
			err := c.put(leader, "orders", strings.Repeat("x", 32<<10))
			if err == nil {
				put++
			}
			return errors.Is(err, outcome.ErrDiskFull)
		}, "puts are still taken")
		s := c.subscribe(leader, "orders", "billing", 100)
		s.finish(s.take(put)...)
		c.eventually(func() bool { return c.put(leader, "orders", "after") == nil }, "puts are refused for good")
		require.Equal(t, leader, c.leader("orders"))
	})
}

// TestFullDiskHealsWhilePutsContinue: consumers have finished most of the newest files, and publishing continues at the other
// brokers, so no log is ever finished to its end.
func TestFullDiskHealsWhilePutsContinue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.whole("orders")
		leader := c.leader("orders")
		full := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.maxDisk = 1 << 20
		c.kill(full)
		c.restart(full)
		c.maxDisk = 0
		c.whole("orders")
		s := c.subscribe(leader, "orders", "billing", 100)
		put := func(bytes int) {
			require.NoError(t, c.put(leader, "orders", strings.Repeat("x", bytes)))
			s.finish(s.take(1)...)
		}
		short := func() bool {
			v := c.nodes[leader].Cluster()
			return slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == ident.Node(full) && b.LowSpace })
		}
		c.eventually(func() bool { put(32 << 10); return short() }, "the disk is not full")
		c.outOfSets(full)
		c.eventually(func() bool { put(1 << 10); return !short() }, "the disk has no room, although consumers have finished")
		c.whole("orders")
	})
}

// TestATopicAmongFullAndDrainedBrokers: the broker with the full disk is not in the first in-sync sets, so it must lead none:
// no member can take the leadership from a broker that lives.
func TestATopicAmongFullAndDrainedBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 4, minFree: diskReserve})
		for _, name := range []string{"n2", "n3"} {
			require.NoError(t, c.drained("n4", name))
			c.eventually(func() bool { return c.drainOf("n1", name) != "" }, "n1 does not know that %s is drained", name)
		}
		c.kill("n4")
		c.disks["n1"].SetFreeBytes(diskReserve - 1)
		for _, on := range []string{"n1", "n2", "n3"} {
			c.eventually(func() bool {
				return slices.ContainsFunc(c.nodes[on].Cluster().Brokers, func(v api.BrokerView) bool { return v.Name == "n1" && v.LowSpace })
			}, "%s does not know of the full disk", on)
		}
		require.NoError(t, c.administer("n2", "topic.create", "orders", map[string]string{"partitions": "4", "replication_factor": "3", "min_in_sync": "2"}))
		for _, on := range []string{"n1", "n2", "n3"} {
			for range 8 {
				require.NoError(t, c.put(on, "orders", "m"))
			}
		}
		c.outOfSets("n1")
	})
}
