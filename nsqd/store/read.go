package store

import (
	"errors"
	"fmt"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// readAttempts bounds the repetitions of a read when the log is cut during it.
const readAttempts = 8

// ErrTrimmed means that retention has removed the range.
var ErrTrimmed = errors.New("store: retention has removed this range")

var errCutDuringRead = fmt.Errorf("store: the log was cut during each of %d reads", readAttempts)

// ReadAt returns whole batches that begin at or after offset from: about max bytes, at least one batch if there is any.
// Errors: *queue.Damage for an unreadable range, ErrTrimmed for a range before the start. Any goroutine may call it.
//
// It may return batches that are not committed, or not even durable. The caller bounds what it uses.
func (p *Partition) ReadAt(from ident.Offset, max int) ([]queue.Batch, error) {
	trimmed := false
	b, err := p.read(max, func() (ident.Offset, int) {
		i := sort.Search(len(p.mu.tail), func(i int) bool { return p.mu.tail[i].At.Offset >= from })
		return from, i
	}, func() (ident.Offset, bool) {
		trimmed = from < p.floor()
		return p.boundaryAt(from)
	})
	if trimmed {
		return nil, fmt.Errorf("%w: offset %d", ErrTrimmed, from)
	}
	return b, err
}

// ReadDisk is ReadAt from the disk: it bypasses the memory tail, the read cache and the page cache (see vfs.ReadDisk).
// It first writes batches that are durable only in the journal to the segments, and syncs them; batches that are not
// durable are left out. It waits for the writer, and for a checkpoint in progress. Any goroutine may call it.
func (p *Partition) ReadDisk(from ident.Offset, max int) ([]queue.Batch, error) {
	for range readAttempts {
		if err := p.store.writer.ask(p); err != nil {
			return nil, err
		}
		p.mu.RLock()
		limit, cuts := p.mu.written, p.mu.cuts
		p.mu.RUnlock()
		if from < p.floor() {
			return nil, fmt.Errorf("%w: offset %d", ErrTrimmed, from)
		}
		var b []queue.Batch
		var err error
		at, ok := p.boundaryAt(from)
		if ok {
			b, err = p.segments.readDisk(at, limit, max)
		}
		if trimmed := err != nil && at < p.floor(); p.unchanged(cuts) && !trimmed {
			return b, p.quarantineDamage(err)
		}
	}
	return nil, fmt.Errorf("%w: %s", errCutDuringRead, p.id)
}

// ReadSequence is ReadAt from the batch with message n, or from the start of the log if n is older.
func (p *Partition) ReadSequence(n ident.Sequence, max int) ([]queue.Batch, error) {
	b, err := p.readSequence(n, max)
	for err == nil && len(b) > 0 && b[0].End.Sequence <= n { // the search may have stopped early at a disk error
		i := sort.Search(len(b), func(i int) bool { return b[i].End.Sequence > n })
		if i < len(b) {
			return b[i:], nil
		}
		b, err = p.ReadAt(b[i-1].End.Offset, max)
	}
	return b, err
}

func (p *Partition) readSequence(n ident.Sequence, max int) ([]queue.Batch, error) {
	return p.read(max, func() (ident.Offset, int) {
		i := sort.Search(len(p.mu.tail), func(i int) bool { return p.mu.tail[i].End.Sequence > n })
		if i == 0 && len(p.mu.tail) > 0 && n < p.mu.tail[0].At.Sequence {
			return p.mu.tail[0].At.Offset - 1, 0 // older than the tail
		}
		if len(p.mu.tail) == 0 {
			return p.mu.end.Offset - 1, 0
		}
		return p.mu.tail[0].At.Offset, i
	}, func() (ident.Offset, bool) { return p.boundaryOf(n) })
}

// read tries the memory: inTail, called under the lock, returns an offset that the tail must cover, and an index into
// it. Otherwise it reads the segments from the offset that boundary returns.
func (p *Partition) read(max int, inTail func() (ident.Offset, int), boundary func() (ident.Offset, bool)) ([]queue.Batch, error) {
	for range readAttempts {
		p.mu.RLock()
		start, cuts := p.mu.end.Offset, p.mu.cuts // the start of the tail
		if len(p.mu.tail) > 0 {
			start = p.mu.tail[0].At.Offset
		}
		at, i := inTail()
		if at >= start {
			b := upTo(max, p.mu.tail[i:])
			p.mu.RUnlock()
			p.use()
			return b, nil
		}
		p.mu.RUnlock()
		var b []queue.Batch
		var err error
		from, ok := boundary()
		if ok && from < start {
			b, err = p.fromSegments(from, start, cuts, max)
		} else if ok {
			b, err = p.ReadAt(from, max)
		}
		if trimmed := err != nil && from < p.floor(); p.unchanged(cuts) && !trimmed {
			return b, p.quarantineDamage(err)
		}
	}
	return nil, fmt.Errorf("%w: %s", errCutDuringRead, p.id)
}

// fromSegments reads batches that are not in memory, from the read cache if possible.
func (p *Partition) fromSegments(from, limit ident.Offset, cuts uint64, max int) ([]queue.Batch, error) {
	if b := p.store.readCache.find(p, cuts, from, max); b != nil {
		return b, nil
	}
	b, err := p.segments.readAt(from, limit, max)
	if len(b) > 0 {
		p.store.readCache.add(run{p, cuts, b})
	}
	return b, err
}

// floor is the start of the log for readers. Retention raises it before it removes the first file.
func (p *Partition) floor() ident.Offset {
	first, _ := p.segments.start()
	return max(first, p.Start().Offset)
}

func (p *Partition) unchanged(cuts uint64) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.cuts == cuts
}

// upTo returns the first batches, shared: max bytes of them, but at least one if there is any.
func upTo(max int, b []queue.Batch) []queue.Batch {
	n, bytes := 0, 0
	for n < len(b) && (n == 0 || bytes+len(b[n].Bytes) <= max) {
		bytes += len(b[n].Bytes)
		n++
	}
	if n == 0 {
		return nil
	}
	return b[:n:n]
}

// boundaryAt finds the first offset at or after o at which a batch begins.
func (p *Partition) boundaryAt(o ident.Offset) (ident.Offset, bool) {
	o = max(o, p.floor())
	if r, ok := p.index.AtOffset(o); ok {
		if r.Offset == o {
			return o, true
		}
		return r.End().Offset, true
	}
	return p.scan(o, func(b queue.Batch) bool { return b.At.Offset >= o })
}

// boundaryOf finds the offset of the batch with message n, or the start of the log if n is older.
func (p *Partition) boundaryOf(n ident.Sequence) (ident.Offset, bool) {
	if start := p.Start(); n < start.Sequence {
		return p.floor(), true
	}
	if r, ok := p.index.AtSequence(n); ok {
		return max(r.Offset, p.floor()), true
	}
	from, ok := p.segments.start()
	for _, base := range p.segments.bases() {
		_, _ = p.segments.headers(base, p.segments.end(), func(b queue.Batch) bool {
			if b.At.Sequence <= n {
				from = base
			}
			return false
		})
	}
	if !ok {
		return 0, false
	}
	return p.scan(from, func(b queue.Batch) bool { return b.End.Sequence > n })
}

// scan searches the headers of one segment and the following ones, for positions that the index does not have.
func (p *Partition) scan(o ident.Offset, found func(queue.Batch) bool) (ident.Offset, bool) {
	base, ok := p.segments.base(o)
	if !ok {
		return o, o < p.segments.end() // between files: the later read reports the damage
	}
	hit := false
	at, err := p.segments.headers(base, p.segments.end(), func(b queue.Batch) bool {
		hit = found(b)
		return !hit
	})
	if err != nil {
		return at, true // the later read reports the damage
	}
	return at, hit
}

// lastBefore finds the header of the batch in the segments that ends at end.
func (p *Partition) lastBefore(end ident.Offset) (queue.Batch, bool) {
	var head queue.Batch
	visit := func(b queue.Batch) bool {
		head = b
		return b.End.Offset < end
	}
	if r, ok := p.index.AtOffset(end - 1); ok && r.End().Offset == end {
		_, _ = p.segments.headers(r.Offset, end, visit)
		if head.End.Offset == end {
			return head, true
		}
	}
	if base, ok := p.segments.base(end - 1); ok {
		_, _ = p.segments.headers(base, end, visit)
	}
	return head, head.End.Offset == end
}
