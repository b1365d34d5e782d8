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

// maxQuarantine bounds the damaged ranges that are remembered per partition; later reads will find the others.
const maxQuarantine = 1024

// quarantine is the sorted list of ranges in which reads of a partition found damage, until Repair. It is in memory
// only, for Repair and for operators; reads ignore it.
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

// retain keeps only the ranges that begin within [from, to).
func (q *quarantine) retain(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From < from || d.From >= to })
}

// release forgets the ranges that begin within [from, to).
func (q *quarantine) release(from, to ident.Offset) {
	*q = slices.DeleteFunc(*q, func(d queue.Damage) bool { return d.From >= from && d.From < to })
}

// Damaged lists the unreadable ranges that were not repaired. To is exact if the commit log has the batch.
func (p *Partition) Damaged() []queue.Damage {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.mu.quarantine)
}

// Damaged receives when a range went into quarantine.
func (s *Store) Damaged() <-chan struct{} { return s.damaged }

// quarantineDamage puts the range of a failed read into quarantine. It returns other errors unchanged.
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

// addToQuarantine puts a range into quarantine if it is still part of the log. False: it is not, or the range is
// already known.
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

// errUnproven means that no record on this disk proves that the offered bytes are right.
var errUnproven = errors.New("store: the chain of checksums does not prove these bytes")

// Repair writes batches of another replica over the damaged range that begins at the first of them, up to the end of
// the damage, and releases the range from quarantine. The bytes are durable on return. repairedTo is the end of the
// repaired range. Errors: errUnknown, errUnproven, or an error of the disk, which stops the store.
//
// The batches must be one chain, and this disk must still prove its end: by the commit log's checksum, or by the
// following batch, which contains the preceding checksum. So only the original bytes can enter.
func (p *Partition) Repair(batches []queue.Batch) (repairedTo ident.Offset, err error) {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return 0, errUnknown
	}
	if batches, err = p.proven(batches); err != nil {
		return 0, err
	}
	from, n := batches[0].At.Offset, 0
	for end := p.segments.end(); n < len(batches) && batches[n].End.Offset <= end && !p.intact(&batches[n]); {
		n++
	}
	if repairedTo = from; n > 0 {
		repairedTo = batches[n-1].End.Offset
		if err := p.segments.repair(batches[:n]); err != nil {
			p.store.fail(err)
			return from, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.quarantine.release(from, max(repairedTo, from+1))
	return repairedTo, nil
}

// proven returns the longest prefix of the batches that is one chain with an end that this disk proves.
func (p *Partition) proven(batches []queue.Batch) ([]queue.Batch, error) {
	n := 1
	for n < len(batches) && batches[n].At == batches[n-1].End && batches[n].PrevCRC == batches[n-1].CRC {
		n++
	}
	for n = min(n, len(batches)); n > 0; n-- {
		if p.proves(&batches[n-1]) {
			break
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: %d batches", errUnproven, len(batches))
	}
	if before, ok := p.lastBefore(batches[0].At.Offset); ok && before.CRC != batches[0].PrevCRC {
		return nil, fmt.Errorf("%w: offset %d follows a batch with checksum %08x here, %08x there",
			errUnproven, batches[0].At.Offset, before.CRC, batches[0].PrevCRC)
	}
	return batches[:n], nil
}

// proves reports whether the commit log, the next batch, or the end of the log proves a batch.
func (p *Partition) proves(b *queue.Batch) bool {
	if r, ok := p.index.AtOffset(b.At.Offset); ok && r.CRC == b.CRC && r.End() == b.End {
		return true
	}
	d := &p.durable
	if b.End == d.end {
		return d.lastCRC == b.CRC
	}
	proved := false
	_, _ = p.segments.headers(b.End.Offset, p.segments.end(), func(next queue.Batch) bool {
		proved = next.At == b.End && next.PrevCRC == b.CRC
		return false
	})
	return proved
}

// intact reports whether the disk, not only the page cache, has the complete batch.
func (p *Partition) intact(b *queue.Batch) bool {
	found, err := p.segments.readDisk(b.At.Offset, b.End.Offset, len(b.Bytes))
	return err == nil && len(found) == 1 && found[0].CRC == b.CRC
}
