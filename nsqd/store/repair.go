package store

import (
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// errUnproven means that no record on this disk proves the offered bytes.
var errUnproven = errors.New("store: the chain of checksums does not prove these bytes")

// Repair writes batches of another replica over the damaged range that begins at the first of them, as far as the
// damage goes, and releases the range from quarantine. The bytes are durable on return. repairedTo is the end of the
// repaired range. Errors: errUnknown, errUnproven, or an error of the disk, which stops the store.
//
// The batches must be one chain, and this disk must still prove its end: by the commit log's
// checksum, or by the following batch, which names the checksum before it. Equal checksums at one
// place mean equal bytes up to that place, so only the original bytes can enter.
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

// proves reports whether this disk proves a batch: the commit log has this very batch, or the next
// batch continues from it, or it is the last of the log.
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

// intact reports whether the segments have the complete batch. It reads past the page cache, which may
// have bytes that the disk has lost.
func (p *Partition) intact(b *queue.Batch) bool {
	found, err := p.segments.readDisk(b.At.Offset, b.End.Offset, len(b.Bytes))
	return err == nil && len(found) == 1 && found[0].CRC == b.CRC
}
