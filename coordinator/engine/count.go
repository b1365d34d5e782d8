package engine

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// count records the end of a put.
func (l *loop) count(p *Partition, t ticket, o replica.Outcome) {
	switch o {
	case replica.Committed:
		now := time.Now()
		l.o.Metrics.Stage(metrics.StageReplicate, now.Sub(t.proposed))
		l.o.Metrics.Stage(metrics.StageCommit, now.Sub(t.at))
		l.o.Metrics.Stored(t.messages, t.bytes)
		l.noteSlow(p, t, now)
		if t.traced != nil {
			t.traced(Stages{p.topic, int(p.id.Number), t.at, t.proposed, now, l.slow.synced, t.messages, t.bytes})
		}
		p.queue.CountStored(t.bytes)
	case replica.Duplicate, replica.Repeated:
		l.o.Metrics.Event(metrics.EventRepeated)
	}
}

// countEvents records the rare events between two views of a machine.
func (l *loop) countEvents(p *Partition, old, now *replica.View) {
	if campaigns(now.Role) && !campaigns(old.Role) {
		p.electing = l.now
	}
	switch {
	case old.Role != replica.Leader && now.Role == replica.Leader:
		l.o.Metrics.Event(metrics.EventElected)
		if campaigns(old.Role) {
			l.o.Metrics.Took(metrics.Election, l.now.Sub(p.electing))
		}
	case old.Role == replica.Leader && now.Role != replica.Leader:
		l.o.Metrics.Event(metrics.EventSteppedDown)
	}
	a, b := &old.Counters, &now.Counters
	if *a == *b {
		return
	}
	times := func(e metrics.Event, n uint64) {
		for range n {
			l.o.Metrics.Event(e)
		}
	}
	times(metrics.EventRollback, b.Rollbacks-a.Rollbacks)
	times(metrics.EventTruncated, b.Truncations-a.Truncations)
	times(metrics.EventRemoved, b.Shrinks-a.Shrinks+b.Swaps-a.Swaps)
	times(metrics.EventJoined, b.Grows-a.Grows+b.Swaps-a.Swaps)
	times(metrics.EventRestarted, b.Restarts-a.Restarts)
	l.noteUndone(p, now.Epoch, a, b)
	l.o.Metrics.Add(metrics.PutsRolledBack, int(b.RolledBack-a.RolledBack))
	l.o.Metrics.Add(metrics.PutsInDoubt, int(b.InDoubt-a.InDoubt))
}

// noteUndone keeps rollbacks and truncations as events.
func (l *loop) noteUndone(p *Partition, epoch ident.Epoch, old, now *replica.Counters) {
	e := events.Event{Topic: p.topic, ID: p.id, Epoch: epoch, Broker: l.o.Self, State: "degraded"}
	if now.Rollbacks != old.Rollbacks {
		e.Kind = events.Rollback
		l.o.Events.Add(e)
	}
	if now.Truncations != old.Truncations {
		e.Kind = events.Truncation
		l.o.Events.Add(e)
	}
}

// campaigns reports whether a replica in this role is on its way to lead.
func campaigns(r replica.Role) bool { return r == replica.Candidate || r == replica.Electing }
