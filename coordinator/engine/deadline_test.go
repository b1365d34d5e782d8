package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/nsqd"
)

func TestDeadlinesAreTakenOnce(t *testing.T) {
	var a deadlines
	rng := rand.New(rand.NewPCG(1, 2))
	all, want := make([]*Partition, 100), map[*Partition]int64{}
	for i := range all {
		all[i] = &Partition{}
	}
	for range 1000 {
		h, at := all[rng.IntN(len(all))], rng.Int64N(1000)
		a.put(h, at)
		if was, ok := want[h]; !ok || at < was {
			want[h] = at
		}
	}
	for now := int64(0); now < 1000; now += 10 {
		for _, h := range a.take(now, nil) {
			require.LessOrEqual(t, want[h], now)
			require.Greater(t, want[h], now-10, "given too late")
			delete(want, h)
		}
	}
	require.Empty(t, want)
}

// TestRemovedPartitionLeavesNoDeadline: a message is due in 30 days, but its topic was
// deleted. Nothing keeps the partition's channels until then.
func TestRemovedPartitionLeavesNoDeadline(t *testing.T) {
	r, _ := gathering()
	e := newEngine(r.loop)
	r.host.queue = nsqd.NewPartition("orders", r.host.id, nil, nil, nsqd.Options{})
	e.host(r.host)
	go r.loop.work()
	defer r.loop.stop()
	inAMonth := time.Now().Add(30 * 24 * time.Hour).UnixNano()
	e.deadlines.put(r.host, inAMonth)
	e.Remove(r.host.id)
	e.deadlines.put(r.host, inAMonth) // the clock was looking at it
	require.Empty(t, e.deadlines.take(inAMonth, nil))
}

// sharer counts the calls of Release.
type sharer struct {
	Machine
	released int
}

func (s *sharer) Release() { s.released++ }

// TestARemovedPartitionGivesItsShareBack: what its machine shares with others of the broker, once.
func TestARemovedPartitionGivesItsShareBack(t *testing.T) {
	r, _ := gathering()
	e := newEngine(r.loop)
	m := &sharer{Machine: r.host.machine}
	r.host.machine = m
	r.host.queue = nsqd.NewPartition("orders", r.host.id, nil, nil, nsqd.Options{})
	e.host(r.host)
	go r.loop.work()
	defer r.loop.stop()
	e.Remove(r.host.id)
	require.Equal(t, 1, m.released)
}
