package engine

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd"
)

// ticket is the completer of a put or a change, with the statistics of a put.
type ticket struct {
	done            outcome.Completer
	isPut           bool
	at              time.Time    // when the put was submitted
	proposed        time.Time    // when the loop came to it
	messages, bytes int          // of the put; bytes of bodies
	traced          func(Stages) // nil: it is not
}

// Stages is what Options.Trace receives of a put that was committed.
type Stages struct {
	Topic     string
	Partition int
	// Submitted is when the put came to the core loop, Proposed when the loop took it.
	Submitted, Proposed, Committed time.Time
	Synced                         time.Duration // duration of the last sync of the loop's journal
	Messages, Bytes                int
}

// tickets are the open tickets of one partition, by number. Numbers start at 1; 0 requests no answer.
type tickets struct {
	open map[uint64]ticket // nil while the partition is idle
	last uint64
}

func (p *Partition) newTicket(t ticket) uint64 {
	if p.tickets.open == nil {
		p.tickets.open = map[uint64]ticket{}
	}
	p.tickets.last++
	p.tickets.open[p.tickets.last] = t
	return p.tickets.last
}

func (p *Partition) complete(c outcome.Completion) {
	t, ok := p.tickets.open[c.Ticket]
	if !ok {
		return
	}
	delete(p.tickets.open, c.Ticket)
	if !t.isPut {
		t.done.Complete(c)
		return
	}
	p.loop.count(p, t, c.Outcome) // first: a producer that is answered may read the statistics
	p.loop.answer(t.done, c)
}

// abandon answers all open tickets when the machine is dropped. Puts that were written are in doubt, because a later
// leader may commit them.
func (p *Partition) abandon() {
	for n := range p.tickets.open {
		p.complete(outcome.Completion{Ticket: n, Outcome: outcome.InDoubt})
	}
	if p.leads != 0 {
		p.leads = 0
		p.queue.Unlead()
	}
	p.view.Store(&replica.View{Role: replica.Stopped})
}

// Submit enqueues a change of the channels for the machine (nsqd.Replicator).
func (p *Partition) Submit(c nsqd.Change) {
	e := event{kind: eventChange, id: p.id, delta: c.Delta, done: c.Done}
	if !p.loop.events.enqueue(e) {
		p.loop.refuse(&e)
	}
}

// change steps the machine with a change. Without a completer its ticket is 0.
func (l *loop) change(p *Partition, e *event) {
	ev := replica.Change{Delta: e.delta}
	if e.done != nil {
		ev.Ticket = p.newTicket(ticket{done: e.done})
	}
	l.step(p, ev)
}
