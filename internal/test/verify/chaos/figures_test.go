package chaos

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// The faults of the figures, and how long each lasts.
const (
	figuresEnv  = "LOCKSTEP_FIGURES" // how often each fault is repeated
	hungFor     = 15 * time.Second
	flapFor     = 10 * time.Second
	flapEvery   = 400 * time.Millisecond
	apartFor    = 12 * time.Second
	settleTime  = 6 * time.Second // after a fault that is over at once
	backlogSize = 4000            // messages that wait when both followers die
)

// TestFigures measures what clients notice of a fault, with the binaries of LOCKSTEP_BINARIES or
// those of this tree, and prints a table to standard error. `make figures` runs it with two
// builds. It asserts nothing: a machine that does other things has other figures.
func TestFigures(t *testing.T) {
	Inside(t)
	times := env.Number(t, figuresEnv, 0)
	if times == 0 {
		env.Skip(t, "measures; "+figuresEnv+"=5")
	}
	require.NoError(t, canHang())
	var rows []figure
	for _, durability := range []string{"sync", "replicated"} {
		t.Run(durability, func(t *testing.T) { rows = append(rows, measure(t, durability, times)...) })
	}
	apart := &figures{}
	for range times {
		t.Run("both followers die", apart.bothFollowersDie)
	}
	fmt.Fprintln(os.Stderr, table(append(rows, apart.rows...)))
}

// measure repeats the faults of three brokers with embedded etcd.
func measure(t *testing.T, durability string, times int) []figure {
	f := newFigures(t, durability, false)
	for range times {
		if durability == "sync" {
			f.note("leader killed", "slowest put elsewhere", f.slowestDuring(settleTime, func(leader *broker) { f.kill(leader) }))
			f.note("leader stopped as planned", "slowest put elsewhere", f.slowestDuring(settleTime, func(leader *broker) { f.stop(leader) }))
			left, slowest := f.flaps()
			f.note("a follower's links flap every 400 ms", "it leaves the in-sync set after", left)
			f.note("a follower's links flap every 400 ms", "slowest put", slowest)
		}
		f.note("leader's disk hangs, "+durability, "slowest put elsewhere", f.slowestDuring(hungFor, func(leader *broker) {
			f.hang(leader, true, hungFor)
			require.True(f.t, leader.disk.hangs())
		}))
	}
	return f.rows
}

// figure is a measured value, repeated.
type figure struct {
	fault, what string
	values      []time.Duration
}

// table prints medians and the worst of each.
func table(rows []figure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | measured | median of %d | worst |\n|---|---|---|---|\n", len(rows[0].values))
	for _, f := range rows {
		v := slices.Sorted(slices.Values(f.values))
		fmt.Fprintf(&b, "| %s | %s | %.2f s | %.2f s |\n", f.fault, f.what, v[len(v)/2].Seconds(), v[len(v)-1].Seconds())
	}
	return b.String()
}

// figures are measured on one cluster with one partition.
type figures struct {
	*cluster
	rows []figure
}

// newFigures starts three brokers, each with a disk that can hang.
func newFigures(t *testing.T, durability string, external bool) *figures {
	c := prepared(t, 3, external)
	for _, b := range c.brokers {
		b.command = append(b.command, "--durability="+durability)
	}
	c.withDisks()
	c.small.unmountSmall(t)
	c.withDisk(c.small)
	c.begin()
	c.post("/topic/create", url.Values{"topic": {topic}})
	c.post("/channel/create", url.Values{"topic": {topic}, "channel": {reader}, "from": {"earliest"}})
	f := &figures{cluster: c}
	f.settle()
	return f
}

func (f *figures) note(fault, what string, v time.Duration) {
	fmt.Fprintf(os.Stderr, "%s %s: %s %s\n", time.Now().Format("15:04:05"), fault, what, v.Round(time.Millisecond))
	for i := range f.rows {
		if f.rows[i].fault == fault && f.rows[i].what == what {
			f.rows[i].values = append(f.rows[i].values, v)
			return
		}
	}
	f.rows = append(f.rows, figure{fault, what, []time.Duration{v}})
}

// settle starts what does not run and waits until all is in sync and quiet, and the preferred
// replica leads: a leadership that moves during a fault would be measured too.
func (f *figures) settle() {
	for _, b := range f.brokers {
		f.start(b)
	}
	for _, b := range f.brokers {
		f.ready(b)
	}
	_, ok := within(wholeLimit, f.whole)
	require.True(f.t, ok, "the topic is not whole")
	_, ok = within(wholeLimit, func() bool {
		v, ok := f.view()
		return ok && v.Partitions[0].Leader == v.Partitions[0].Replicas[0]
	})
	require.True(f.t, ok, "the preferred replica does not lead")
	pause(2 * time.Second)
}

func (f *figures) leading() *broker {
	v, ok := f.view()
	require.True(f.t, ok)
	i := slices.IndexFunc(f.brokers, func(b *broker) bool { return ident.Node(b.name) == v.Partitions[0].Leader })
	require.GreaterOrEqual(f.t, i, 0)
	return f.brokers[i]
}

// slowestDuring lets the leader suffer, and returns the slowest put at the other brokers from then on.
// A put is retried there until it is answered OK.
func (f *figures) slowestDuring(d time.Duration, fault func(leader *broker)) time.Duration {
	f.settle()
	leader := f.leading()
	slowest := f.slowestAt(d, (&round{f.cluster, nil}).except(leader), func() { fault(leader) })
	if leader.disk != nil {
		leader.disk.wait()
	}
	return slowest
}

// slowestAt measures puts at brokers from the fault on.
func (f *figures) slowestAt(d time.Duration, at []*broker, fault func()) time.Duration {
	l := startLoad(f.t, at, 3, 120, nil)
	pause(time.Second)
	l.reset()
	began := time.Now()
	fault()
	pause(d - time.Since(began))
	l.stop(drainLimit)
	return l.slowest
}

// flaps lets the links of a follower flap, and returns when it has left the in-sync set, and the
// slowest put at the others.
func (f *figures) flaps() (left, slowest time.Duration) {
	f.settle()
	r := &round{f.cluster, nil}
	leader := f.leading()
	follower := r.except(leader)[0]
	cuts := down(r.numbers(follower), r.numbers(r.except(follower)...), []lane{rpcLane})
	left = flapFor
	slowest = f.slowestAt(0, r.except(follower), func() {
		heal := r.repeat(flapEvery, flapEvery, func() func() { return r.severed(cuts) })
		began := time.Now()
		within(flapFor, func() bool {
			if v, ok := f.viewOf(leader); ok && left == flapFor && !slices.Contains(v.Partitions[0].ISR, ident.Node(follower.name)) {
				left = time.Since(began)
			}
			return false
		})
		heal()
	})
	return left, slowest
}

// bothFollowersDie: a consumer reads a backlog while both followers die with puts in progress and etcd
// lives. It notes for how long the consumer had to wait for a message at most.
func (f *figures) bothFollowersDie(t *testing.T) {
	c := newFigures(t, "sync", true)
	c.send("/mpub", url.Values{"topic": {topic}}, strings.Repeat("waits\n", backlogSize))
	leader := c.leading()
	gaps := make(chan time.Time, backlogSize)
	cfg := config()
	cfg.MaxInFlight = 1
	consumer, err := nsq.NewConsumer(topic, reader, cfg)
	require.NoError(t, err)
	consumer.SetLogger(nil, 0)
	consumer.AddHandler(nsq.HandlerFunc(func(*nsq.Message) error {
		gaps <- time.Now()
		pause(10 * time.Millisecond)
		return nil
	}))
	require.NoError(t, consumer.ConnectToNSQD(leader.tcp()))
	l := startLoad(t, []*broker{leader}, 3, 60, nil)
	pause(2 * time.Second)
	c.kill((&round{c.cluster, nil}).except(leader)...)
	died := time.Now()
	pause(apartFor)
	last, longest, n := died, time.Duration(0), 0
	for len(gaps) > 0 {
		if at := <-gaps; at.After(died) {
			longest, last, n = max(longest, at.Sub(last)), at, n+1
		}
	}
	longest = max(longest, time.Since(last))
	consumer.Stop()
	<-consumer.StopChan
	l.stop(0)
	f.note("both followers die, etcd lives ("+strconv.Itoa(int(apartFor.Seconds()))+" s)", "longest wait for a delivery", longest)
	f.note("both followers die, etcd lives ("+strconv.Itoa(int(apartFor.Seconds()))+" s)", "first refusal after", l.firstFailure(died))
}

// reset forgets what was measured so far.
func (l *load) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest, l.failed = 0, nil
}

// firstFailure is how long after a moment the first put failed.
func (l *load) firstFailure(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.failed {
		if at.After(since) {
			return at.Sub(since)
		}
	}
	return apartFor
}

// unmountSmall takes the small disk away.
func (b *broker) unmountSmall(t *testing.T) {
	require.NoError(t, syscall.Unmount(b.dir, syscall.MNT_DETACH))
}
