package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxQuarantine bounds the places remembered of one partition; those above it
// are met again when the first are mended.
const maxQuarantine = 1024

// quarantine is where reads of a partition met damage, in order, until Mend. It
// is in memory only: after a restart who reads there meets it again. Nothing but
// Mend and those who tell operators looks at it; in particular a read does not.
type quarantine []queue.Damage

// add notes a place; false if it was known, or there are too many.
func (q *quarantine) add(d queue.Damage) bool {
	i, known := slices.BinarySearchFunc(*q, d.From, func(e queue.Damage, from ident.Offset) int { return cmp.Compare(e.From, from) })
	if known || len(*q) >= maxQuarantine {
		return false
	}
	*q = slices.Insert(*q, i, d)
	return true
}

// keep forgets the places that begin outside of from to to.
func (q *quarantine) keep(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From < from || d.From >= to })
}

// release forgets the places that begin within from to to.
func (q *quarantine) release(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From >= from && d.From < to })
}

// Damaged lists the places that could not be read and were not mended since. To
// of each is exact if the commit log knows it.
func (p *Partition) Damaged() []queue.Damage {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.mu.quarantine)
}

// Damaged receives when a place went into quarantine.
func (s *Store) Damaged() <-chan struct{} { return s.damaged }

// quarantined makes the range of a failed read as exact as the commit log knows,
// and remembers it.
func (p *Partition) quarantined(err error) error {
	var d *queue.Damage
	if !errors.As(err, &d) {
		return err
	}
	if r, ok := p.index.AtOffset(d.From); ok {
		d.From, d.To = r.Offset, r.End().Offset
	}
	if p.notice(*d) {
		p.store.o.Log.WithError(d).WithFields(logrus.Fields{"topic": p.topic, "partition": p.id.Number}).
			Error("DAMAGED: this place is not served until another replica's copy has mended it, or a channel is moved past it")
		select {
		case p.store.damaged <- struct{}{}:
		default:
		}
	}
	return fmt.Errorf("store: %s/%d: %w", p.topic, p.id.Number, d)
}

// notice puts a place into quarantine, if it is still part of the log.
func (p *Partition) notice(d queue.Damage) bool {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed || d.From < p.durable.start.Offset || d.From >= p.durable.end.Offset {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.quarantine.add(d)
}
