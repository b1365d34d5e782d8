package engine

import (
	"time"

	"github.com/sirupsen/logrus"
)

// slowEvery is the least time between two lines about slow puts of one loop.
const slowEvery = time.Second

// slowPuts logs puts that take longer than Options.Slow. The run lock guards it.
type slowPuts struct {
	synced  time.Duration // the last sync of a submission of this loop
	at      time.Time     // the last line
	skipped int           // slow puts since then
}

// noteSlow logs a put that was committed now, if it took long. The stage is the one that took most of
// the time: queue (the core loop came to it late), sync (this broker's disk), or replicate (another
// in-sync replica, or the network).
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
