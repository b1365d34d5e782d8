package engine

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

func (l *loop) count(p *Partition, t ticket, o outcome.Outcome) {
	switch o {
	case outcome.Committed:
		now := time.Now()
		l.o.Metrics.Took(metrics.StageReplicate, now.Sub(t.proposed))
		l.o.Metrics.Took(metrics.StageCommit, now.Sub(t.at))
		l.o.Metrics.Stored(t.messages, t.bytes)
		l.noteSlow(p, t, now)
		if t.traced != nil {
			t.traced(Stages{p.topic, int(p.id.Number), t.at, t.proposed, now, l.slow.synced, t.messages, t.bytes})
		}
		p.queue.CountStored(t.bytes)
	case outcome.Duplicate, outcome.Repeated:
		l.o.Metrics.Add(metrics.EventRepeated, 1)
	}
}

// countEvents records the rare events between two views of a machine.
func (l *loop) countEvents(p *Partition, old, now *replica.View) {
	if campaigns(now.Role) && !campaigns(old.Role) {
		p.electing = l.now
	}
	switch {
	case old.Role != replica.Leader && now.Role == replica.Leader:
		l.o.Metrics.Add(metrics.EventElected, 1)
		if campaigns(old.Role) {
			l.o.Metrics.Took(metrics.Election, l.now.Sub(p.electing))
		}
	case old.Role == replica.Leader && now.Role != replica.Leader:
		l.o.Metrics.Add(metrics.EventSteppedDown, 1)
	}
	a, b := &old.Counters, &now.Counters
	if *a == *b {
		return
	}
	add := func(c metrics.Count, n uint64) { l.o.Metrics.Add(c, int(n)) }
	add(metrics.EventRollback, b.Rollbacks-a.Rollbacks)
	add(metrics.EventTruncated, b.Truncations-a.Truncations)
	add(metrics.EventRemoved, b.Shrinks-a.Shrinks+b.Swaps-a.Swaps)
	add(metrics.EventJoined, b.Grows-a.Grows+b.Swaps-a.Swaps)
	add(metrics.EventRestarted, b.Restarts-a.Restarts)
	l.noteUndone(p, now.Epoch, a, b)
	add(metrics.PutsRolledBack, b.RolledBack-a.RolledBack)
	add(metrics.PutsInDoubt, b.InDoubt-a.InDoubt)
}

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

// campaigns reports whether a replica in this role is about to lead.
func campaigns(r replica.Role) bool { return r == replica.Candidate || r == replica.Electing }

// slowEvery is the least time between two log lines about slow puts of one loop.
const slowEvery = time.Second

// slowPuts logs puts that take longer than Options.Slow. The run lock guards it.
type slowPuts struct {
	synced  time.Duration // the last sync of a submission of this loop
	at      time.Time     // the last line
	skipped int           // slow puts since then
}

// noteSlow logs a put that took long to commit, with the stage that took most of the time: queue (waiting for
// the core loop), sync (this broker's disk), or replicate (another in-sync replica, or the network).
func (l *loop) noteSlow(p *Partition, t ticket, now time.Time) {
	took := now.Sub(t.at)
	if l.o.Slow == 0 || took < l.o.Slow {
		return
	}
	if now.Sub(l.slow.at) < slowEvery {
		l.slow.skipped++
		return
	}
	queued, replicated := t.proposed.Sub(t.at), now.Sub(t.proposed)
	stage := "replicate"
	switch {
	case queued > replicated:
		stage = "queue"
	case l.slow.synced > replicated/2:
		stage = "sync"
	}
	l.o.Log.WithFields(p.LogFields()).WithFields(logrus.Fields{
		"stage": stage, "took": took, "queue": queued, "sync": l.slow.synced, "replicate": replicated, "skipped": l.slow.skipped,
	}).Info("slow put")
	l.slow.at, l.slow.skipped = now, 0
}
