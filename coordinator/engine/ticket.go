package engine

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/nsqd"
)

// ticket is the caller that waits for a Completion: a put's Completer, or nsqd with its
// own number for a change of channel state.
type ticket struct {
	put             Completer
	at              time.Time // when the put was submitted
	proposed        time.Time // when the loop came to it
	messages, bytes int       // of the put; bytes of bodies
	change          uint64
	traced          func(Stages) // nil: it is not
}

// Stages is what Options.Trace receives of a put that was committed.
type Stages struct {
	Topic     string
	Partition int
	// Submitted is when the put came to the core loop, Proposed when the loop took it.
	Submitted, Proposed, Committed time.Time
	Synced                         time.Duration // the last sync of the loop's journal
	Messages, Bytes                int
}

// tickets are those of one partition. They start at 1: 0 asks for no answer.
type tickets struct {
	open map[uint64]ticket
	last uint64
}

func (p *Partition) newTicket(t ticket) uint64 {
	p.tickets.last++
	p.tickets.open[p.tickets.last] = t
	return p.tickets.last
}

// changeTicket wraps nsqd's number; 0 stays 0: no caller waits.
func (p *Partition) changeTicket(number uint64) uint64 {
	if number == 0 {
		return 0
	}
	return p.newTicket(ticket{change: number})
}

// complete answers one ticket.
func (p *Partition) complete(c replica.Completion) {
	t, ok := p.tickets.open[c.Ticket]
	if !ok {
		return
	}
	delete(p.tickets.open, c.Ticket)
	if t.put != nil {
		p.loop.count(p, t, c.Outcome) // first: a producer that is answered may read the statistics
		p.loop.answer(t.put, c)
		return
	}
	p.queue.Completed(t.change, c.Outcome == replica.Committed)
}

// abandon answers all open tickets when the machine goes: a later leader may commit the
// puts that were written.
func (p *Partition) abandon() {
	for n := range p.tickets.open {
		p.complete(replica.Completion{Ticket: n, Outcome: replica.InDoubt})
	}
	if p.leads != 0 {
		p.leads = 0
		p.queue.Unlead()
	}
	p.view.Store(&replica.View{Role: replica.Stopped})
}

// Change enqueues a delta of the channels for the machine (nsqd.Replicator).
func (p *Partition) Change(_ *nsqd.Partition, delta []byte, number uint64) {
	open := p.loop.events.enqueue(event{kind: eventChange, id: p.id, delta: delta, ticket: number, partition: p})
	if !open && number != 0 {
		p.queue.Completed(number, false)
	}
}
