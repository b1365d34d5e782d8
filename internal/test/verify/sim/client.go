package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// put is one request of a producer with all its attempts: the history that is
// checked.
type put struct {
	part     int
	draft    queue.Draft
	bodies   []string
	attempts []*attempt
	// identified: the messages have ids, and each attempt has a request id of its own, as a producer
	// that tries again through another broker.
	identified bool
	over       bool // the producer has its answer or gave up
	acked      bool
	first      ident.Sequence // of the answer
	gone       bool           // acknowledged, and lost with more disks than it may be
	revived    bool           // there after all, since an operator went on with a replica that had it
}

// attempt is one try at one node. Its outcome is the machine's answer, even if that
// answer was lost on its way to the producer; 0 = none (yet).
type attempt struct {
	h        *host
	at       micros
	outcome  outcome.Outcome
	answered micros // when the machine gave its outcome
	refused  bool   // never reached a machine
}

// definite reports that no attempt can have left anything in a log.
func (p *put) definite() bool {
	if p.excused() {
		return false
	}
	for _, a := range p.attempts {
		switch a.outcome.Row().Effect {
		case outcome.Again, outcome.AgainWhileHeld, outcome.Refuses:
		default:
			if !a.refused {
				return false
			}
		}
	}
	return true
}

// producer puts one request after the other and repeats it, under the same
// request id, until it is answered or patience ends.
type producer struct {
	w    *world
	id   uint64
	n    uint64
	rand *rand.Rand
	put  *put
	try  int
	rest bool // makes no new puts
}

func (c *producer) next() {
	if c.rest || c.w.failure != nil {
		c.put = nil
		return
	}
	c.n++
	c.put, c.try = c.w.newPut(c.rand, c.rand.IntN(len(c.w.ledgers)), ident.RequestID{Producer: c.id, N: c.n}), 0
	c.attempt()
}

// lastPuts is the producer of the puts that show that the healed cluster takes puts: they have no ids,
// for a leader that lost some of the window refuses others.
const lastPuts = 1 << 32

// newPut makes a put of 1 to 5 messages with unique bodies. Half of the puts with ids have one for all of
// their messages. Half of the puts that are repeated under their request ids have ids for some of their
// messages.
func (w *world) newPut(r *rand.Rand, part int, id ident.RequestID) *put {
	b, p := queue.NewDraft(64), &put{part: part, identified: id.N%2 == 1 && id.Producer < lastPuts}
	whole, partly := id.N%4 == 3, id.N%4 == 2 && id.Producer < lastPuts
	for i := range 1 + r.IntN(5)*r.IntN(2) {
		p.bodies = append(p.bodies, fmt.Sprintf("%d/%d/%d%*s", id.Producer, id.N, i, r.IntN(40), ""))
		m := queue.Message{DeliverAt: w.later(r), Body: []byte(p.bodies[i])}
		switch {
		case p.identified && (i == 0 || !whole):
			m.Identity, m.IsPutIdentity = queue.IdentityOf(m.Body), whole
		case partly && i%2 == 1:
			m.Identity = queue.IdentityOf(m.Body)
		}
		_ = b.AddMessage(m) // it has no header
	}
	p.draft = b.Draft(id)
	w.puts = append(w.puts, p)
	w.byRequest[id] = p
	return p
}

// attempt sends the present put to the broker that is believed to lead.
func (c *producer) attempt() {
	p, w := c.put, c.w
	c.try++
	n := w.leaderBelieved(c.rand, p.part)
	a := &attempt{at: w.now}
	p.attempts = append(p.attempts, a)
	settled, boot := false, n.boot
	settle := func(o outcome.Outcome) {
		if !settled && c.put == p {
			settled = true
			c.answered(o)
		}
	}
	w.after(100+micros(c.rand.IntN(1500)), func() {
		if !n.up || n.boot != boot {
			a.refused = true
			w.after(2*millisecond, func() { settle(outcome.NotLeader) })
			return
		}
		n.post(boot, func() { c.arrive(n, p, a, settle) })
	})
	patience := w.times.hold/2 + micros(c.rand.Int64N(int64(2*w.times.write)))
	w.after(patience, func() { settle(0) })
}

// arrive proposes the put at a node; the answer goes back unless it is lost.
func (c *producer) arrive(n *node, p *put, a *attempt, settle func(outcome.Outcome)) {
	h := n.hosts[p.part]
	if h == nil {
		a.refused = true
		settle(outcome.NotLeader)
		return
	}
	a.h = h
	h.propose(c.draft(p), func(done outcome.Completion) {
		a.outcome, a.answered = done.Outcome, c.w.now
		c.w.check.answered(h, p, done)
		if c.rand.IntN(50) == 0 {
			return // lost on the way back
		}
		c.w.after(100+micros(c.rand.IntN(500)), func() { settle(done.Outcome) })
	})
}

// draft is the current attempt.
func (c *producer) draft(p *put) queue.Draft {
	d := p.draft.Clone()
	if p.identified {
		d.Request.N |= uint64(c.try) << 40
		c.w.byRequest[d.Request] = p
	}
	return d
}

// answered decides what the producer does next; 0 is a timeout.
func (c *producer) answered(o outcome.Outcome) {
	w, give := c.w, 0 // per cent that give up
	wait := micros(c.rand.Int64N(int64(8 * millisecond)))
	switch o {
	case outcome.Committed, outcome.Duplicate, outcome.Repeated:
		give = 100
	case outcome.RolledBack:
		give = 50
	case outcome.InDoubt, 0:
		give = 15
	case outcome.NotEnoughReplicas:
		give = 30
	case outcome.DiskFull:
		give = 30
		wait += micros(c.rand.Int64N(int64(w.times.lag)))
	case outcome.NotLeader:
		wait += micros(c.rand.Int64N(int64(w.times.lag / 2)))
	}
	if c.try >= 30 || w.now-c.put.attempts[0].at > w.times.putLimit || c.rand.IntN(100) < give {
		c.put.over = true
		w.after(wait+micros(c.rand.Int64N(int64(w.pace))), c.next)
		return
	}
	p := c.put
	w.after(wait, func() {
		if c.put == p {
			c.attempt()
		}
	})
}

// leaderBelieved asks a random broker for the leader; sometimes it returns that broker.
func (w *world) leaderBelieved(r *rand.Rand, part int) *node {
	n := w.nodes[r.IntN(len(w.nodes))]
	if leader := n.keys[part].Leader; n.up && leader != "" && r.IntN(20) != 0 {
		return w.nodes[w.nodeIndex(leader)]
	}
	return n
}
