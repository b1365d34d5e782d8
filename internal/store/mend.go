package store

import (
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// ErrUnproven means that nothing on this disk vouches for the bytes offered.
var ErrUnproven = errors.New("store: the chain of checksums does not prove these bytes")

// Mend puts batches that another replica gave over what is damaged from the
// first of them on, as far as the damage goes, and takes the place out of
// quarantine. Durable on return; mended is where it ends.
//
// They are taken only if they are one chain, and this disk still vouches for the
// end of it: by the commit log's checksum, or by the batch after it, which
// names the one before. Equal checksums at one place mean equal bytes up to
// there, so nothing but what was there can come in.
func (p *Partition) Mend(batches []queue.Batch) (mended ident.Offset, err error) {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return 0, ErrUnknown
	}
	if batches, err = p.proven(batches); err != nil {
		return 0, err
	}
	from, n := batches[0].At.Offset, 0
	for end := p.segments.End(); n < len(batches) && batches[n].End.Offset <= end && !p.holds(&batches[n]); {
		n++
	}
	if mended = from; n > 0 {
		mended = batches[n-1].End.Offset
		if err := p.segments.Repair(batches[:n]); err != nil {
			p.store.fail(err)
			return from, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.quarantine.release(from, max(mended, from+1))
	return mended, nil
}

// proven gives the batches as far as they are one chain that ends in what this
// disk knows.
func (p *Partition) proven(batches []queue.Batch) ([]queue.Batch, error) {
	n := 1
	for n < len(batches) && batches[n].At == batches[n-1].End && batches[n].PrevCRC == batches[n-1].CRC {
		n++
	}
	for n = min(n, len(batches)); n > 0; n-- {
		if p.vouches(&batches[n-1]) {
			break
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: %d batches", ErrUnproven, len(batches))
	}
	if before, ok := p.lastBefore(batches[0].At.Offset); ok && before.CRC != batches[0].PrevCRC {
		return nil, fmt.Errorf("%w: offset %d follows a batch with checksum %08x here, %08x there",
			ErrUnproven, batches[0].At.Offset, before.CRC, batches[0].PrevCRC)
	}
	return batches[:n], nil
}

// vouches: the commit log has this very batch, or the one after it continues
// from it, or it is the last of the log.
func (p *Partition) vouches(b *queue.Batch) bool {
	if r, ok := p.index.AtOffset(b.At.Offset); ok && r.CRC == b.CRC && r.End() == b.End {
		return true
	}
	d := &p.durable
	if b.End == d.end {
		return d.lastCRC == b.CRC
	}
	vouches := false
	_, _ = p.segments.Headers(b.End.Offset, p.segments.End(), func(next queue.Batch) bool {
		vouches = next.At == b.End && next.PrevCRC == b.CRC
		return false
	})
	return vouches
}

// holds: the batch lies in the segments whole.
func (p *Partition) holds(b *queue.Batch) bool {
	held, err := p.segments.ReadAt(b.At.Offset, b.End.Offset, len(b.Bytes))
	return err == nil && len(held) == 1 && held[0].CRC == b.CRC
}
