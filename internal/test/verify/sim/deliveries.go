package sim

import (
	"bytes"
	"slices"
	"sort"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// consumed is what the consumer of one partition saw and did.
type consumed struct {
	deliveries []*judge.Delivery
	delivered  []ident.Sequence               // of which messages
	finished   map[ident.Sequence]ident.Epoch // on all in-sync replicas since that epoch
	forgotten  []forgotten                    // deliveries of messages that a recovery gave up
	tried      map[ident.Sequence]bool        // a finish was tried: it may be known
	front      ident.Sequence                 // tried for everything below
	last       ident.Sequence                 // newest delivery of the newest epoch
	epoch      ident.Epoch                    // the highest that has delivered
}

func newConsumed() consumed {
	return consumed{finished: make(map[ident.Sequence]ident.Epoch), tried: make(map[ident.Sequence]bool)}
}

// delivered checks one delivery against the ledger at that very moment.
func (c *checker) delivered(h *host, d api.Delivery) {
	l, seq := &c.w.ledgers[h.part], d.Message.Seq
	if c.outlived(h, d.Epoch) {
		return
	}
	m, ok := l.message(seq)
	switch {
	case !ok:
		c.w.failf("uncommitted seen", h.part, "%s delivers sequence %d, committed is up to %d", h.n.name, seq, l.end().Sequence)
	case !bytes.Equal(m.Body, d.Message.Body):
		c.w.failf("rewritten", h.part, "%s delivers %q at sequence %d, committed is %q", h.n.name, d.Message.Body, seq, m.Body)
	}
	if at := d.Message.DeliverAt; at != 0 {
		c.w.cover[StateDeferred]++
		if now := c.w.latest(); at > now {
			c.w.failf("early", h.part, "%s delivers sequence %d %d ms before it is due", h.n.name, seq, (at-now)/1e6)
		}
	}
	if in, done := l.finished[seq]; done && d.Epoch >= in {
		c.w.failf("cursor went back", h.part, "%s delivers sequence %d in epoch %d, it was finished in epoch %d", h.n.name, seq, d.Epoch, in)
	}
	if c.w.scenario.ordered {
		c.inOrder(h, l, d)
	}
	if h.index.Start().Sequence > seq {
		c.w.cover[StateRelocatedSeen]++
	}
	l.delivered = append(l.delivered, seq)
	at := c.w.now.duration()
	l.deliveries = append(l.deliveries, &judge.Delivery{Channel: reader, ID: string(d.ID[:]), Body: string(d.Message.Body), Attempts: int(d.Message.Attempts), Asked: at, At: at})
}

// latest is the latest time that is right, or that some clock has shown. A message is due when the
// clock of its leader says so.
func (w *world) latest() int64 {
	now := w.trueNS()
	for _, n := range w.nodes {
		now = max(now, n.clock.latest)
	}
	return now
}

// inOrder: on an ordered channel a message comes when the one before it is
// finished, and none comes behind one that has come. A leader that was deposed
// may still repeat itself.
func (c *checker) inOrder(h *host, l *ledger, d api.Delivery) {
	seq := d.Message.Seq
	if d.Epoch < l.consumed.epoch {
		return
	}
	l.consumed.epoch = d.Epoch
	if seq > l.front {
		c.w.failf("passed over", h.part, "%s delivers sequence %d in order, %d is not finished", h.n.name, seq, l.front)
	}
	if seq < l.last {
		c.w.failf("reordered", h.part, "%s delivers sequence %d in epoch %d after %d", h.n.name, seq, d.Epoch, l.last)
	}
	l.last = seq
}

// finishing notes that a finish is tried: from now on it may be known.
func (c *checker) finishing(h *host, d api.Delivery) {
	l := &c.w.ledgers[h.part]
	if c.outlived(h, d.Epoch) {
		return
	}
	l.tried[d.Message.Seq] = true
	id := string(d.ID[:])
	for _, x := range slices.Backward(l.deliveries) {
		if x.ID == id {
			x.Settled = append(x.Settled, judge.Settlement{Verb: "finish", At: c.w.now.duration(), Unknown: true})
			break
		}
	}
	for l.tried[l.front] {
		l.front++
	}
}

// finished notes finishes that all of the in-sync set holds.
func (c *checker) finished(h *host, in ident.Epoch, seqs []ident.Sequence) {
	l := &c.w.ledgers[h.part]
	for _, seq := range seqs {
		if _, known := l.finished[seq]; !known {
			l.finished[seq] = in
		}
	}
}

// message finds a committed message.
func (l *ledger) message(seq ident.Sequence) (queue.Message, bool) {
	i := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].End.Sequence > seq })
	if i == len(l.batches) {
		return queue.Message{}, false
	}
	found := l.batches[i].Messages(seq, 1, nil)
	return found[0], true
}

// reader is the channel of the consumers.
const reader = "reader"

// clients judges what all clients saw, as the tests with real processes do. An unconfirmed finish may be forgotten any number of
// times. Confirmed ones are checked at each delivery. Of a put that an operator's recovery has removed, some messages may have been
// delivered before: each is judged by itself.
func (c *checker) clients() {
	h := judge.History{Topic: "simulated", Channels: []judge.Channel{{Name: reader, Whole: true}}, Tolerance: judge.Tolerance{AfterFinish: judge.AnyNumber}}
	for _, p := range c.w.puts {
		all := judge.Put{Producer: int(p.draft.Request.Producer), Bodies: p.bodies, Attempts: p.answers()}
		if !p.excused() {
			h.Puts = append(h.Puts, &all)
			continue
		}
		for _, body := range p.bodies {
			one := all
			one.Bodies = []string{body}
			h.Puts = append(h.Puts, &one)
		}
	}
	for p := range c.w.ledgers {
		l := &c.w.ledgers[p]
		h.Deliveries = append(h.Deliveries, l.deliveries...)
		for _, d := range l.deliveries {
			if l.n > 0 && len(d.Settled) == 0 { // a recovery may have removed it from the log
				d.Settled = []judge.Settlement{{Verb: "finish", At: d.At, Unknown: true}}
			}
		}
	}
	if r := judge.Judge(&h); len(r.Violations) > 0 {
		c.w.failf("history", -1, "%s", r)
	}
}

// answers are those of all attempts, as the machines gave them.
func (p *put) answers() (all []judge.Attempt) {
	for _, a := range p.attempts {
		x := judge.Attempt{Sent: a.at.duration(), Answered: a.answered.duration(), Answer: a.answer()}
		if p.excused() {
			x.Answer = judge.InDoubt
		}
		all = append(all, x)
	}
	return all
}

func (a *attempt) answer() judge.Answer {
	switch a.outcome {
	case outcome.Committed, outcome.Duplicate, outcome.Repeated:
		return judge.OK
	case outcome.RolledBack:
		return judge.RolledBack
	case outcome.InDoubt:
		return judge.InDoubt
	case 0:
		if !a.refused {
			return judge.InDoubt
		}
	}
	return judge.Refused
}

func (t micros) duration() time.Duration { return time.Duration(t) * time.Microsecond }
