package chaos

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

const (
	// fenceLimit is how long two leaders may deliver at the same time, and how
	// long a partitioned one may continue.
	fenceLimit = time.Second
	// fenceSlack is what a busy machine may add to the latter.
	fenceSlack = 500 * time.Millisecond
	// stepsEach are finished before each deposal, left after all of them.
	stepsEach, left = 3, 8
)

// deposals are the ways to lose a leadership without dying.
var deposals = []struct {
	name  string
	begin func(r *round, leader *broker) (heal func())
	// alone: from the fault on no other broker answers the leader.
	alone bool
}{
	{"stopped", func(r *round, b *broker) func() { return r.paused(b) }, false},
	{"without brokers", func(r *round, b *broker) func() { return r.isolated(b, []lane{rpcLane}, drop) }, true},
	{"without etcd", func(r *round, b *broker) func() { return r.isolated(b, []lane{etcdLane}, drop) }, false},
	{"without both", func(r *round, b *broker) func() { return r.isolated(b, bothLanes, drop) }, true},
}

// TestChaosDeposedLeaderFallsSilent: the leader of an ordered channel is stopped
// and wakes up, or is partitioned from the other brokers, from etcd, from both.
// Clients requeue each message at once, so that every broker that may deliver does. The
// fencing token names the leader that delivered.
func TestChaosDeposedLeaderFallsSilent(t *testing.T) {
	Inside(t)
	kinds := []string{"embedded"}
	if env.Long() {
		kinds = append(kinds, "external")
	}
	for _, etcd := range kinds {
		t.Run(etcd+" etcd", func(t *testing.T) {
			c := newCluster(t, 3, etcd == "external")
			c.post("/topic/create", url.Values{"topic": {topic}, "ordered": {"true"}})
			c.post("/channel/create", url.Values{"topic": {topic}, "channel": {orderedChannel}})
			steps := judge.Put{Bodies: e2etest.Numbered("step", stepsEach*len(deposals)+left)}
			sent := record.Now()
			c.send("/mpub", url.Values{"topic": {topic}}, strings.Join(steps.Bodies, "\n"))
			steps.Attempts = []judge.Attempt{record.Attempt(sent, judge.OK)}
			w := watchFence(t, c.brokers)
			for _, d := range deposals {
				c.depose(w, d.name, d.begin, d.alone)
			}
			w.finish(left)
			w.order.log(t)
			h := record.History(topic, []*judge.Put{&steps}, w.order.all())
			h.Channels, h.Undrained = []judge.Channel{w.order.channel()}, true // some finishes may be lost with their leader
			require.Empty(t, judge.Check(h))
		})
	}
}

// depose takes the leadership from a broker and holds its deliveries against
// those of its successor.
func (c *cluster) depose(w *fenceWatch, name string, begin func(*round, *broker) func(), alone bool) {
	_, whole := within(wholeLimit, c.whole)
	require.True(c.t, whole, "%s: the topic is not whole", name)
	w.finish(stepsEach)
	r := &round{c, rand.New(rand.NewPCG(0, 0))}
	old := r.leader()
	w.gather(old)
	began := time.Now()
	heal := begin(r, old)
	w.scatter()
	var since ident.Epoch
	_, replaced := within(wholeLimit, func() bool {
		for _, b := range r.except(old) {
			if v, ok := c.viewOf(b); ok && v.Partitions[0].Leader != "" && string(v.Partitions[0].Leader) != old.name {
				since = v.Partitions[0].Epoch
			}
		}
		return since > 0 && w.delivers(since)
	})
	require.True(c.t, replaced, "%s: nobody else leads", name)
	pause(2 * fenceLimit) // in which the old one could still deliver
	heal()
	pause(fenceLimit)
	last, first := w.around(since)
	overlap := max(last.Sub(first), 0)
	c.t.Logf("%s: the old leader's last delivery %s after the fault, the new one's first after %s; overlap %s", name,
		last.Sub(began).Round(time.Millisecond), first.Sub(began).Round(time.Millisecond), overlap.Round(time.Millisecond))
	require.LessOrEqual(c.t, overlap, fenceLimit, name)
	if alone {
		require.Less(c.t, last.Sub(began), fenceLimit+fenceSlack, name)
	}
}
