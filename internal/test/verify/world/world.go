package world

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// World is one run: some machines with brokers, their clients, and what happens to them. Run makes it.
type World struct {
	seed     uint64
	shape    shape
	net      *network
	meta     *metadatatest.Memory
	log      *logrus.Logger
	machines []*machine
	topics   []*topic
	dead     []*topic // for dead letters of topics
	tasks    sync.WaitGroup
	began    time.Time

	mu         sync.Mutex
	story      []string
	phase      int // of the clients: 0 = at work, 1 = no new puts and every message is finished, 2 = over
	faults     []judge.Disturbance
	served     []judge.Disturbance // times in which every put has to be accepted
	powerAgain time.Duration       // when a machine may lose power again where nothing is synced
	owed       []string            // requests that end a passing state, and failed
}

// topic is one topic with its history.
type topic struct {
	name      string
	create    string // arguments of /topic/create
	dedupe    string // "", "id", "content"
	deferred  bool
	only      bool
	fails     bool   // its consumers fail more often
	dead      *topic // for dead letters
	ttl       time.Duration
	channels  []channel
	h         *judge.History
	setting   sync.Mutex // one change of the window at a time
	consumers int
	workers   int
}

// noteDead puts the dead letters that have come into the history.
func (t *topic) noteDead() {
	if t.dead == nil {
		return
	}
	t.h.Dead = map[string]bool{}
	for _, d := range t.dead.h.Deliveries {
		t.h.Dead[d.Body] = true
	}
}

type channel struct {
	name     string
	ordered  bool
	attempts int    // of its policy; 0 = it has none
	accepts  string // the color of the messages that its filter lets through; "" = there is none
}

// rng makes a random source of its own for one part of the world, so that what one part draws does not depend on the others.
func (w *World) rng(part string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, part)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func (w *World) lock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *World) now() time.Duration       { return time.Since(w.began) }
func (w *World) nowLocked() time.Duration { return time.Since(w.began) }

// note adds a line to the story.
func (w *World) note(format string, args ...any) {
	w.lock(func() {
		w.story = append(w.story, fmt.Sprintf("%9.3f %s", w.now().Seconds(), fmt.Sprintf(format, args...)))
	})
}

// pause waits, in virtual time.
func (w *World) pause(d time.Duration) { concurrency.Sleep(context.Background(), d) }

func (w *World) over() bool    { return w.at(1) }
func (w *World) closing() bool { return w.at(1) }
func (w *World) ended() bool   { return w.at(2) }

func (w *World) at(phase int) (yes bool) {
	w.lock(func() { yes = w.phase >= phase })
	return yes
}

// Result is what a run showed.
type Result struct {
	Seed       uint64
	Plan       []string // the faults, in order
	Story      []string
	Violations []Violation
	Hash       uint64 // of all that the clients saw, and when
	Puts       int
	OK         int
	Deliveries int
	Virtual    time.Duration
}

// Violation is a broken rule of package judge, or of liveness.
type Violation = judge.Violation

// Tale is the story of a run with its violations, in at most 60 lines.
func (r Result) Tale(without []int) string {
	const lines, violations = 44, 12
	var b strings.Builder
	if len(without) > 0 {
		fmt.Fprintf(&b, "    without the faults %v of %d\n", without, len(r.Plan))
	}
	for i, line := range r.Story {
		if i == lines {
			fmt.Fprintf(&b, "    … and %d lines more\n", len(r.Story)-i)
			break
		}
		fmt.Fprintf(&b, "    %.220s\n", line)
	}
	for i, v := range r.Violations {
		if i == violations {
			fmt.Fprintf(&b, "    … and %d violations more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "  > %.700s\n", v)
	}
	return b.String()
}

// String is the result on a line.
func (r Result) String() string {
	return fmt.Sprintf("seed %d: %d faults, %d puts (%d ok), %d deliveries, %s, trace %016x, %d violations",
		r.Seed, len(r.Plan), r.Puts, r.OK, r.Deliveries, r.Virtual.Round(time.Millisecond), r.Hash, len(r.Violations))
}

// Run lives through one world. It has to be called in a bubble of testing/synctest. leaveOut names faults of the plan, by their
// index, that do not happen. trace, if it is not nil, receives what is sent over the network.
func Run(seed uint64, leaveOut map[int]bool, trace func(format string, args ...any)) Result {
	w := &World{seed: seed, meta: metadatatest.NewMemory(), log: logrus.New(), began: time.Now()}
	w.log.SetOutput(io.Discard)
	w.log.ExitFunc = func(code int) { panic(fmt.Sprint("exit ", code)) }
	if os.Getenv("LOCKSTEP_WORLD_LOG") != "" {
		w.log.SetOutput(os.Stderr)
		w.log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
		w.log.AddHook(clock{w})
		w.log.SetLevel(logrus.DebugLevel)
	}
	w.net = newNetwork(w.rng("network"))
	w.net.trace = trace
	w.shape = w.draw()
	plan := w.plan()
	for i := range w.shape.brokers {
		name := fmt.Sprintf("n%d", i+1)
		w.machines = append(w.machines, &machine{w: w, name: name, ip: net.IPv4(10, 0, 0, byte(i+1)), disk: newDisk(w.rng("disk " + name)), wanted: true, supervisor: make(chan struct{}, 1)})
	}
	r := Result{Seed: seed}
	if err := w.live(plan, leaveOut); err != nil {
		r.Violations = append(r.Violations, judge.Violation{Rule: "liveness", Detail: err.Error()})
	}
	w.shut()
	for _, f := range plan {
		r.Plan = append(r.Plan, f.String())
	}
	w.judge(&r)
	return r
}

// clock puts the virtual time into lines of the log.
type clock struct{ w *World }

// Levels implements logrus.Hook.
func (clock) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (c clock) Fire(e *logrus.Entry) error {
	e.Data["at"] = fmt.Sprintf("%.4f", time.Since(c.w.began).Seconds())
	return nil
}

// live is the order of a run: the cluster, its topics, clients alongside faults, peace.
func (w *World) live(plan []fault, leaveOut map[int]bool) error {
	errs := make(chan error, len(w.machines))
	for _, m := range w.machines {
		w.tasks.Go(func() { errs <- m.start() })
	}
	for range w.machines {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := w.createTopics(); err != nil {
		return err
	}
	var clients sync.WaitGroup
	w.startClients(&clients)
	w.startUsers(func(run func()) { clients.Go(run) })
	w.suffer(plan, leaveOut)
	w.lock(func() { w.phase = 1 })
	w.note("peace: everything is healed, producers end")
	err := w.drain()
	if w.shape.deletes {
		w.deletions()
	}
	w.lock(func() { w.phase = 2 })
	clients.Wait()
	return err
}

// createTopics makes the topics and their channels at any broker.
func (w *World) createTopics() error {
	for _, t := range slices.Concat(w.dead, w.topics) {
		if err := w.ask("/topic/create?topic=" + t.name + t.create); err != nil {
			return err
		}
		for _, c := range t.channels {
			arguments := ""
			if c.ordered {
				arguments = "&ordered=true"
			}
			if c.accepts != "" {
				arguments += "&filter=" + url.QueryEscape("header:color="+c.accepts)
			}
			if err := w.ask("/channel/create?topic=" + t.name + "&channel=" + c.name + arguments); err != nil {
				return err
			}
			if c.attempts == 0 {
				continue
			}
			policy := fmt.Sprintf("/v1/channel/policy?topic=%s&channel=%s&max_attempts=%d&dead_letter_topic=%s", t.name, c.name, c.attempts, t.dead.name)
			if err := w.ask(policy); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask posts to brokers in turn until one answers 200.
func (w *World) ask(path string) error { return w.askUpTo(30, path) }

// askOnce posts to each broker at most once.
func (w *World) askOnce(path string) error { return w.askUpTo(len(w.machines), path) }

func (w *World) askUpTo(tries int, path string) (err error) {
	web := w.client("operator", net.IPv4(10, 0, 9, 1))
	defer web.CloseIdleConnections()
	for try := range tries {
		m := w.machines[try%len(w.machines)]
		status, text, e := fetch(web, "http://"+m.addr(httpPort).String()+path, "")
		if e == nil && status == 200 {
			return nil
		}
		err = fmt.Errorf("%s: %d %s %v", path, status, text, e)
		w.pause(300 * time.Millisecond)
	}
	return err
}

func (w *World) startClients(clients *sync.WaitGroup) {
	for i := range w.shape.producers {
		name := fmt.Sprintf("producer %d", i)
		ip := net.IPv4(10, 0, 1, byte(i+1))
		p := &producer{w: w, n: i, name: name, ip: ip, random: w.rng(name), web: w.client(name, ip)}
		clients.Go(p.run)
	}
	for i, t := range slices.Concat(w.topics, w.dead) {
		for j, c := range t.channels {
			for k := range t.consumers {
				name := fmt.Sprintf("consumer %s/%s/%d", t.name, c.name, k)
				x := &consumer{w: w, name: name, ip: net.IPv4(10, byte(2+i), byte(j), byte(k+1)), t: t, c: c, random: w.rng(name)}
				clients.Go(x.run)
			}
			for k := range t.workers {
				if c.ordered {
					continue
				}
				name := fmt.Sprintf("worker %s/%s/%d", t.name, c.name, k)
				// Some workers share a host, and with it a session at each broker.
				x := &worker{w: w, name: name, t: t, c: c, random: w.rng(name), web: w.client(name, net.IPv4(10, byte(2+i), byte(j), byte(100+k/2)))}
				clients.Go(x.run)
			}
		}
	}
}

const (
	peaceful   = 120 * time.Second // the longest time until everything is delivered
	settled    = 2 * time.Second   // without a delivery beyond a message timeout, after the last one
	drainCheck = 500 * time.Millisecond
)

// drain waits until every acknowledged message has come, and nothing comes any more.
func (w *World) drain() error {
	from := w.now()
	quiet, seen := w.now(), -1
	var missing string
	for w.now() < from+peaceful {
		w.pause(drainCheck)
		n := 0
		w.lock(func() {
			missing = ""
			for _, t := range w.dead {
				n += len(t.h.Deliveries)
			}
			for _, t := range w.topics {
				t.noteDead()
				n += len(t.h.Deliveries)
				if missing == "" {
					missing = firstMissing(t.h)
				}
			}
		})
		if n != seen {
			seen, quiet = n, w.now()
		}
		if missing == "" && w.now() > quiet+settled+msgTimeout {
			w.note("drained")
			return nil
		}
	}
	if missing == "" {
		return fmt.Errorf("deliveries do not end in %s", peaceful)
	}
	return fmt.Errorf("not drained in %s: %s", peaceful, missing)
}

// firstMissing names an acknowledged message that a channel has not delivered; "" if there is none.
func firstMissing(h *judge.History) string {
	if h.TTL > 0 {
		return ""
	}
	got := map[[2]string]bool{}
	for _, d := range h.Deliveries {
		got[[2]string{d.Channel, d.Body}] = true
	}
	for _, p := range h.Puts {
		if !p.Acknowledged() {
			continue
		}
		for _, c := range h.Channels {
			if !p.For(c) {
				continue
			}
			for _, b := range p.Bodies {
				if !got[[2]string{c.Name, b}] && !(c.MaxAttempts > 0 && h.Dead[b]) {
					return fmt.Sprintf("%s/%s: %.40s", h.Topic, c.Name, b)
				}
			}
		}
	}
	return ""
}

// shut ends all processes.
func (w *World) shut() {
	for _, m := range w.machines {
		m.wanted = false
		m.disk.heal()
		if p := m.process(); p != nil {
			p.kill()
		}
	}
	w.tasks.Wait()
	for _, m := range w.machines {
		for _, s := range m.stores {
			_ = s.Close()
		}
	}
	_ = w.meta.Close()
}

func (m *machine) process() (p *daemon) {
	m.w.lock(func() { p = m.p })
	return p
}

// judge fills the result.
func (w *World) judge(r *Result) {
	h := fnv.New64a()
	for _, t := range w.topics {
		t.h.Faults, t.h.Served = w.faults, w.served
		t.noteDead()
		r.Violations = append(r.Violations, judge.Check(t.h)...)
		r.Puts += len(t.h.Puts)
		r.Deliveries += len(t.h.Deliveries)
		for _, p := range t.h.Puts {
			if p.Acknowledged() {
				r.OK++
			}
			fmt.Fprintln(h, p.Bodies, p.Attempts)
		}
		for _, d := range t.h.Deliveries {
			fmt.Fprintln(h, *d)
		}
	}
	r.Hash, r.Story, r.Virtual = h.Sum64(), w.story, w.now()
	slices.SortStableFunc(r.Violations, func(a, b judge.Violation) int { return strings.Compare(a.Rule, b.Rule) })
}
