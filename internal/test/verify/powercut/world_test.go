package powercut

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// stepMS is the granularity of the world's time.
const stepMS = 10

// endless is more than happens in one instant, unless replicas talk in a circle.
const endless = 20_000

// world joins three processes by a network and a metadata store.
type world struct {
	rng    *rand.Rand
	supply *supply
	lie    lie // of all disks
	procs  [nodes]*process
	links  [nodes][nodes][]letter
	apart  [nodes]bool // partitioned from the other brokers
	deaf   [nodes]bool // partitioned from the metadata
	live   [nodes]ident.Incarnation
	nowMS  int64
	client client

	syncTogether int // store.Options.SyncTogether: in every other world checkpoints sync the whole disk
	seen         map[queue.WriteKind]int
	outages      int   // power cuts of one machine or all, within the history
	first        error // violation
	told         bool  // the story is printed
	story        strings.Builder
	founded      bool // under supply.mu: the cluster exists

	mail    sync.Mutex
	arrived sync.Cond // on mail: the journal of some process has answered
}

// letter is a message on its way.
type letter struct {
	from replica.Peer
	part int
	msg  replica.Message
}

func newWorld(seed uint64, k known) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 1)), nowMS: 1000, seen: map[queue.WriteKind]int{},
		supply: &supply{rng: rand.New(rand.NewPCG(seed, 2)), known: k},
	}
	w.syncTogether = 1 + int(seed%2)*partitions
	w.told = os.Getenv("LOCKSTEP_SEED") != ""
	w.client.waiting = map[uint64]attempt{}
	w.client.attempts = map[uint64]int{}
	w.arrived.L = &w.mail
	return w
}

// known is a snapshot of what is known.
func (w *world) known() known {
	w.supply.mu.Lock()
	defer w.supply.mu.Unlock()
	return w.supply.known
}

// note adds a line to the story; LOCKSTEP_SEED turns it on.
func (w *world) note(format string, args ...any) {
	if w.told {
		fmt.Fprintf(&w.story, "\n%5d "+format, append([]any{w.nowMS}, args...)...)
	}
}

// fail notes the first violation.
func (w *world) fail(format string, args ...any) {
	if w.first == nil {
		w.first = fmt.Errorf(format, args...)
	}
}

// found makes the cluster on three empty disks.
func (w *world) found() error {
	for n := range nodes {
		w.supply.plug(n, vfstest.NewMemory(), w.lie)
	}
	if err := w.power(); err != nil {
		return err
	}
	w.supply.learn("", func(k *known) {
		w.founded = true
		for part := range partitions {
			k.revision++
			s := metadata.PartitionState{
				V: 1, MinInSync: 2 + part/2, Leader: nodeName(part), LeaderIncarnation: w.live[part], Epoch: 1, Revision: k.revision,
			}
			for n := range nodes {
				s.Replicas = append(s.Replicas, nodeName(n))
				s.ISR = append(s.ISR, ident.Member{Node: nodeName(n), Store: k.stores[n][part]})
			}
			k.parts[part] = s
		}
	})
	for _, p := range w.procs {
		w.inform(p)
	}
	return w.settle()
}

// power starts all processes at once, on the disks as they are.
func (w *world) power() error {
	for n := range nodes {
		if err := w.launch(n); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a process on node n's disk and introduces it.
func (w *world) launch(n int) error {
	old := w.supply.disks[n]
	p := &process{w: w, n: n, disk: w.supply.plug(n, old.mem, w.lie)}
	w.supply.learn("", func(k *known) {
		k.revision++
		p.inc = ident.Incarnation(k.revision)
	})
	w.procs[n] = p // so that it is shut whatever happens
	w.note("n%d starts as %d", n+1, p.inc)
	if err := p.open(); err != nil {
		return err
	}
	p.tellAll(replica.Tick{NowMS: w.nowMS})
	w.live[n], w.apart[n], w.deaf[n] = p.inc, false, false
	for m := range nodes {
		if m != n && w.running(m) {
			w.tell(m, replica.Live{Node: nodeName(n), Incarnation: p.inc})
		}
		p.tellAll(replica.Live{Node: nodeName(m), Incarnation: w.live[m]})
	}
	w.reconnect(n)
	w.inform(p)
	return w.first
}

func (w *world) running(n int) bool {
	return w.procs[n] != nil && w.procs[n].hosts[partitions-1] != nil
}

func (w *world) tell(n int, ev replica.Event) {
	p := w.procs[n]
	p.task(func() { p.tellAll(ev) })
}

// inform posts the current metadata to a process.
func (w *world) inform(p *process) {
	p.task(func() {
		k := w.known()
		for _, h := range p.hosts {
			if k.parts[h.part].Revision != 0 {
				h.step(replica.Meta{State: k.parts[h.part].Clone()})
			}
		}
	})
}

// reconnect notifies node n and the others which of them answer now.
func (w *world) reconnect(n int) {
	for m := range nodes {
		if m == n || !w.running(m) || !w.running(n) {
			continue
		}
		up := !w.apart[n] && !w.apart[m]
		w.tell(m, replica.PeerState{Node: nodeName(n), Up: up})
		w.tell(n, replica.PeerState{Node: nodeName(m), Up: up})
	}
}

// kill ends a process; with power the machine goes down and loses its cache.
func (w *world) kill(n int, power bool) {
	p := w.procs[n]
	w.note("n%d dies, power %t", n+1, power)
	p.disk.unplug(power)
	if power {
		w.outages++
	}
	p.shut()
	w.procs[n] = nil
	w.live[n] = 0
	for m := range nodes {
		w.links[m][n], w.links[n][m] = nil, nil
		if m != n && w.running(m) {
			w.tell(m, replica.PeerState{Node: nodeName(n), Dead: true})
			w.tell(m, replica.Live{Node: nodeName(n)})
		}
	}
}

// close ends everything.
func (w *world) close() {
	w.supply.arm(false)
	for n, p := range w.procs {
		if p != nil {
			p.shut()
			w.procs[n] = nil
		}
	}
}

func (w *world) send(h *host, e replica.Envelope) {
	for to := range nodes {
		if nodeName(to) == e.To && !w.apart[h.n] && !w.apart[to] && w.running(to) {
			from := replica.Peer{Node: nodeName(h.n), Incarnation: h.inc, Store: e.Msg.Store}
			w.links[h.n][to] = append(w.links[h.n][to], letter{from, h.part, e.Msg})
		}
	}
}

func (w *world) deliver(from, to int) {
	l := w.links[from][to][0]
	w.links[from][to] = w.links[from][to][1:]
	if !w.apart[from] && !w.apart[to] {
		w.procs[to].hosts[l.part].step(replica.Received{From: l.from, Msg: l.msg})
	}
}

// compareAndSwap is the transaction on a partition's key.
func (w *world) compareAndSwap(h *host, c replica.CAS) {
	gone := func(p *replica.Peer) bool { return p == nil || !w.isLive(*p) }
	lost := w.deaf[h.n]
	if lost && w.rng.IntN(2) == 0 { // it never arrives
		h.step(replica.CASDone{Token: c.Token, Unknown: true})
		return
	}
	done := replica.CASDone{Token: c.Token, Unknown: lost}
	w.supply.learn("", func(k *known) {
		ok := c.State.Revision == k.parts[h.part].Revision && w.live[h.n] == h.inc && gone(c.LeaderGone) && (c.TransferTarget == nil || w.isLive(*c.TransferTarget))
		if ok {
			k.revision++
			s := c.State.Clone()
			s.Revision = k.revision
			k.parts[h.part] = s
			w.note("p%d key: %+v", h.part, s)
		}
		if !lost {
			done.OK, done.State = ok, k.parts[h.part].Clone()
		}
	})
	h.step(done)
	for n, p := range w.procs {
		if w.running(n) && !w.deaf[n] {
			w.inform(p)
		}
	}
}

func (w *world) isLive(p replica.Peer) bool {
	for n := range nodes {
		if nodeName(n) == p.Node {
			return w.live[n] == p.Incarnation
		}
	}
	return false
}

// act lets one thing happen, which of those that may is chance; false if
// nothing is due.
func (w *world) act() bool {
	var due []func()
	for n, p := range w.procs {
		if !w.running(n) {
			continue
		}
		w.mail.Lock()
		answered := len(p.mail.synced) > 0
		w.mail.Unlock()
		if answered {
			due = append(due, func() { p.deliverSynced() })
		}
		if len(p.tasks) > 0 {
			due = append(due, func() {
				do := p.tasks[0]
				p.tasks = p.tasks[1:]
				do()
			})
		}
		for from := range nodes {
			if len(w.links[from][n]) > 0 {
				due = append(due, func() { w.deliver(from, n) })
			}
		}
	}
	if len(due) == 0 || w.first != nil {
		return false
	}
	due[w.rng.IntN(len(due))]()
	return true
}

// awaitSync waits for an answer of a journal; false if none is owed.
func (w *world) awaitSync() bool {
	w.mail.Lock()
	defer w.mail.Unlock()
	for {
		owed := uint64(0)
		for n, p := range w.procs {
			if !w.running(n) {
				continue
			}
			if len(p.mail.synced) > 0 {
				return true
			}
			owed += p.waitingLocked()
		}
		if owed == 0 {
			return false
		}
		w.arrived.Wait()
	}
}

// settle lets everything happen that is due, without time going by.
func (w *world) settle() error {
	for i := range endless {
		if i == endless-40 {
			w.told = true
			w.story.Reset()
		}
		if w.first != nil || !w.act() && !w.awaitSync() {
			return w.first
		}
	}
	w.fail("stuck: %d messages in one instant:%s", endless, w.story.String())
	return w.first
}

// tick lets time go by.
func (w *world) tick() {
	w.nowMS += stepMS
	for n, p := range w.procs {
		if w.running(n) {
			p.tellAll(replica.Tick{NowMS: w.nowMS})
		}
	}
}

// leader finds the replica that serves a partition.
func (w *world) leader(part int) *host {
	for n, p := range w.procs {
		if w.running(n) && p.hosts[part].m.View().Role == replica.Leader && w.live[n] == p.inc {
			return p.hosts[part]
		}
	}
	return nil
}
