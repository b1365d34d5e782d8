package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// shape is what a seed draws before anything happens. The sizes are small, so that files, windows and checkpoints turn over in
// every run.
type shape struct {
	brokers, replicas int
	segmentBytes      int64
	journalBytes      int64
	syncTogether      int // every other seed's checkpoints sync the whole disk
	durability        metadata.Durability
	users             bool          // the brokers enforce rights
	deletes           bool          // a topic is deleted at the end
	deleteGrace       time.Duration // how long it can be undeleted
	producers         int
	putEvery          time.Duration // in the mean, of one producer
	working           time.Duration // how long faults and puts last
}

// draw makes the shape and the topics.
func (w *World) draw() shape {
	r := w.rng("shape")
	s := shape{
		brokers: 3, replicas: 3, segmentBytes: 16 << 10 << r.IntN(3), journalBytes: 64 << 10 << r.IntN(3),
		durability: metadata.DurabilitySync, producers: 2 + r.IntN(3), putEvery: time.Duration(20+r.IntN(80)) * time.Millisecond,
		working: time.Duration(4+r.IntN(12)) * time.Second,
	}
	if w.seed%2 == 0 {
		s.syncTogether = 1
	}
	if r.IntN(6) == 0 {
		s.brokers = 5
	}
	if r.IntN(4) == 0 {
		s.durability = metadata.DurabilityReplicated
	}
	if s.deletes = r.IntN(3) == 0; r.IntN(2) == 0 {
		s.deleteGrace = 30 * time.Second
	}
	kinds := []func(*rand.Rand, int) *topic{plain, once, ordered, failing}
	for i := range 1 + r.IntN(3) {
		t := kinds[r.IntN(len(kinds))](r, i)
		t.create += fmt.Sprintf("&replication_factor=%d&min_in_sync=%d", s.replicas, s.replicas/2+1)
		t.h = &judge.History{Topic: t.name, TTL: t.ttl, Tolerance: judge.Tolerance{AfterFinish: judge.AnyNumber}}
		if t.dedupe != "" {
			t.h.Windows = []judge.Window{{For: firstWindow}}
		}
		for _, c := range t.channels {
			t.h.Channels = append(t.h.Channels, judge.Channel{Name: c.name, Ordered: c.ordered, Accepts: c.accepts, MaxAttempts: c.attempts})
		}
		w.topics = append(w.topics, t)
		if t.dead != nil {
			w.dead = append(w.dead, t.dead)
		}
	}
	if w.rng("rights").IntN(4) == 0 {
		s.users = true
		t := &topic{name: guarded, create: fmt.Sprintf("&replication_factor=%d&min_in_sync=%d", s.replicas, s.replicas/2+1), channels: []channel{{name: "c0"}}, consumers: 1}
		t.h = &judge.History{Topic: t.name, Channels: []judge.Channel{{Name: "c0"}}, Tolerance: judge.Tolerance{AfterFinish: judge.AnyNumber}}
		w.topics = append(w.topics, t)
	}
	return s
}

// plain topics have several partitions and channels, deferred messages and messages for one channel.
func plain(r *rand.Rand, i int) *topic {
	t := &topic{name: fmt.Sprintf("plain%d", i), create: fmt.Sprintf("&partitions=%d", 1+r.IntN(3)), deferred: r.IntN(2) == 0, consumers: r.IntN(3), workers: r.IntN(4)}
	if t.consumers+t.workers == 0 {
		t.consumers = 1
	}
	for j := range 1 + r.IntN(2) {
		t.channels = append(t.channels, channel{name: fmt.Sprintf("c%d", j)})
	}
	t.only = len(t.channels) > 1
	if t.only && r.IntN(2) == 0 {
		t.channels[1].accepts = colors[0]
	}
	if r.IntN(2) == 0 {
		t.create += "&retention_bytes=50000"
	}
	return t
}

// colors are a header of messages, for the filters of channels.
var colors = []string{"red", "blue"}

const firstWindow = time.Minute

// once topics recognise repeats.
func once(r *rand.Rand, i int) *topic {
	t := plain(r, i)
	t.name = fmt.Sprintf("once%d", i)
	t.dedupe = []string{"id", "content"}[r.IntN(2)]
	t.create += fmt.Sprintf("&dedupe_window=%s", firstWindow)
	if t.dedupe == "content" {
		t.create += "&dedupe=content"
		t.deferred = false
	}
	return t
}

// ordered topics have one ordered channel.
func ordered(r *rand.Rand, i int) *topic {
	return &topic{
		name: fmt.Sprintf("ordered%d", i), create: fmt.Sprintf("&partitions=%d", 1+r.IntN(2)), consumers: 1 + r.IntN(3),
		channels: []channel{{name: "c0", ordered: true}},
	}
}

// failing topics have dead letters, and some of them a time to live.
func failing(r *rand.Rand, i int) *topic {
	t := plain(r, i)
	t.name, t.fails = fmt.Sprintf("failing%d", i), true
	t.dead = &topic{name: fmt.Sprintf("dead%d", i), channels: []channel{{name: "c0"}}, consumers: 1, h: &judge.History{Tolerance: judge.Tolerance{AfterFinish: judge.AnyNumber}}}
	for j := range t.channels {
		t.channels[j].attempts = 2 + r.IntN(3)
	}
	if r.IntN(2) == 0 {
		t.ttl, t.deferred = time.Duration(2+r.IntN(6))*time.Second, false
		t.create += fmt.Sprintf("&message_ttl=%s", t.ttl)
	}
	return t
}

// fault is one thing that happens.
type fault struct {
	at    time.Duration
	kind  string
	on    int // a machine
	other int // another one
	for_  time.Duration
	n     int
}

// String describes the fault.
func (f fault) String() string {
	return fmt.Sprintf("%.3fs %s n%d (n%d) for %s, %d", f.at.Seconds(), f.kind, f.on+1, f.other+1, f.for_.Round(time.Millisecond), f.n)
}

// kinds of faults, each as often as it stands here.
var kinds = []string{
	"kill", "kill", "kill", "power", "stop", "restart", "cut", "cut", "one-way", "isolate", "hang", "slow disk", "full", "flaw",
	"metadata", "lost answers", "slow metadata", "move", "balance", "compact", "slow network", "partitions", "pause", "off",
	"pause channel", "pause topic", "window", "drain", "blackout",
}

// stormy are the faults of a storm.
var stormy = []string{"kill", "kill", "power", "cut", "one-way", "isolate", "hang", "slow disk", "metadata", "lost answers", "stop", "off", "blackout"}

func (w *World) plan() (all []fault) {
	r := w.rng("plan")
	if r.IntN(12) == 0 { // one disk is full for long, and nothing else happens: clients must not notice
		w.shape.working = max(w.shape.working, 25*time.Second)
		return []fault{{at: time.Duration(1+r.IntN(4)) * time.Second, kind: "one full", on: r.IntN(w.shape.brokers), for_: 15 * time.Second, n: r.IntN(2)}}
	}
	n := r.IntN(20)
	if slices.ContainsFunc(w.topics, func(t *topic) bool { return t.dedupe != "" }) && r.IntN(4) == 0 && !w.shape.users {
		return w.longPlan(r)
	}
	storm := r.IntN(3) == 0 // faults come together: leaders die while others lag behind
	center := time.Duration(r.Int64N(int64(w.shape.working)))
	for range n {
		f := fault{
			at: time.Duration(r.Int64N(int64(w.shape.working))), kind: kinds[r.IntN(len(kinds))], on: r.IntN(w.shape.brokers),
			for_: time.Duration(50+r.IntN(500)) * time.Millisecond, n: r.IntN(100),
		}
		if r.IntN(3) == 0 {
			f.for_ = time.Duration(1+r.IntN(7)) * time.Second
		}
		if storm {
			f.at = min(center+time.Duration(r.IntN(1500))*time.Millisecond, w.shape.working-1)
			f.kind = stormy[r.IntN(len(stormy))]
		}
		f.other = (f.on + 1 + r.IntN(w.shape.brokers-1)) % w.shape.brokers
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b fault) int { return int(a.at - b.at) })
	return all
}

// longPlan lasts longer than the windows, which change in the middle. Puts are fewer.
func (w *World) longPlan(r *rand.Rand) (all []fault) {
	w.shape.working = time.Duration(60+r.IntN(180)) * time.Second
	w.shape.putEvery *= 8
	kinds := []string{"window", "window", "window", "kill", "restart", "power", "stop", "blackout", "move", "isolate"}
	for range 4 + r.IntN(12) {
		f := fault{
			at: time.Duration(r.Int64N(int64(w.shape.working))), kind: kinds[r.IntN(len(kinds))], on: r.IntN(w.shape.brokers),
			for_: time.Duration(50+r.IntN(4000)) * time.Millisecond, n: r.IntN(100),
		}
		f.other = (f.on + 1 + r.IntN(w.shape.brokers-1)) % w.shape.brokers
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b fault) int { return int(a.at - b.at) })
	return all
}

// suffer carries the plan out, and heals everything at its end.
func (w *World) suffer(plan []fault, leaveOut map[int]bool) {
	begin := w.now()
	for i, f := range plan {
		if leaveOut[i] {
			continue
		}
		if d := begin + f.at - w.now(); d > 0 {
			w.pause(d)
		}
		w.note("%s", f)
		from := w.now()
		w.tasks.Go(func() { // ends with the fault
			w.cause(f)
			w.lock(func() { w.faults = append(w.faults, judge.Disturbance{From: from, To: w.nowLocked()}) })
		})
	}
	if d := begin + w.shape.working - w.now(); d > 0 {
		w.pause(d)
	}
	w.tasks.Wait()
	w.heal()
}

// heal ends all faults, and starts all brokers.
func (w *World) heal() {
	w.net.heal()
	for _, m := range w.machines {
		m.disk.heal()
		w.net.turnOn(m.name)
		if p := m.process(); p != nil {
			p.store.setCut(false)
		}
	}
	var back sync.WaitGroup
	for _, m := range w.machines {
		back.Go(func() { m.revive(0) })
	}
	back.Wait()
	for _, path := range w.owed {
		if err := w.ask(path); err != nil {
			w.note("%v", err)
		}
	}
}

// revive starts the process of a machine after a while unless there is one, as a supervisor does.
func (m *machine) revive(after time.Duration) {
	m.w.pause(after)
	m.supervisor <- struct{}{}
	defer func() { <-m.supervisor }()
	for try := 0; try < 20 && m.process() == nil && m.wanted; try++ {
		err := m.start()
		if err == nil {
			m.w.note("%s serves again", m.name)
			return
		}
		m.w.note("%v", err)
		m.w.pause(500 * time.Millisecond)
	}
}

// makeWay is how long the others may need until they do without a broker.
const makeWay = 8 * time.Second

// cause makes one fault happen and end.
func (w *World) cause(f fault) {
	m, other := w.machines[f.on], w.machines[f.other]
	p := m.process()
	switch f.kind {
	case "kill", "restart", "stop", "power": // see mayLosePower
		if p == nil {
			return
		}
		kind := f.kind
		if kind == "power" && !w.mayLosePower() {
			kind = "kill"
		}
		switch kind {
		case "kill":
			p.kill()
		case "power":
			w.net.turnOff(m.name)
			p.kill()
			m.disk.cutPower()
			m.boot++
		default:
			p.end(true)
		}
		w.pause(f.for_)
		w.net.turnOn(m.name)
		m.revive(0)
	case "blackout":
		w.blackout(f.for_)
	case "cut", "one-way":
		w.net.cut(m.name, other.name, f.kind == "cut")
		w.pause(f.for_)
		w.net.heal()
	case "isolate":
		for _, x := range w.machines {
			if x != m {
				w.net.cut(m.name, x.name, true)
			}
		}
		w.pause(f.for_)
		w.net.heal()
	case "off": // the machine stands still, as seen by the others
		w.net.turnOff(m.name)
		w.metadataAway(p, f.for_)
		w.net.turnOn(m.name)
	case "pause": // SIGSTOP, as far as others see it: network, disk and metadata stand still
		w.net.turnOff(m.name)
		m.disk.hang()
		w.metadataAway(p, f.for_)
		m.disk.answer()
		w.net.turnOn(m.name)
	case "hang":
		m.disk.hang()
		w.pause(f.for_)
		m.disk.answer()
	case "slow disk":
		m.disk.setSlow(time.Duration(f.n) * time.Millisecond)
		w.pause(f.for_)
		m.disk.setSlow(0)
	case "one full":
		m.disk.fill(uint64(f.n) * (minFree / 2))
		w.pause(makeWay)
		from := w.now()
		w.pause(f.for_ - makeWay)
		w.lock(func() { w.served = append(w.served, judge.Disturbance{From: from, To: w.nowLocked()}) })
		m.disk.fill(roomBytes)
	case "full":
		m.disk.fill(uint64(f.n%2) * (minFree / 2))
		w.pause(f.for_)
		m.disk.fill(roomBytes)
	case "flaw":
		m.disk.fail(1 + f.n%3)
		w.pause(f.for_)
		m.disk.fail(0)
	case "metadata":
		w.metadataAway(p, f.for_)
	case "lost answers", "slow metadata":
		if p == nil {
			return
		}
		p.store.disturb(f.kind == "lost answers", time.Duration(f.n)*10*time.Millisecond)
		w.pause(f.for_)
		p.store.disturb(false, 0)
	case "compact":
		w.meta.Compact()
	case "slow network":
		w.net.setSlow(time.Duration(f.n) * time.Millisecond)
		w.pause(f.for_)
		w.net.setSlow(0)
	default:
		w.operateOn(f, m, other)
	}
}

// safeAgain is how long after its process has come back a machine has surely fetched what it lost in a power cut.
const safeAgain = 10 * time.Second

// mayLosePower reports whether a machine may lose power now. Where OK means that every replica has a message in memory, two machines that
// lose power, or one while the others are away, lose what was acknowledged: nothing promises otherwise.
func (w *World) mayLosePower() (yes bool) {
	if w.shape.durability == metadata.DurabilitySync {
		return true
	}
	w.lock(func() {
		yes = w.now() >= w.powerAgain && !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.p == nil })
		if yes {
			w.powerAgain = w.now() + safeAgain
		}
	})
	return yes
}

// blackout ends all processes at one moment. Where OK means that every replica has synced a message, the machines lose power, and with it
// whatever was not synced.
func (w *World) blackout(d time.Duration) {
	var all []*daemon
	for _, m := range w.machines {
		w.net.turnOff(m.name)
		if p := m.process(); p != nil {
			p.mount.die() // at once on every machine
			all = append(all, p)
		}
	}
	for _, p := range all {
		p.kill()
	}
	if w.shape.durability == metadata.DurabilitySync {
		for _, m := range w.machines {
			m.disk.cutPower()
			m.boot++
		}
	}
	w.pause(d)
	var back sync.WaitGroup
	for _, m := range w.machines {
		w.net.turnOn(m.name)
		back.Go(func() { m.revive(0) })
	}
	back.Wait()
}

// operateOn carries out what an operator asks of the cluster, and takes a passing state back.
func (w *World) operateOn(f fault, m, other *machine) {
	t := w.topics[f.n%len(w.topics)]
	c := t.channels[f.n%len(t.channels)]
	begin, end := "", ""
	switch f.kind {
	case "move":
		begin = fmt.Sprintf("/v1/topic/move?topic=%s&partition=0&from=%s&to=%s", t.name, m.name, other.name)
	case "balance":
		begin = "/v1/cluster/balance"
	case "partitions":
		if c.ordered || t.dedupe != "" { // repeats are not recognised across the change
			return
		}
		begin = fmt.Sprintf("/v1/topic/partitions?topic=%s&partitions=%d", t.name, 3+f.n%2)
	case "pause channel":
		begin = fmt.Sprintf("/channel/pause?topic=%s&channel=%s", t.name, c.name)
		end = fmt.Sprintf("/channel/unpause?topic=%s&channel=%s", t.name, c.name)
		f.for_ += time.Duration(f.n) * 50 * time.Millisecond // long enough for delayed messages to wait behind others
	case "pause topic":
		begin, end = "/topic/pause?topic="+t.name, "/topic/unpause?topic="+t.name
	case "window":
		if t.dedupe == "" {
			return
		}
		w.setWindow(t, time.Duration(30+f.n)*time.Second)
		return
	case "drain":
		begin, end = "/v1/broker/drain?node="+m.name, "/v1/broker/drain?cancel=true&node="+m.name
	}
	if err := w.askOnce(begin); err != nil {
		w.note("%v", err)
	}
	if end != "" {
		w.pause(f.for_)
		if err := w.ask(end); err != nil {
			w.note("%v", err)
			w.lock(func() { w.owed = append(w.owed, end) })
		}
	}
}

// setWindow changes the window of a topic. If the request fails, either one may be in force.
func (w *World) setWindow(t *topic, d time.Duration) {
	t.setting.Lock()
	defer t.setting.Unlock()
	before := t.h.Windows[len(t.h.Windows)-1].For
	w.lock(func() { t.h.Windows = append(t.h.Windows, judge.Window{From: w.nowLocked(), For: d}) })
	if err := w.askOnce(fmt.Sprintf("/v1/topic/set?topic=%s&dedupe_window=%s", t.name, d)); err != nil {
		w.note("%v", err)
		w.lock(func() { t.h.Windows = append(t.h.Windows, judge.Window{From: w.nowLocked(), For: min(d, before)}) })
	}
}

// metadataAway cuts a process off from the metadata. Its leases run out.
func (w *World) metadataAway(p *daemon, d time.Duration) {
	if p == nil {
		w.pause(d)
		return
	}
	p.store.setCut(true)
	w.pause(min(d, sessionTTL))
	if d > sessionTTL {
		p.store.expire()
		w.pause(d - sessionTTL)
	}
	select {
	case <-p.mount.dead:
	default:
		p.store.setCut(false)
	}
}

// filtered reports whether a channel of the topic has a filter.
func (t *topic) filtered() bool {
	return slices.ContainsFunc(t.channels, func(c channel) bool { return c.accepts != "" })
}
