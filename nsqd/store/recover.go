package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// recovery rebuilds one partition: the segments below the lowest cut since the checkpoint, above it the journal.
type recovery struct {
	p         *Partition
	cut       ident.Position // the segments are valid up to here; the pending batches follow
	cutCRC    uint32         // checksum of the batch that ends at cut
	restarted bool           // the log was restarted, and the segments are ignored
	touched   bool           // the journal has a record of the partition
	broken    error          // the first break in the chain; later batches are not applied
	overlap   bool           // the checkpoint is lost, and the journal begins before the end of the segments
	wasCut    bool           // the journal has a cut, and the segments may still contain the cut batches

	doubtful bool // the folder has lost data that is not in the journal
}

func newRecovery(p *Partition, e entry) *recovery {
	p.durable.entry = e
	return &recovery{p: p, cut: e.end, cutCRC: e.lastCRC}
}

func (r *recovery) apply(rec Record) error {
	d := &r.p.durable
	r.touched = true
	rec.State.Delta = bytes.Clone(rec.State.Delta) // the original would keep a whole journal file in memory
	d.note(&rec.Write)
	if r.broken != nil {
		return nil
	}
	switch rec.Kind {
	case queue.WriteTruncate, queue.WriteReset:
		r.wasCut = true
		if d.cut(rec.At, rec.PrevCRC) && rec.At.Offset < r.cut.Offset {
			r.cut, r.cutCRC = rec.At, rec.PrevCRC
		}
	case queue.WriteRestart:
		r.wasCut = true
		r.restart(rec.At, rec.PrevCRC)
		d.identities = queue.IdentityMark{}
	}
	return r.append(rec.Encoded)
}

func (r *recovery) restart(at ident.Position, prevCRC uint32) {
	r.restarted, r.overlap = true, false
	r.cut, r.cutCRC = at, prevCRC
	r.p.durable.restart(at, prevCRC)
}

// append appends the batches of a record as long as the chain is intact.
func (r *recovery) append(b []byte) error {
	d := &r.p.durable
	for len(b) > 0 {
		batch, n, err := queue.Decode(b)
		if err != nil {
			return fmt.Errorf("store: a batch in the journal: %w", err) // the group's checksum is correct, so this is not disk corruption
		}
		if r.overlap && !r.cutToJournal(batch) {
			b = b[n:]
			continue
		}
		if batch.At.Offset > d.end.Offset {
			r.fillFromSegments(batch)
		}
		if batch.At != d.end || batch.PrevCRC != d.lastCRC {
			r.broken = fmt.Errorf("%w: the chain breaks at offset %d: a batch for offset %d follows", ErrCorrupt, d.end.Offset, batch.At.Offset)
			return nil
		}
		d.add(batch)
		b = b[n:]
	}
	return nil
}

// fillFromSegments takes batches that the journal has lost before `to` from the segments, if the chain of checksums
// proves them: it begins at the known end and ends with the checksum that `to` names.
func (r *recovery) fillFromSegments(to queue.Batch) {
	d := &r.p.durable
	if r.restarted || r.p.segments.end() < to.At.Offset { // after a restart the segments do not count
		return
	}
	at, crc := d.end, d.lastCRC
	var missing []queue.Batch
	for at.Offset < to.At.Offset {
		batches, err := r.p.segments.readAt(at.Offset, to.At.Offset, writtenBytes)
		if err != nil || len(batches) == 0 {
			return
		}
		for _, b := range batches {
			if b.At != at || b.PrevCRC != crc {
				return
			}
			at, crc = b.End, b.CRC
			missing = append(missing, b)
		}
	}
	if at != to.At || crc != to.PrevCRC {
		return
	}
	for _, b := range missing {
		d.add(b)
	}
}

// adopt takes over batches in the segments beyond the journal's end, as far as the chain of checksums proves them, and
// reports whether there were any. Such batches show that the journal has lost groups, because only what is durable
// there reaches the segments. After a cut adopt takes none: the segments may still contain the cut batches.
func (r *recovery) adopt() bool {
	d := &r.p.durable
	if r.wasCut || r.overlap || r.broken != nil {
		return false
	}
	before := d.end
	for d.end.Offset-before.Offset < adoptBytes {
		batches, err := r.p.segments.readAt(d.end.Offset, r.p.segments.end(), writtenBytes)
		if err != nil || len(batches) == 0 {
			break
		}
		for _, b := range batches {
			if b.At != d.end || b.PrevCRC != d.lastCRC {
				return d.end != before
			}
			d.add(b)
			r.touched = true
		}
	}
	return d.end != before
}

const (
	// writtenBytes is the number of bytes that fillFromSegments and adopt read at once.
	writtenBytes = 1 << 20
	// adoptBytes bounds the memory of adopt.
	adoptBytes = 256 << 20
)

// cutToJournal cuts the log to the first batch of the journal that lies within it. A batch above the end was cut again
// before the segments were synced. If there are no segments, the first batch is the beginning of the log.
func (r *recovery) cutToJournal(b queue.Batch) bool {
	if _, ok := r.p.segments.start(); !ok {
		r.restart(b.At, b.PrevCRC)
		return true
	}
	d := &r.p.durable
	if b.At.Offset > d.end.Offset {
		return false
	}
	r.overlap = false
	if b.At.Offset <= d.start.Offset { // retention ran after the batch was written, or the file is empty
		d.start, d.startCRC = b.At, b.PrevCRC
	}
	// The checksum comes from the journal's batch, not from the segments: they may have been cut
	// and written again since, or their file is empty.
	r.cut, r.cutCRC = b.At, b.PrevCRC
	d.end, d.lastCRC = b.At, b.PrevCRC
	return true
}

// finish writes the partition again and checks it. r.broken is why acknowledged bytes are missing, if any.
func (r *recovery) finish() error {
	p, d := r.p, &r.p.durable
	if r.touched || p.segments.end() != r.cut.Offset { // something changed since the checkpoint synced it
		d.dirty = true
		if !r.restarted {
			r.checkSegments()
		}
		if err := r.cutSegments(); err != nil {
			return err
		}
		if err := p.segments.write(d.pending); err != nil {
			return err
		}
		if d.committed.Offset > d.end.Offset {
			d.committed = d.end
		}
	}
	if o, ok := p.segments.start(); !ok || o > d.start.Offset { // retention ran after the checkpoint
		d.start, d.startCRC = p.firstOnDisk()
	}
	r.rebuildIndex()
	return nil
}

// cutSegments cuts the segments at the cut, or removes them all.
func (r *recovery) cutSegments() error {
	segments, cut := r.p.segments, r.cut.Offset
	if r.restarted {
		return segments.reset()
	}
	if start, ok := segments.start(); ok && start > cut { // retention has removed everything before the cut
		return segments.beginAt(cut)
	}
	if err := segments.truncate(cut); err != nil || segments.end() >= cut {
		return err
	}
	return segments.reset() // only batches before the start were left
}

// checkSegments compares the segments at the cut with the chain. An unreadable header proves nothing.
func (r *recovery) checkSegments() {
	p, d := r.p, &r.p.durable
	if end := max(p.segments.end(), d.start.Offset); end < r.cut.Offset {
		r.broken = fmt.Errorf("%w: the segments end at offset %d, %d was acknowledged", ErrCorrupt, end, r.cut.Offset)
		last := scanChain(p)
		r.cut, r.cutCRC = last.End, last.CRC
		d.pending, d.end, d.lastCRC, d.lastTimeNS = nil, last.End, last.CRC, last.Time
		return
	}
	head, ok := p.lastBefore(r.cut.Offset)
	if !ok || r.cut.Offset == d.start.Offset {
		return
	}
	if head.CRC != r.cutCRC {
		r.broken = fmt.Errorf("%w: the segments' batch before offset %d has checksum %08x, not %08x", ErrCorrupt, r.cut.Offset, head.CRC, r.cutCRC)
		d.pending, d.end, d.lastCRC, r.cutCRC = nil, r.cut, head.CRC, head.CRC
	}
}

// scanChain finds the last batch of the segments from the headers of the last file, when no other record names it.
func scanChain(p *Partition) (last queue.Batch) {
	for _, base := range slices.Backward(p.segments.bases()) {
		found := false
		_, _ = p.segments.headers(base, p.segments.end(), func(b queue.Batch) bool {
			if found && (b.PrevCRC != last.CRC || b.At != last.End) {
				return false
			}
			last, found = b, true
			return true
		})
		if found {
			return last
		}
	}
	return queue.Batch{End: p.durable.start, CRC: p.durable.startCRC}
}

// rebuildIndex keeps the records of the commit log up to the newest one that matches the batch in the segments (equal
// checksums mean equal prefixes), and rebuilds the rest from the headers. An interrupted checkpoint may have left
// sectors that were written after a cut, although the cut itself was lost. So records above the committed end must also
// continue each other.
func (r *recovery) rebuildIndex() {
	p, d := r.p, &r.p.durable
	p.index.TruncateAtGap(d.committed.Offset)
	p.index.Truncate(r.cut.Offset)
	if start := p.index.Start(); start.Offset > d.start.Offset || r.restarted || p.index.End().Offset < d.start.Offset {
		p.index.Restart(d.start)
	}
	for step := ident.Offset(1); ; step *= 2 {
		last, ok := p.index.Last()
		if !ok || last.End().Offset <= d.start.Offset {
			break
		}
		if r.agrees(last) {
			p.index.Truncate(last.End().Offset) // may be below the cut if records are lost
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
		next, err := p.segments.headers(at, d.end.Offset, func(b queue.Batch) bool {
			p.index.Append(b.Record())
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

// nextBase is the beginning of the segment after offset o, 0 if o is in the last one.
func nextBase(p *Partition, o ident.Offset) ident.Offset {
	for _, base := range p.segments.bases() {
		if base > o {
			return base
		}
	}
	return 0
}

func (r *recovery) agrees(last commitlog.Record) bool {
	end := last.End().Offset
	if end == r.cut.Offset {
		return last.CRC == r.cutCRC
	}
	agrees := false
	_, _ = r.p.segments.headers(last.Offset, end, func(b queue.Batch) bool {
		agrees = b.CRC == last.CRC && b.End == last.End()
		return false
	})
	return agrees
}

// recentBytes bounds the bytes that start-up reads to find the newest puts.
const recentBytes = 256 << 20

// restore sets the state that the replica's machine starts from, with at least `puts` recent puts of any time.
func (p *Partition) restore(puts int) {
	d := &p.durable
	d.pending, d.pendingBytes = nil, 0
	p.mu.states = d.history
	p.mu.restored = queue.Restored{
		Epoch: d.epoch, End: d.end, LastCRC: d.lastCRC, KnownCommitted: d.committed,
		Epochs: p.index.Epochs(), Recent: p.recentPuts(puts), LastTimeNS: d.lastTimeNS,
		Identities: d.identities,
	}
	if n := len(d.history); n > 0 {
		p.mu.restored.State = d.history[n-1]
	}
	p.mu.first, p.mu.end, p.mu.written = d.start, d.end, d.end.Offset
}

const (
	// recentTotal bounds the puts of any time that start-up collects, of all partitions together.
	recentTotal = 4 << 20
	// recentLeast is the number of such puts that each partition may collect in any case.
	recentLeast = 256
)

// recentPuts collects the request ids of the puts that edges may retry, and of at least `any` puts.
func (p *Partition) recentPuts(any int) []queue.RecentPut {
	d := &p.durable
	from := min(d.end.Offset, p.putSince(p.store.o.RepeatFor))
	if r, ok := p.index.Newest(any); ok {
		from = min(from, r.Offset)
	}
	from = max(from, d.start.Offset, d.end.Offset-recentBytes)
	from, ok := p.boundaryAt(from)
	if !ok || from >= d.end.Offset {
		return nil
	}
	var puts []queue.RecentPut
	// Damage ends the list early; repeats of the remaining puts are then not recognised.
	_, _ = p.segments.headers(from, d.end.Offset, func(b queue.Batch) bool {
		if !b.Request.IsZero() {
			puts = append(puts, queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End})
		}
		return true
	})
	return newestOfEach(puts)
}

// clockJumps is the number of forward jumps of a wall clock, each of a 30th of the duration, that
// putSince tolerates. Edges retry for at most a third of RepeatFor.
const clockJumps = 30

// putSince returns the offset from which the log covers at least this duration, or its start. The times in the batches
// are wall clocks, which may jump ahead, so adjacent batches count as at most a 30th of the duration apart.
func (p *Partition) putSince(duration time.Duration) ident.Offset {
	wantMS, apartMS := duration.Milliseconds(), max(duration.Milliseconds()/clockJumps, 1)
	end, start := p.durable.end.Offset, p.durable.start.Offset
	for n := 4 * clockJumps; ; n *= 4 {
		first, ok := p.index.Newest(n)
		if !ok {
			return end
		}
		var records []commitlog.Record
		whole := p.index.Walk(first.Offset, func(r commitlog.Record) { records = append(records, r) })
		sumMS := int64(0)
		for i := len(records) - 1; i > 0; i-- {
			if sumMS += min(records[i].TimeMS-records[i-1].TimeMS, apartMS); sumMS > wantMS {
				return records[i].Offset
			}
		}
		if !whole || len(records) < n || first.Offset <= max(start, end-recentBytes) {
			return first.Offset
		}
	}
}

// newestOfEach returns the newest puts of each producer, in their order.
func newestOfEach(puts []queue.RecentPut) (newest []queue.RecentPut) {
	count := map[uint64]int{}
	for _, p := range slices.Backward(puts) {
		if count[p.Request.Producer]++; count[p.Request.Producer] <= queue.RecentPuts {
			newest = append(newest, p)
		}
	}
	slices.Reverse(newest)
	return newest
}

func readCheckpoint(fs vfs.FS, name string) (*checkpoint, error) {
	b, err := vfs.ReadFile(fs, name)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, _ := decodeCheckpoint(b) // a damaged checkpoint counts as lost; the caller logs it
	return c, nil
}

// LoadIdentities adds to r, which Restored has returned, the batches whose messages have identities: those
// from the identity mark on. The replica's machine must not run yet.
func (p *Partition) LoadIdentities(r *queue.Restored) {
	if r.Identities == (queue.IdentityMark{}) {
		return // the log has never had messages with identities
	}
	var records []commitlog.Record
	whole := p.index.Walk(max(r.Identities.From, p.Start().Offset), func(x commitlog.Record) {
		if x.Identified {
			records = append(records, x)
		}
	})
	r.IdentitiesLost = !whole
	at := ident.Offset(-1) // read so far
	for _, x := range records {
		if x.Offset < at {
			continue
		}
		batches, err := p.ReadAt(x.Offset, writtenBytes)
		if err != nil || len(batches) == 0 {
			r.IdentitiesLost = true
			continue
		}
		for i := range batches {
			if batches[i].Identified {
				r.Identified = append(r.Identified, identifiedPut(&batches[i]))
			}
			at = batches[i].End.Offset
		}
	}
}

// identified reports whether a message of the log may have an identity.
func (p *Partition) identified() bool {
	some := false
	whole := p.index.Walk(p.durable.start.Offset, func(x commitlog.Record) { some = some || x.Identified })
	return some || !whole
}

func identifiedPut(b *queue.Batch) queue.IdentifiedPut {
	p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
	b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
	return p
}
