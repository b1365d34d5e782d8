package powercut

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// client publishes, and changes channels; it remembers its answers.
type client struct {
	puts     uint64 // made so far
	tickets  uint64
	waiting  map[uint64]attempt
	attempts map[uint64]int // of each put
	retry    []attempt
	changes  [partitions]uint64
	outcomes [outcome.InDoubt + 1]int
}

// attempt is one proposal.
type attempt struct {
	part   int
	id     uint64 // of the put, or the change
	change bool
}

// put publishes something new, on the leader if there is one.
func (w *world) put() {
	w.client.puts++
	w.try(attempt{part: w.rng.IntN(partitions), id: w.client.puts})
}

// tryAgain repeats a put in doubt.
func (w *world) tryAgain() {
	if len(w.client.retry) == 0 {
		return
	}
	a := w.client.retry[0]
	w.client.retry = w.client.retry[1:]
	w.try(a)
}

func (w *world) try(a attempt) {
	h := w.leader(a.part)
	if p := w.procs[w.rng.IntN(nodes)]; h == nil && p != nil && w.running(p.n) {
		h = p.hosts[a.part]
	}
	if h != nil {
		w.propose(h, a)
	}
}

func (w *world) propose(h *host, a attempt) {
	w.client.tickets++
	w.client.waiting[w.client.tickets] = a
	w.client.attempts[a.id]++
	h.step(replica.Propose{TimeNS: w.nowMS * 1e6, Puts: []replica.Put{{Ticket: w.client.tickets, Draft: draft(a.id)}}})
}

// change confirms something in a channel.
func (w *world) change() {
	part := w.rng.IntN(partitions)
	h := w.leader(part)
	if h == nil {
		return
	}
	n := w.client.changes[part]
	w.client.changes[part]++
	w.client.tickets++
	w.client.waiting[w.client.tickets] = attempt{part: part, id: n, change: true}
	h.reg.Apply(encodeChange(n)) // a leader's channels apply at once
	h.step(replica.Change{Delta: encodeChange(n), Ticket: w.client.tickets})
}

// complete takes an answer.
func (w *world) complete(h *host, c outcome.Completion) {
	a, ok := w.client.waiting[c.Ticket]
	if !ok {
		w.fail("answered: ticket %d has no question, or was answered before", c.Ticket)
		return
	}
	delete(w.client.waiting, c.Ticket)
	w.note("p%d n%d answers %+v: outcome %d, sequence %d", a.part, h.n+1, a, c.Outcome, c.First)
	w.client.outcomes[c.Outcome]++
	switch {
	case a.change && c.Outcome == outcome.Committed:
		w.supply.learn("confirmed change", func(k *known) { k.changes = append(k.changes, change{a.part, a.id}) })
	case a.change:
	case c.Outcome == outcome.Committed || c.Outcome == outcome.Duplicate:
		w.acknowledged(a, c.First)
	case c.Outcome == outcome.RolledBack && w.client.attempts[a.id] == 1:
		w.client.attempts[a.id]++ // never again
		w.supply.learn("rolled back put", func(k *known) { k.gone = append(k.gone, put{part: a.part, id: a.id}) })
	case c.Outcome == outcome.InDoubt || c.Outcome == outcome.NotLeader:
		w.client.retry = append(w.client.retry, a)
	}
}

func (w *world) acknowledged(a attempt, first ident.Sequence) {
	w.supply.learn("answered put", func(k *known) {
		i := slices.IndexFunc(k.acked, func(p put) bool { return p.id == a.id })
		switch {
		case i < 0:
			k.acked = append(k.acked, put{part: a.part, id: a.id, first: first})
		case k.acked[i].first != first:
			w.fail("moved: put %d was answered with sequence %d, and now with %d", a.id, k.acked[i].first, first)
		}
	})
}
