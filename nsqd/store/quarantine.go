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

// maxQuarantine bounds the damaged ranges that are remembered per partition. Reads find the others
// after the first ones were repaired.
const maxQuarantine = 1024

// quarantine is the sorted list of ranges in which reads of a partition found damage, until Repair.
// It is in memory only: after a restart, reads find the damage again. Only Repair and the reports
// for operators use it; in particular, reads do not.
type quarantine []queue.Damage

// add adds a range. False: it is known, or the list is full.
func (q *quarantine) add(d queue.Damage) bool {
	i, known := slices.BinarySearchFunc(*q, d.From, func(e queue.Damage, from ident.Offset) int { return cmp.Compare(e.From, from) })
	if known || len(*q) >= maxQuarantine {
		return false
	}
	*q = slices.Insert(*q, i, d)
	return true
}

// retain forgets the ranges that begin outside of [from, to).
func (q *quarantine) retain(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From < from || d.From >= to })
}

// release forgets the ranges that begin within [from, to).
func (q *quarantine) release(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From >= from && d.From < to })
}

// Damaged lists the unreadable ranges that were not repaired since. To of a range is exact if the
// commit log has the batch.
func (p *Partition) Damaged() []queue.Damage {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.mu.quarantine)
}

// Damaged receives when a range went into quarantine.
func (s *Store) Damaged() <-chan struct{} { return s.damaged }

// quarantineDamage narrows the range of a failed read by the commit log and puts it into
// quarantine. It passes other errors through.
func (p *Partition) quarantineDamage(err error) error {
	var d *queue.Damage
	if !errors.As(err, &d) {
		return err
	}
	if r, ok := p.index.AtOffset(d.From); ok {
		d.From, d.To = r.Offset, r.End().Offset
	}
	if p.addToQuarantine(*d) {
		p.store.o.Log.WithError(d).WithFields(logrus.Fields{"topic": p.topic, "partition": p.id.Number}).
			Error("damaged range is not served until a copy from another replica repairs it; to skip it, move the channel past it")
		select {
		case p.store.damaged <- struct{}{}:
		default:
		}
	}
	return fmt.Errorf("store: %s/%d: %w", p.topic, p.id.Number, d)
}

// addToQuarantine puts a range into quarantine if it is still part of the log. False: it is not, or the range is known.
func (p *Partition) addToQuarantine(d queue.Damage) bool {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed || d.From < p.durable.start.Offset || d.From >= p.durable.end.Offset {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.quarantine.add(d)
}
