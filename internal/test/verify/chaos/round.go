package chaos

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

const (
	nominal    = 400             // puts a second, all producers together
	warmUp     = 2 * time.Second // over which the load is measured
	warmUps    = 8               // until it is at least half of the nominal one
	drainLimit = 30 * time.Second
)

// Outcome is what a round has shown: a line of the table.
type Outcome struct {
	pairs     []pair
	void      bool
	perSecond float64 // before the faults, the lowest
	moves     int64   // of replicas
	report    judge.Report
	slowest   time.Duration // put, retries included
	whole     time.Duration // from a heal to all replicas in sync, the longest
	drained   time.Duration // from the last put to empty channels
	counters  api.CounterTotals
	due       time.Duration // service that was due during faults came after this at most
	commands  int           // of the operator
	refused   int           // of these
	watched   string        // what the checks during faults say
	Failed    bool
}

// String prints the outcome.
func (o Outcome) String() string {
	void := ""
	if o.void {
		void = "VOID: "
	}
	r := o.report
	return fmt.Sprintf("%s%.0f/s before; %d acked, %d in doubt, %d definite failures, %d stored twice, %d came again; slowest put %s, "+
		"in sync after %s, drained after %s; elections %d, rollbacks %d, in doubt %d, truncations %d, shrinks %d, swaps %d, moves %d; "+
		"%s; %d faults; %v",
		void, o.perSecond, r.Acknowledged, r.InDoubt, r.Definite, r.Copies, r.Redelivered, o.slowest.Round(time.Millisecond),
		o.whole.Round(time.Millisecond), o.drained.Round(time.Millisecond), o.counters.Elections, o.counters.Rollbacks,
		o.counters.InDoubt, o.counters.Truncations, o.counters.Shrinks, o.counters.Swaps, o.moves,
		o.watched, len(r.Violations), o.pairs)
}

// Run is a round. It fails the test for each promise that the clients did not see kept.
func (p *Plan) Run(t *testing.T) (o Outcome) {
	c := prepared(t, p.brokers, p.external)
	for _, b := range c.brokers {
		b.command = append(b.command, "--durability="+p.durability())
	}
	c.prepareGray()
	if p.short {
		c.hangsAtMost = shortHang
	}
	c.begin()
	c.post("/topic/create", url.Values{"topic": {topic}, "partitions": {strconv.Itoa(p.partitions)}})
	v := c.keepVigil("channel0", "channel1")
	sinks := make([]*sink, 2)
	for i := range sinks {
		name := fmt.Sprintf("channel%d", i)
		c.post("/channel/create", url.Values{"topic": {topic}, "channel": {name}, "from": {"earliest"}})
		sinks[i] = consumeWatched(t, c.brokers, name, v)
	}
	order := p.watchOrder(t, c)
	_, ok := within(wholeLimit, c.whole)
	require.True(t, ok, "the new topic is not whole")
	l := startLoad(t, c.brokers, 4, nominal, v)
	op := c.operate(p.seed)
	o.faults(c, p, l)
	o.watches(t, v, op)
	o.finish(t, c, l, sinks, order)
	order.log(t)
	return o
}

// faults lets the cluster suffer one pair after the other, each when all replicas
// are in sync and the load is there.
func (o *Outcome) faults(c *cluster, p *Plan, l *load) {
	began, enough := time.Now(), time.Duration(env.Number(c.t, "LOCKSTEP_SECONDS", 0))*time.Second
	o.perSecond = nominal
	for i, two := range p.pairs {
		if i > 0 && !p.short && time.Since(began) >= enough {
			return
		}
		if i == 0 || !p.short {
			perSecond, ok := l.warmUp()
			o.perSecond, o.void = min(o.perSecond, perSecond), o.void || !ok
		}
		o.pairs = append(o.pairs, two)
		two.suffer(&round{c, p.random})
		took, whole := within(wholeLimit, c.whole)
		o.whole = max(o.whole, took)
		if !whole {
			v, _ := c.view()
			c.t.Errorf("%s: replicas are not in sync %s after the last fault: %+v", two, took, v.Partitions)
			return
		}
		c.t.Logf("%s %s: in sync after %s", time.Now().Format("15:04:05"), two, took.Round(time.Millisecond))
	}
}

// warmUp waits for half of the nominal load and returns the load at the end.
func (l *load) warmUp() (perSecond float64, ok bool) {
	for range warmUps {
		before := l.acked.Load()
		pause(warmUp)
		if perSecond = float64(l.acked.Load()-before) / warmUp.Seconds(); perSecond >= nominal/2 {
			return perSecond, true
		}
	}
	return perSecond, false
}

// suffer begins both faults, and heals each when its time is over.
func (p pair) suffer(r *round) {
	type healing struct {
		at   time.Time
		heal func()
	}
	var open []healing
	for _, f := range p {
		pause(f.after)
		heal := f.begin(r)
		open = append(open, healing{time.Now().Add(f.lasts), heal})
	}
	if open[1].at.Before(open[0].at) {
		open[0], open[1] = open[1], open[0]
	}
	for _, h := range open {
		pause(time.Until(h.at))
		h.heal()
	}
	if r.etcd != nil {
		r.resume(r.etcd)
		r.start(r.etcd)
	}
	for _, b := range r.brokers { // what one fault killed the other could not wake
		r.resume(b)
		r.start(b)
	}
}

// watches ends the checks that continue during faults. In a void round the machine was too slow for
// their times.
func (o *Outcome) watches(t *testing.T, v *vigil, op *operator) {
	late, silent := v.stop(), op.stop()
	o.due, o.commands = v.slowest, op.given
	for _, n := range op.refused {
		o.refused += n
	}
	o.watched = fmt.Sprintf("%s; %s", v, op)
	for _, fault := range late {
		if o.void {
			t.Log("void round: " + fault)
		} else {
			t.Error(fault)
		}
	}
	for _, fault := range silent {
		t.Error(fault)
	}
	t.Logf("commands refused: %v", op.refused)
}

// finish is what must happen after the last fault is healed.
func (o *Outcome) finish(t *testing.T, c *cluster, l *load, sinks []*sink, order *ordered) {
	pause(time.Second)
	healed := time.Now()
	answered := l.stop(drainLimit)
	o.slowest = l.slowest
	var drained bool
	o.drained, drained = within(drainLimit, func() bool {
		for _, s := range sinks {
			if n, known := c.left(s.channel); n > 0 || !known {
				return false
			}
		}
		if n, _ := c.left(orderedChannel); n > 0 {
			return false
		}
		return true
	})
	pause(100 * time.Millisecond) // what was finished here arrived before
	o.counters, o.moves = c.watch.total(), c.moves.Load()
	if !answered {
		t.Errorf("puts are not answered %s after all was whole", time.Since(healed))
	}
	if !drained {
		for _, s := range sinks {
			n, known := c.left(s.channel)
			t.Errorf("%s is not drained: %d left (known: %v)", s.channel, n, known)
		}
	}
	o.judge(t, l, sinks, order)
	if err := c.check(); err != nil {
		t.Error(err)
	}
}

// judge judges what all clients saw.
func (o *Outcome) judge(t *testing.T, l *load, sinks []*sink, order *ordered) {
	var channels []string
	deliveries := order.all()
	for _, s := range sinks {
		channels = append(channels, s.channel)
	}
	h := record.History(topic, l.puts, deliveries, channels...)
	if len(deliveries) > 0 {
		h.Channels = append(h.Channels, order.channel())
	}
	for _, s := range sinks {
		h.Deliveries = append(h.Deliveries, s.all()...)
	}
	if o.report = judge.Judge(h); len(o.report.Violations) > 0 {
		t.Error(o.report)
	}
}
