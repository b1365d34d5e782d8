package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/loopdisk"
	"github.com/lockstepmq/lockstep/internal/test/testkit/skew"
)

// Gray failures leave a broker half alive. Each of these faults starts and ends by itself until it
// is healed; the draw of the round decides on its victim and its rhythm.

// gray are the nemeses of half-alive brokers. Those of disks and clocks need what withDisks and
// withClocks prepare.
var gray = []nemesis{
	{"flapping link", usual, func(r *round) func() { return r.flappingLink(false) }},
	{"flapping links of one", usual, func(r *round) func() { return r.flappingLink(true) }},
	{"process stalls", [2]time.Duration{2 * time.Second, 12 * time.Second}, (*round).stalling},
	{"slow processor", usual, (*round).slowProcessor},
}

// The gray nemeses that need a disk or a clock.
var (
	diskHangs    = nemesis{"disk hangs", [2]time.Duration{time.Second, 30 * time.Second}, (*round).diskHangs}
	minimumHangs = nemesis{"disk hangs at the minimum", [2]time.Duration{0, time.Second}, (*round).diskHangsAtMinimum}
	clocksJump   = nemesis{"clocks jump", usual, (*round).clocksJump}
)

const (
	flapShortest, flapLongest = 100 * time.Millisecond, 800 * time.Millisecond
	clocksEnv                 = "LOCKSTEP_CLOCKS"       // set: build the brokers with internal/test/testkit/skew
	clocksBuiltEnv            = "LOCKSTEP_CHAOS_CLOCKS" // set for the run inside: they are
	outerDiskBytes            = 1536 << 20
	innerDiskBytes            = 1 << 30
	longHang, shortHang       = 30 * time.Second, 4 * time.Second
)

// span draws a duration.
func (r *round) span(least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// either is the leader of some partition, or any broker.
func (r *round) either() *broker {
	if r.IntN(2) == 0 {
		return r.leader()
	}
	return r.any()
}

// repeat begins a fault and ends it again and again, until healed. Each is broken and whole for
// one period. Its goroutine ends with the healing.
func (r *round) repeat(broken, whole time.Duration, begin func() (end func())) (heal func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			end := begin()
			ended := wait(quit, broken)
			end()
			if ended || wait(quit, whole) {
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(quit); wg.Wait() })
}

// wait reports whether quit was closed before the time was over.
func wait(quit <-chan struct{}, d time.Duration) bool {
	select {
	case <-quit:
		return true
	case <-time.After(d):
		return false
	}
}

// flappingLink breaks the connections of two brokers, or of one broker to all others, every 100 to
// 800 ms.
func (r *round) flappingLink(all bool) func() {
	b := r.either()
	rest := r.except(b)
	others := r.hosts(rest...)
	if !all {
		others = r.numbers(rest[r.IntN(len(rest))])
	}
	lanes := [][]lane{bothLanes, {rpcLane}}[r.IntN(2)]
	cuts := [][]cut{
		between(r.numbers(b), others, lanes, drop), between(r.numbers(b), others, lanes, reset), down(r.numbers(b), others, lanes),
	}[r.IntN(3)]
	period := r.span(flapShortest, flapLongest)
	for _, c := range cuts { // hurt from the first break to the end
		r.health.between(c.from, c.to, 1)
	}
	heal := r.repeat(period, period, func() func() { return r.severed(cuts) })
	return func() {
		heal()
		for _, c := range cuts {
			r.health.between(c.from, c.to, -1)
		}
	}
}

// stutter stops a broker's process and lets it continue again and again. The process may have been
// killed in the meantime.
func (r *round) stutter(b *broker, stopped, runs time.Duration) func() {
	end := r.harm(b)
	if b.process == nil {
		return end
	}
	process := b.process.Process
	heal := r.repeat(stopped, runs, func() func() {
		_ = process.Signal(syscall.SIGSTOP)
		return func() { _ = process.Signal(syscall.SIGCONT) }
	})
	return func() { heal(); end() }
}

// stalling lets a process stand still for 0.5 to 4 s, again and again. (The nemeses "stop …" do for
// up to a minute, once.)
func (r *round) stalling() func() {
	return r.stutter(r.either(), r.span(500*time.Millisecond, 4*time.Second), r.span(200*time.Millisecond, 2*time.Second))
}

// slowProcessor gives a broker a twentieth to a third of a processor.
func (r *round) slowProcessor() func() {
	return r.stutter(r.either(), r.span(20*time.Millisecond, 95*time.Millisecond), r.span(5*time.Millisecond, 10*time.Millisecond))
}

// hangingDisk is a disk in a disk (internal/test/testkit/loopdisk).
type hangingDisk struct {
	outer, inner *loopdisk.Disk
	over         <-chan struct{} // of the last hang
}

// withDisks gives each broker a disk that can hang, except for the one with a small disk.
func (c *cluster) withDisks() {
	for _, b := range c.brokers {
		if b != c.small {
			c.withDisk(b)
		}
	}
}

func (c *cluster) withDisk(b *broker) {
	at := filepath.Join(c.dir, b.name+".outer")
	outer, err := loopdisk.Mount(at+".disk", at, outerDiskBytes)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, outer.Close()) })
	inner, err := loopdisk.Mount(filepath.Join(at, "disk"), b.dir, innerDiskBytes, "barrier=0")
	require.NoError(c.t, err)
	b.disk = &hangingDisk{outer: outer, inner: inner}
	c.t.Cleanup(func() {
		b.disk.wait()
		c.kill(b)
		require.NoError(c.t, inner.Close())
	})
}

// hangs: the last hang is not over. A select with a timer of 0 would also choose the timer when the
// channel is closed.
func (d *hangingDisk) hangs() bool {
	select {
	case <-d.over:
		return false
	default:
		return d.over != nil
	}
}

// wait waits until the disk continues.
func (d *hangingDisk) wait() {
	if d.over != nil {
		<-d.over
	}
}

// hang lets writes, or syncs alone, not return for a time. Where a hang of that disk is in progress,
// nothing happens.
func (c *cluster) hang(b *broker, writes bool, lasts time.Duration) {
	d := b.disk
	if d.hangs() {
		return
	}
	disk := d.outer
	if writes {
		disk = d.inner
	}
	end := c.harm(b)
	over, err := disk.Hang(lasts)
	if err != nil {
		end()
		c.t.Errorf("%s: %v", b.name, err)
		return
	}
	d.over = over
	go func() { // ends with the hang
		<-over
		end()
	}()
}

// diskBroker is a broker whose disk can hang: often the leader.
func (r *round) diskBroker() *broker {
	for {
		if b := r.either(); b.disk != nil {
			return b
		}
	}
}

// diskHangs lets a disk hang for 0.5 to 30 s, again and again, until healed. A disk that hangs then
// continues when the time of that hang is over.
func (r *round) diskHangs() func() {
	b, writes := r.diskBroker(), r.IntN(2) == 0
	longest := min(r.hangsAtMost, 500*time.Millisecond<<r.IntN(7))
	heal := r.repeat(longest, r.span(200*time.Millisecond, 3*time.Second), func() func() {
		r.hang(b, writes, longest)
		return func() {}
	})
	return func() { heal(); b.disk.wait() }
}

// diskHangsAtMinimum leads to a rollback: one follower is cut off from the other brokers and has
// left the in-sync set, which is at its minimum then, and the disk of the other hangs for
// longer than a put may take, while its process answers (RB-2). The one that is cut off still
// reaches etcd, or the metadata could have no majority. The preferred replica has to lead, or the
// leadership would move in the meantime. Writes hang, too: with the durability "replicated" a follower
// acknowledges without a sync. It is no rollback if the broker whose disk hangs leads another
// partition: then the broker gives its registration up (EL-8) before the put is overdue.
func (r *round) diskHangsAtMinimum() func() {
	within(5*time.Second, func() bool {
		v, ok := r.view()
		return ok && !slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool { return p.Leader != p.Replicas[0] })
	})
	v, ok := r.view()
	if !ok {
		return func() {}
	}
	p := v.Partitions[r.IntN(len(v.Partitions))]
	var hangs *broker
	var apart []*broker
	for _, b := range r.brokers {
		switch {
		case !slices.Contains(p.Replicas, ident.Node(b.name)) || string(p.Leader) == b.name:
		case hangs == nil && b.disk != nil:
			hangs = b
		default:
			apart = append(apart, b)
		}
	}
	if hangs == nil || len(apart) == 0 {
		return func() {}
	}
	var heals []func()
	for _, b := range apart {
		heals = append(heals, r.isolated(b, []lane{rpcLane}, drop))
	}
	within(5*time.Second, func() bool {
		v, ok := r.view()
		return ok && len(v.Partitions[p.Partition].ISR) <= p.MinInSync
	})
	const writeLimit, more = 3 * time.Second, 2 * time.Second // see RB-2
	r.hang(hangs, true, writeLimit+more)
	hangs.disk.wait()
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// withClocks gives each broker a wall clock of its own, if its binary has one.
func (c *cluster) withClocks() {
	for _, b := range c.brokers {
		path := filepath.Join(c.dir, b.name+".clock")
		clock, err := skew.New(path)
		require.NoError(c.t, err)
		b.clock, b.env = clock, append(b.env, skew.Env+"="+path)
	}
}

// hasClocks reports whether the brokers were built with clocks that can be set.
func hasClocks() bool { return os.Getenv(clocksBuiltEnv) != "" }

// clocksJump lets the wall clocks of all brokers jump within an hour of the right time, each by
// itself, every 0.2 to 3 s. It hurts nobody, for no clock decides about anything.
func (r *round) clocksJump() func() {
	draws := make([]time.Duration, 1024) // the round's chance is the test goroutine's
	for i := range draws {
		draws[i] = r.span(-time.Hour, time.Hour)
	}
	if r.IntN(3) == 0 { // they differ by minutes, and do not jump again
		for i, b := range r.brokers {
			b.clock.Set(draws[i] / 10)
		}
		return r.rightClocks
	}
	n := 0
	every := r.span(200*time.Millisecond, 3*time.Second)
	heal := r.repeat(every, 0, func() func() {
		for _, b := range r.brokers {
			if n++; draws[n%len(draws)] > 0 || n < len(r.brokers) {
				b.clock.Set(draws[(n+len(r.brokers))%len(draws)])
			}
		}
		return func() {}
	})
	return func() { heal(); r.rightClocks() }
}

func (c *cluster) rightClocks() {
	for _, b := range c.brokers {
		b.clock.Set(0)
	}
}

// canHang reports whether disks that hang can be made here, and if not, why.
var canHang = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "chaos-disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return err
	}
	disk, err := loopdisk.Mount(filepath.Join(dir, "file"), filepath.Join(dir, "disk"), 16<<20)
	if err != nil {
		return err
	}
	over, err := disk.Hang(0)
	if err == nil {
		<-over
	}
	return errors.Join(err, disk.Close())
})

// grayHere are the gray nemeses that this machine can have.
func grayHere() []nemesis {
	all := slices.Clone(gray)
	if canHang() == nil {
		all = append(all, diskHangs, minimumHangs)
	}
	if hasClocks() {
		all = append(all, clocksJump)
	}
	return all
}

// prepareGray gives a cluster that has not been started what the gray nemeses need.
func (c *cluster) prepareGray() {
	if err := canHang(); err != nil && os.Getenv("LOCKSTEP_CI") != "" {
		env.Missing(c.t, "disks that hang", err)
	} else if err != nil {
		c.t.Logf("no disk hangs here: %v", err)
	} else {
		c.withDisks()
	}
	if hasClocks() {
		c.withClocks()
	}
}

// NewGrayPlan is the plan of each gray nemesis for some seconds, one after the other. In a long series they are
// part of the mix.
func NewGrayPlan(seed uint64) *Plan {
	p := NewPlan(seed, false)
	p.partitions, p.external, p.pairs = 1, false, nil
	for _, n := range grayHere() {
		p.pairs = append(p.pairs, pair{{nemesis: n, lasts: 2 * time.Second}, {nemesis: calm}})
	}
	p.short = true
	return p
}

// calm is no fault.
var calm = nemesis{"nothing else", [2]time.Duration{}, func(*round) func() { return func() {} }}
