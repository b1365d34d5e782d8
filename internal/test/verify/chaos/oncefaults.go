package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	onceBrokers = 4 // one more than replicas, for moves
	onceDrain   = 2 * time.Minute
	onceChannel = "reader"
	onceLong    = 50 // faults from which retention has had its time
)

var (
	short    = [2]time.Duration{500 * time.Millisecond, 5 * time.Second}
	standing = [2]time.Duration{time.Second, onceFrozen}
)

// onceNemeses are the faults of a run, each as often as it is drawn.
var onceNemeses = []nemesis{
	{"kill leader", short, func(r *round) func() { return r.killed(r.leader()) }},
	{"kill leader", short, func(r *round) func() { return r.killed(r.leader()) }},
	{"kill one", short, func(r *round) func() { return r.killed(r.any()) }},
	{"kill all", [2]time.Duration{0, time.Second}, func(r *round) func() { return r.killed(r.brokers...) }},
	{"stop leader", standing, func(r *round) func() { return r.paused(r.leader()) }},
	{"stop one", standing, func(r *round) func() { return r.paused(r.any()) }},
	{"process stalls", standing, (*round).stalling},
	{"clean restart of a leader", short, func(r *round) func() { b := r.leader(); r.stop(b); return func() { r.start(b) } }},
	{"rolling restart", [2]time.Duration{}, (*round).rolling},
	{"replica moves", short, (*round).moving},
	{"replica moves", short, (*round).moving},
	{"isolate leader", short, func(r *round) func() { return r.isolated(r.leader(), bothLanes, drop) }},
	{"leader without etcd", short, func(r *round) func() { return r.isolated(r.leader(), []lane{etcdLane}, drop) }},
	{"leader apart, then killed", short, (*round).apartThenKilled},
	{"loss", short, (*round).loss},
	{"disk below its reserve", short, func(r *round) func() { return r.fill(diskReserve / 2) }},
	{"disk full", short, (*round).diskFull},
	{"windows change", [2]time.Duration{}, (*round).windowsChange},
	{"windows change", [2]time.Duration{}, (*round).windowsChange},
}

// wrongClock needs brokers with clocks (internal/test/testkit/skew).
var wrongClock = nemesis{"one wrong clock", short, (*round).oneWrongClock}

// windowsChange gives each topic another window.
func (r *round) windowsChange() func() {
	for _, of := range onceTopics {
		window := onceWindows[r.IntN(len(onceWindows))]
		q := url.Values{"topic": {of.name}, "dedupe_window": {window.String()}}
		resp, err := r.client.Post("http://"+r.any().http()+"/v1/topic/set?"+q.Encode(), "", nil)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	return func() {}
}

// oneWrongClock lets the clock of a leader jump by up to an hour. It is killed, and starts while its clock is wrong.
func (r *round) oneWrongClock() func() {
	b := r.leader()
	b.clock.Set(r.span(-time.Hour, time.Hour))
	pause(r.span(200*time.Millisecond, 2*time.Second))
	r.kill(b)
	r.start(b)
	return func() { b.clock.Set(0) }
}

// plan draws pairs of faults: one after the other from a shuffled deck, which begins again.
func oncePlan(random *rand.Rand, faults int) (pairs []pair) {
	deck := slices.Clone(onceNemeses)
	if canHang() == nil {
		deck = append(deck, diskHangs)
	}
	if hasClocks() {
		deck = append(deck, wrongClock, wrongClock)
	}
	p := &Plan{random: random}
	var left []nemesis
	draw := func() fault {
		if len(left) == 0 {
			left = slices.Clone(deck)
			random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		next := left[0]
		left = left[1:]
		if next.name == diskHangs.name {
			next.lasts = short
		}
		return p.fault(next)
	}
	for len(pairs)*2 < faults {
		pairs = append(pairs, pair{draw(), draw()})
	}
	return pairs
}

// RunOnce lets producers of all surfaces publish through so many faults. Each message is stored once: as the log of its
// topic has it, and as a channel delivers it. Workers consume by receipts in the meantime.
func RunOnce(t *testing.T, seed uint64, faults int) {
	Inside(t)
	random := rand.New(rand.NewPCG(seed, 1))
	pairs := oncePlan(random, faults)
	c := prepared(t, onceBrokers, false)
	for _, b := range c.brokers {
		b.command = append(b.command, "--put-hold="+onceHold.String(), fmt.Sprintf("--max-bytes-per-file=%d", onceFileBytes))
	}
	c.prepareGray()
	c.hangsAtMost = shortHang
	c.begin()
	c.topics = nil
	var sinks []*sink
	for _, of := range onceTopics {
		q := url.Values{"topic": {of.name}, "partitions": {fmt.Sprint(oncePartitions)}, "dedupe_window": {onceWindows[0].String()}}
		if of.surface == byContents {
			q.Set("dedupe", "content")
		}
		if of.kept {
			q.Set("retention_bytes", fmt.Sprint(int64(onceKeptBytes)))
		}
		c.makeTopic(of.name, q, onceChannel)
		sinks = append(sinks, consumeTopic(t, c.brokers, of.name, onceChannel, nil))
	}
	c.makeTopic(workTopic, url.Values{"topic": {workTopic}, "partitions": {"2"}}, workChannel)
	_, whole := within(wholeLimit, c.whole)
	require.True(t, whole, "the new topics are not whole")

	w := startWorkers(c, seed)
	o := startOnce(c, seed)
	kinds := map[string]int{}
	for i, two := range pairs {
		began := time.Now()
		two.suffer(&round{c, random})
		took, whole := within(wholeLimit, c.whole)
		if !whole {
			t.Errorf("%s: replicas are not in sync %s after the last fault", two, took)
			break
		}
		kinds[two[0].name]++
		kinds[two[1].name]++
		fmt.Fprintf(os.Stderr, "%s %d/%d %s, in sync %s later; %s\n", began.Format("15:04:05"), i+1, len(pairs), two, took.Round(time.Millisecond), o)
		if n := len(o.broken()); n > 0 {
			break // its cause is in the last lines of the logs
		}
	}
	o.stop()
	w.stop()
	t.Logf("faults: %v", kinds)
	for i, of := range onceTopics {
		o.judge(t, of, sinks[i])
	}
	w.judge(t)
	for _, fault := range o.broken() {
		t.Error(fault)
	}
	for why, n := range o.reasons {
		t.Logf("%6d %s", n, why)
	}
	t.Log(o)
	t.Log(w)
	for _, of := range onceTopics {
		out, err := exec.Command(binary("nsqctl"), "check", of.name, "--wait", "20s", "--nsqd-http-address", c.brokers[0].http()).CombinedOutput()
		require.NoError(t, err, "nsqctl check: %s", out)
	}
	var removed int
	for _, of := range onceTopics {
		if !of.kept && c.firstKept(of.name) > 0 {
			removed++
		}
	}
	t.Logf("retention removed messages of %d topics", removed)
	if faults >= onceLong {
		require.NotZero(t, removed, "a long run without retention")
	}
}

// makeTopic makes a topic with a channel.
func (c *cluster) makeTopic(name string, q url.Values, channel string) {
	c.t.Helper()
	c.topics = append(c.topics, name)
	c.post("/topic/create", q)
	c.post("/channel/create", url.Values{"topic": {name}, "channel": {channel}, "from": {"earliest"}})
}

func (o *once) broken() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.faults)
}

// String is the counts so far.
func (o *once) String() string {
	return fmt.Sprintf("%d puts, %d in doubt, %d refused, %d again after OK, %d of these recognised by HTTP, %d broken promises",
		o.puts.Load(), o.doubts.Load(), o.refused.Load(), o.again.Load(), o.known.Load(), len(o.broken()))
}
