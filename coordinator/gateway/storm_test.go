package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/rpc"
)

// fate is the answer to one put.
type fate struct {
	body    string
	answers answers
}

func (f *fate) Answer(r api.PutResult) { f.answers.Answer(r) }

// storm is one seeded run of faults over a cluster under load.
type storm struct {
	*world
	rng   *rand.Rand
	top   metadata.TopicState
	names []ident.Node
	fates []*fate
	subs  map[ident.Node]api.Subscription
	seen  map[string]int
}

// TestStorm runs LOCKSTEP_SEQUENCES of them, from LOCKSTEP_SEED on.
func TestStorm(t *testing.T) {
	first, n := env.Number(t, "LOCKSTEP_SEED", uint64(0)), env.Number(t, "LOCKSTEP_SEQUENCES", uint64(10))
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				s := &storm{
					world: w, rng: rand.New(rand.NewPCG(seed, 1)), names: []ident.Node{"n1", "n2", "n3"},
					subs: map[ident.Node]api.Subscription{}, seen: map[string]int{},
				}
				s.top = w.topic("orders", "n1", "n2", "n3", "n1")
				for _, name := range s.names {
					s.subs[name] = w.brokers[name].subscribe(t, "orders", 20)
				}
				for range 200 {
					s.fault()
					s.load()
				}
				s.heal()
				s.check(t)
			})
		})
	}
}

// fault does something to the cluster.
func (s *storm) fault() {
	name := s.names[s.rng.IntN(3)]
	p := s.top.Partition(s.rng.IntN(s.top.Partitions))
	switch s.rng.IntN(12) {
	case 0, 1:
		s.lead(p, name)
	case 2:
		s.lead(p, "")
	case 3:
		s.setDown(name, true)
	case 4, 5:
		s.setDown(name, false)
	case 6:
		other := s.names[s.rng.IntN(3)]
		if pipe := s.pipe(name, other); pipe != nil {
			pipe.setLose(func(rpc.Frame) bool { return true })
			s.tick(20 * time.Millisecond)
			pipe.setLose(nil)
			s.brokers[other].gw.PeerDown(name) // frames get lost with a connection only
			s.brokers[name].gw.PeerDown(other)
		}
	}
}

// load publishes and consumes a little everywhere.
func (s *storm) load() {
	for _, name := range s.names {
		for range s.rng.IntN(20) {
			f := &fate{body: fmt.Sprintf("%s-%d", name, len(s.fates))}
			s.fates = append(s.fates, f)
			s.brokers[name].put(f, "orders", f.body)
		}
		s.drain(name)
	}
	s.tick(time.Duration(s.rng.IntN(100)) * time.Millisecond)
}

// drain pulls all messages of a subscription, finishes most of them, keeps the rest.
func (s *storm) drain(name ident.Node) int {
	sub := s.subs[name]
	got := sub.Pull(20-sub.InFlight(), nil)
	for _, d := range got {
		s.seen[body(d)]++
		if s.rng.IntN(10) > 0 {
			_ = sub.Finish(d.ID)
		} else {
			_ = sub.Requeue(d.ID, int64(s.rng.IntN(300)))
		}
	}
	for len(sub.Refused()) > 0 {
		<-sub.Refused()
	}
	return len(got)
}

// heal gives everything back and lets it come to rest.
func (s *storm) heal() {
	for _, name := range s.names {
		s.setDown(name, false)
	}
	for n := range s.top.Partitions {
		s.lead(s.top.Partition(n), s.names[n%3])
	}
	quiet := 0
	for quiet < 200 {
		quiet++
		for _, name := range s.names {
			if s.drain(name) > 0 {
				quiet = 0
			}
		}
		s.tick(10 * time.Millisecond)
	}
	time.Sleep(10 * time.Second) // above the put limit
	synctest.Wait()
}

func (s *storm) check(t *testing.T) {
	stored := map[string]int{}
	for n := range s.top.Partitions {
		for _, b := range s.bodies(s.top.Partition(n)) {
			stored[b]++
		}
	}
	ok := 0
	for _, f := range s.fates {
		all := f.answers.all()
		require.Len(t, all, 1, "exactly one answer for %s", f.body)
		switch err := all[0].Err; {
		case err == nil:
			ok++
			require.Equal(t, 1, stored[f.body], "%s was answered OK", f.body)
		case errors.Is(err, outcome.ErrInDoubt):
			require.LessOrEqual(t, stored[f.body], 1, f.body)
		default:
			require.Zero(t, stored[f.body], "%s was refused: %v", f.body, err)
		}
	}
	require.Greater(t, ok, len(s.fates)/2)
	again := 0
	for _, n := range s.seen {
		again += n - 1
	}
	t.Logf("%d puts, %d OK, %d stored, %d deliveries more than once", len(s.fates), ok, len(stored), again)
	for b := range stored {
		require.NotZero(t, s.seen[b], "%s was never delivered", b)
	}
	for n := range s.top.Partitions {
		q, _ := s.brokers[s.names[n%3]].Queue(s.top.Partition(n))
		st := q.Stats("ch", false).Channels[0]
		require.Zero(t, st.Depth+int64(st.InFlightCount+st.DeferredCount), "partition %d is not drained", n)
	}
	for _, b := range s.brokers {
		require.Zero(t, b.gw.pending.N())
		require.Zero(t, b.gw.budget.mu.used)
	}
}
