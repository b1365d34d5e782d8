package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// recovery rebuilds one partition: what the segments hold below the lowest cut
// since the checkpoint, and after it what the journal holds.
type recovery struct {
	p       *Partition
	cut     ident.Position // the segments are good up to here
	below   link           // the batch that ends at cut
	keep    bool           // false: a restart, nothing in the segments counts
	touched bool           // the journal says something about the partition
	batches []queue.Batch  // from cut on, without gaps
	broken  error          // the first break of the chain; nothing is taken after it
	overlap bool           // the checkpoint is lost: the journal begins before the end of the segments

	doubtful bool // the folder has lost what the journal does not hold
}

// link is what the chain continues from.
type link struct {
	crc  uint32
	time int64 // not less than that of the newest batch
}

func newRecovery(p *Partition, e entry) *recovery {
	p.durable.entry = e
	return &recovery{p: p, cut: e.end, keep: true, below: link{crc: e.lastCRC, time: e.lastTimeNS}}
}

// apply takes one record of the journal.
func (r *recovery) apply(rec Record) error {
	d := &r.p.durable
	r.touched = true
	switch rec.Kind {
	case queue.WriteConfirm:
		rec.Confirm.Delta = bytes.Clone(rec.Confirm.Delta) // it would hold a whole journal file in memory
		d.history, d.historyDirty = addConfirm(d.history, rec.Confirm), true
		return nil
	case queue.WriteCommitted:
		d.committed = rec.At
		return nil
	}
	d.epoch = max(d.epoch, rec.Epoch)
	if r.broken != nil {
		return nil
	}
	switch rec.Kind {
	case queue.WriteTruncate, queue.WriteReset:
		r.truncate(rec.At, rec.PrevCRC)
	case queue.WriteRestart:
		r.restart(rec.At, rec.PrevCRC)
	}
	return r.append(rec.Batches)
}

func (r *recovery) restart(at ident.Position, prevCRC uint32) {
	r.keep, r.cut, r.batches, r.overlap = false, at, nil, false
	r.below = link{crc: prevCRC}
	d := &r.p.durable
	d.start, d.end, d.committed, d.startCRC = at, at, at, prevCRC
}

func (r *recovery) truncate(at ident.Position, prevCRC uint32) {
	d := &r.p.durable
	if at.Offset >= d.end.Offset {
		return
	}
	time := r.last().time
	n := len(r.batches)
	for n > 0 && r.batches[n-1].At.Offset >= at.Offset {
		n--
	}
	r.batches = r.batches[:n]
	d.end = at
	if at.Offset < r.cut.Offset {
		r.cut, r.below = at, link{crc: prevCRC, time: time}
	}
}

// last is the end of the chain so far.
func (r *recovery) last() link {
	if n := len(r.batches); n > 0 {
		return link{crc: r.batches[n-1].CRC, time: r.batches[n-1].Time}
	}
	return r.below
}

// append takes the batches of a record as long as the chain holds.
func (r *recovery) append(b []byte) error {
	d := &r.p.durable
	for len(b) > 0 {
		batch, n, err := queue.Decode(b)
		if err != nil {
			return fmt.Errorf("store: a batch in the journal: %w", err) // the group's checksum held: not decay
		}
		if r.overlap && !r.meet(batch) {
			b = b[n:]
			continue
		}
		if batch.At.Offset > d.end.Offset {
			r.bridge(batch)
		}
		if batch.At != d.end || batch.PrevCRC != r.last().crc {
			r.broken = fmt.Errorf("%w: the chain breaks at offset %d: a batch for offset %d follows", ErrCorrupt, d.end.Offset, batch.At.Offset)
			return nil
		}
		r.batches = append(r.batches, batch)
		d.end, d.epoch = batch.End, max(d.epoch, batch.Epoch)
		b = b[n:]
	}
	return nil
}

// bridge takes from the segments what the journal lost before a batch, if the chain
// of checksums proves it: it begins with what is known and ends with what the batch
// names.
func (r *recovery) bridge(to queue.Batch) {
	d := &r.p.durable
	if !r.keep || r.p.segments.End() < to.At.Offset { // after a restart nothing there counts
		return
	}
	at, last := d.end, r.last()
	var held []queue.Batch
	for at.Offset < to.At.Offset {
		batches, err := r.p.segments.ReadAt(at.Offset, to.At.Offset, writtenBytes)
		if err != nil || len(batches) == 0 {
			return
		}
		for _, b := range batches {
			if b.At != at || b.PrevCRC != last.crc {
				return
			}
			at, last = b.End, link{crc: b.CRC, time: b.Time}
			held = append(held, b)
		}
	}
	if at != to.At || last.crc != to.PrevCRC {
		return
	}
	r.batches = append(r.batches, held...)
	d.end = at
}

// writtenBytes is how much of the segments bridge reads at once.
const writtenBytes = 1 << 20

// meet cuts the log to the first batch of the journal that lies within it: from
// there on the journal has everything. One above the end was cut again before the
// segments were synced. Without any segment the first batch is the beginning.
func (r *recovery) meet(b queue.Batch) bool {
	if _, ok := r.p.segments.Start(); !ok {
		r.restart(b.At, b.PrevCRC)
		return true
	}
	d := &r.p.durable
	if b.At.Offset > d.end.Offset {
		return false
	}
	r.overlap = false
	if b.At.Offset <= d.start.Offset { // retention went on after the batch was written, or the file is empty
		d.start, d.startCRC = b.At, b.PrevCRC
	}
	// Not what lies there, but the journal says what comes before the batch: the
	// segments may have been cut since, and written anew, or their file is empty.
	r.cut, r.below, d.end = b.At, link{crc: b.PrevCRC, time: r.below.time}, b.At
	return true
}

// finish writes the partition anew and judges it: r.broken then says which
// acknowledged bytes are missing or doubtful.
func (r *recovery) finish() error {
	p, d := r.p, &r.p.durable
	if !r.touched && p.segments.End() == r.cut.Offset {
		r.moveStart()
		r.rebuildIndex() // nothing happened since the checkpoint synced it
		return nil
	}
	d.dirty = true
	if r.keep {
		r.checkSegments()
	}
	if err := r.cutSegments(); err != nil {
		return err
	}
	if err := p.segments.Write(r.batches); err != nil {
		return err
	}
	if d.committed.Offset > d.end.Offset {
		d.committed = d.end
	}
	last := r.last()
	d.lastCRC, d.lastTimeNS = last.crc, last.time
	r.moveStart()
	r.rebuildIndex()
	return nil
}

// cutSegments lets the segments end at the cut, or be none.
func (r *recovery) cutSegments() error {
	segments, cut := r.p.segments, r.cut.Offset
	if !r.keep {
		return segments.Reset()
	}
	if start, ok := segments.Start(); ok && start > cut { // retention took what lies before the cut
		return segments.BeginAt(cut)
	}
	if err := segments.Truncate(cut); err != nil || segments.End() >= cut {
		return err
	}
	return segments.Reset() // only what lies before the start was left
}

// moveStart follows a retention that went on after the checkpoint.
func (r *recovery) moveStart() {
	p, d := r.p, &r.p.durable
	if o, ok := p.segments.Start(); !ok || o > d.start.Offset {
		d.start, d.startCRC = p.firstOnDisk()
	}
}

// checkSegments compares the segments at the cut with what follows. A header
// that cannot be read proves nothing and cuts nothing.
func (r *recovery) checkSegments() {
	p, d := r.p, &r.p.durable
	if end := max(p.segments.End(), d.start.Offset); end < r.cut.Offset {
		r.broken = fmt.Errorf("%w: the segments end at offset %d, %d was acknowledged", ErrCorrupt, end, r.cut.Offset)
		r.batches = nil
		r.cut, r.below = scanChain(p)
		d.end = r.cut
		return
	}
	head, ok := p.lastBefore(r.cut.Offset)
	if !ok || r.cut.Offset == d.start.Offset {
		return
	}
	if head.CRC != r.below.crc {
		r.broken = fmt.Errorf("%w: the segments' batch before offset %d has checksum %08x, not %08x", ErrCorrupt, r.cut.Offset, head.CRC, r.below.crc)
		r.batches, d.end, r.below.crc = nil, r.cut, head.CRC
	}
}

// scanChain finds where the segments' batches end when nothing else says it: the
// headers of the last file are followed as far as they continue each other.
func scanChain(p *Partition) (end ident.Position, last link) {
	bases, found := p.segments.Bases(), false
	for i := len(bases) - 1; i >= 0; i-- {
		_, _ = p.segments.Headers(bases[i], p.segments.End(), func(b queue.Batch) bool {
			if found && (b.PrevCRC != last.crc || b.At != end) {
				return false
			}
			end, last, found = b.End, link{crc: b.CRC, time: b.Time}, true
			return true
		})
		if found {
			return end, last
		}
	}
	return p.durable.start, link{crc: p.durable.startCRC}
}

// rebuildIndex makes the commit log agree with the log: it keeps the records up
// to the newest that names the very batch in the segments (equal checksums mean
// equal prefixes), and reads the rest from the headers. A checkpoint that was
// interrupted may have left sectors of the index as a cut made them that was lost
// itself, among others. So the records above the committed end, below which
// nothing is ever cut, must also continue each other.
func (r *recovery) rebuildIndex() {
	p, d := r.p, &r.p.durable
	p.index.CutWhereBroken(d.committed.Offset)
	p.index.Truncate(r.cut.Offset)
	if start := p.index.Start(); start.Offset > d.start.Offset || !r.keep || p.index.End().Offset < d.start.Offset {
		p.index.Restart(d.start)
	}
	for step := ident.Offset(1); ; step *= 2 {
		last, ok := p.index.Last()
		if !ok || last.End().Offset <= d.start.Offset {
			break
		}
		if r.agrees(last) {
			p.index.Truncate(last.End().Offset) // not the cut, if what led there is gone
			break
		}
		if r2, ok := p.index.AtOffset(max(d.start.Offset, last.Offset-step)); ok {
			last = r2
		}
		p.index.Truncate(last.Offset)
	}
	if last, ok := p.index.Last(); !ok || last.End() != p.index.End() || last.End().Offset <= d.start.Offset {
		p.index.Restart(d.start)
	} else if err := p.index.TrimHead(d.start); err != nil {
		p.index.Restart(d.start)
	}
	for at := p.index.End().Offset; at < d.end.Offset; {
		next, err := p.segments.Headers(at, d.end.Offset, func(b queue.Batch) bool {
			p.index.Append(indexRecord(b))
			d.dirty = true
			return true
		})
		if err == nil {
			break
		}
		if at = nextBase(p, next); at <= next {
			break
		}
	}
}

// nextBase is where the segment after offset o begins, 0 if o is in the last.
func nextBase(p *Partition, o ident.Offset) ident.Offset {
	for _, base := range p.segments.Bases() {
		if base > o {
			return base
		}
	}
	return 0
}

func (r *recovery) agrees(last commitlog.Record) bool {
	end := last.End().Offset
	if end == r.cut.Offset {
		return last.CRC == r.below.crc
	}
	agrees := false
	_, _ = r.p.segments.Headers(last.Offset, end, func(b queue.Batch) bool {
		agrees = b.CRC == last.CRC && b.End == last.End()
		return false
	})
	return agrees
}

func indexRecord(b queue.Batch) commitlog.Record {
	return commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(b.End.Offset - b.At.Offset), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: b.Time / 1e6,
	}
}

// recentBytes bounds what start-up reads to find the newest puts.
const recentBytes = 256 << 20

// restore fills what the replica's machine is to know.
func (p *Partition) restore() {
	d := &p.durable
	d.pending = nil
	p.mu.confirms = d.history
	p.mu.restored = queue.Restored{
		Epoch: d.epoch, End: d.end, LastCRC: d.lastCRC, KnownCommitted: d.committed,
		Epochs: p.index.Epochs(), Recent: p.recent(), LastTimeNS: d.lastTimeNS,
	}
	if n := len(d.history); n > 0 {
		p.mu.restored.Confirm = d.history[n-1]
	}
	p.mu.first, p.mu.end, p.mu.written = d.start, d.end, d.end.Offset
}

// recent gathers the request ids of the newest puts.
func (p *Partition) recent() []queue.RecentPut {
	d := &p.durable
	from := max(d.start.Offset, d.end.Offset-recentBytes)
	if r, ok := p.index.AtTime((d.lastTimeNS - queue.RecentNS) / 1e6); ok {
		from = max(from, r.Offset)
	}
	from, ok := p.borderAt(from)
	if !ok || from >= d.end.Offset {
		return nil
	}
	var puts []queue.RecentPut
	// Damage ends the list early: a repeat is then not recognised.
	_, _ = p.segments.Headers(from, d.end.Offset, func(b queue.Batch) bool {
		if !b.Request.IsZero() {
			puts = append(puts, queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End, TimeNS: b.Time})
		}
		return true
	})
	return newestOfEach(puts)
}

// newestOfEach keeps the newest puts of each producer, in their order.
func newestOfEach(puts []queue.RecentPut) []queue.RecentPut {
	count, kept := map[uint64]int{}, []queue.RecentPut(nil)
	for _, p := range slices.Backward(puts) {
		if count[p.Request.Producer]++; count[p.Request.Producer] <= queue.RecentPuts {
			kept = append(kept, p)
		}
	}
	slices.Reverse(kept)
	return kept
}

func readCheckpoint(fs vfs.FS, name string) (*checkpoint, error) {
	b, err := readFile(fs, name)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := decodeCheckpoint(b)
	if errors.Is(err, ErrCorrupt) {
		return nil, nil // as good as lost; the caller says so
	}
	return c, err
}
