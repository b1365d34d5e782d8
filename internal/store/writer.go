package store

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// gatherBytes is how much of a partition gathers before it is written to the
	// segments.
	gatherBytes = 64 << 10
	// gatherWorks is after how many submissions the writer looks at them even if
	// they are small. Waking it for each one cost a thread switch per group.
	gatherWorks = 256
	// foldBytes of deltas above the size of the full version, or foldDeltas of
	// them, are folded at a checkpoint.
	foldBytes  = 256 << 10
	foldDeltas = 4096
)

// writer owns the goroutine that brings durable work into the segments.
type writer struct {
	s       *Store
	scratch []*work // the journal goroutine's
	mu      struct {
		sync.Mutex
		queue    []*work
		bytes    int          // of the batches in queue
		hurry    bool         // one of them begins a file: the one before it is to go
		mark     journal.Mark // of the newest work in queue, or applied
		begun    bool         // the journal has its first file, which no checkpoint knows of
		requests []chan error
		closing  bool
	}
	wake    sync.Cond
	done    sync.WaitGroup
	written int64 // Journal.Written at the newest checkpoint
}

func (w *writer) start(s *Store, mark journal.Mark) {
	w.s, w.mu.mark = s, mark
	w.wake.L = &w.mu
	w.done.Add(1)
	go w.run()
}

// add takes over works that are durable; mark is the journal's place after them.
// The goroutine is woken when it is worth it: the memory tail and the journal
// hold everything until then.
func (w *writer) add(works []*work, mark journal.Mark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.queue = append(w.mu.queue, works...)
	for _, work := range works {
		for i := range work.batches {
			w.mu.bytes += len(work.batches[i].Bytes)
			w.mu.hurry = w.mu.hurry || work.batches[i].BeginsFile()
		}
	}
	w.mu.begun = w.mu.begun || mark.Files > 0 && w.mu.mark.Files == 0
	w.mu.mark = mark
	if w.gatheredLocked() {
		w.wake.Signal()
	}
}

func (w *writer) gatheredLocked() bool {
	return w.mu.bytes >= gatherBytes || len(w.mu.queue) >= gatherWorks || w.mu.hurry || w.mu.begun
}

// request asks for a checkpoint and waits for it.
func (w *writer) request() error {
	answer := make(chan error, 1)
	w.mu.Lock()
	if w.mu.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.mu.requests = append(w.mu.requests, answer)
	w.wake.Signal()
	w.mu.Unlock()
	return <-answer
}

// close lets the goroutine finish with a last checkpoint.
func (w *writer) close() error {
	w.mu.Lock()
	w.mu.closing = true
	w.wake.Signal()
	w.mu.Unlock()
	w.done.Wait()
	if err := w.s.Err(); err != nil {
		return err
	}
	return nil
}

// awaited reports whether somebody waits for a checkpoint since the last look.
func (w *writer) awaited() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.closing || len(w.mu.requests) > 0
}

// run applies and checkpoints until close. Started by Store.Open.
func (w *writer) run() {
	defer w.done.Done()
	var spare []*work
	for {
		w.mu.Lock()
		for !w.gatheredLocked() && len(w.mu.requests) == 0 && !w.mu.closing {
			w.wake.Wait()
		}
		works, mark, begun, requests, closing := w.mu.queue, w.mu.mark, w.mu.begun, w.mu.requests, w.mu.closing
		w.mu.queue, w.mu.bytes, w.mu.hurry, w.mu.begun, w.mu.requests = spare[:0], 0, false, false, nil
		w.mu.Unlock()
		err := w.s.Err()
		for _, work := range works {
			if err == nil {
				err = w.apply(work)
			}
			w.s.recycle(work)
		}
		if err == nil {
			err = w.s.trimTails()
		}
		clear(works)
		spare = works
		due := begun || w.s.journal.Written()-w.written >= w.s.o.CheckpointBytes
		if err == nil && (due || closing || len(requests) > 0) {
			err = w.checkpoint(mark, closing || len(requests) > 0)
		}
		if err != nil && w.s.Err() == nil {
			w.s.fail(err)
		}
		for _, r := range requests {
			r <- err
		}
		if closing {
			return
		}
	}
}

func (w *writer) apply(work *work) error {
	for i := range work.ops {
		o := &work.ops[i]
		if err := o.p.apply(o, work.batches[o.from:o.to]); err != nil {
			return err
		}
	}
	return nil
}

// apply brings one durable write into the state and the segments.
func (p *Partition) apply(o *op, batches []queue.Batch) error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return nil
	}
	d := &p.durable
	d.dirty = true
	w := &o.write
	switch w.Kind {
	case queue.WriteEpoch:
		d.epoch = max(d.epoch, w.Epoch)
	case queue.WriteConfirm:
		d.history, d.historyDirty = addConfirm(d.history, w.Confirm), true
	case queue.WriteCommitted:
		d.committed = w.At
	case queue.WriteTruncate, queue.WriteReset:
		d.epoch = max(d.epoch, w.Epoch)
		if err := p.truncate(w.At, w.PrevCRC); err != nil {
			return err
		}
	case queue.WriteRestart:
		d.epoch = max(d.epoch, w.Epoch)
		if err := p.restart(w.At, w.PrevCRC); err != nil {
			return err
		}
	}
	file := false
	for i := range batches {
		d.add(batches[i])
		file = file || batches[i].BeginsFile()
	}
	d.cuts = o.cuts
	if file || d.pendingBytes >= gatherBytes {
		return p.flush()
	}
	return nil
}

func (d *durableState) add(b queue.Batch) {
	d.pending = append(d.pending, b)
	d.pendingBytes += len(b.Bytes)
	d.end, d.lastCRC, d.lastTimeNS = b.End, b.CRC, b.Time
	d.epoch = max(d.epoch, b.Epoch)
}

// truncate cuts what is pending and the segments. The record says what checksum
// the log then ends with, so that nothing depends on reading it.
func (p *Partition) truncate(at ident.Position, prevCRC uint32) error {
	d := &p.durable
	if at.Offset >= d.end.Offset {
		return nil
	}
	for n := len(d.pending); n > 0 && d.pending[n-1].At.Offset >= at.Offset; n-- {
		d.pendingBytes -= len(d.pending[n-1].Bytes)
		d.pending = d.pending[:n-1]
	}
	d.end, d.lastCRC = at, prevCRC
	if p.segments.End() <= at.Offset {
		return nil
	}
	return p.segments.Truncate(at.Offset)
}

func (p *Partition) restart(at ident.Position, prevCRC uint32) error {
	d := &p.durable
	d.pending, d.pendingBytes = nil, 0 // the array too: thousands of partitions would keep one each
	d.start, d.end, d.committed = at, at, at
	d.lastCRC, d.startCRC = prevCRC, prevCRC
	return p.segments.Reset()
}

// flush writes what is pending to the page cache of the segments and, if enough
// has gathered, of the commit log.
func (p *Partition) flush() error {
	d := &p.durable
	if len(d.pending) == 0 {
		return nil
	}
	if err := p.segments.Write(d.pending); err != nil {
		return err
	}
	d.pending, d.pendingBytes = nil, 0
	p.wroteUpTo(d.end.Offset, d.cuts)
	if p.index.Unwritten() < p.store.o.IndexRecords {
		return nil
	}
	return p.index.Flush(d.end.Offset)
}

// checkpoint makes everything up to mark durable outside the journal. If nobody
// waits for it, it syncs one partition after the other: many at once keep the disk
// from the journal, and so every put waiting. It hurries as far as it must to end
// before the journal has grown by half of what is between two checkpoints.
func (w *writer) checkpoint(mark journal.Mark, waited bool) error {
	s := w.s
	written := s.journal.Written()
	c := &checkpoint{mark: mark, bootID: s.o.BootID, noSync: s.o.NoSync, entries: map[uint64]entry{}}
	partitions := s.Partitions()
	synced := make([]*entry, len(partitions))
	behind := func(done int) bool {
		grown := float64(s.journal.Written()-written) / float64(s.o.CheckpointBytes/2)
		return waited || w.awaited() || grown > float64(done)/float64(len(partitions))
	}
	err := calmly(len(partitions), behind, func(i int) (err error) {
		p := partitions[i]
		if synced[i], err = p.sync(s); err != nil {
			return fmt.Errorf("store: checkpoint of %s/%d: %w", p.topic, p.id.Number, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var order []uint64
	for i, p := range partitions {
		if synced[i] != nil {
			c.entries[p.slot] = *synced[i]
			order = append(order, p.slot)
		}
	}
	slices.Sort(order)
	now := s.journal.Mark()
	c.mark.Synced = max(c.mark.Group, now.Synced)
	c.mark.Files, c.mark.FileBytes = now.Files, now.FileBytes
	if err := writeFile(s.o.FS, s.checkpointName(), c.encode(order)); err != nil {
		return err
	}
	w.written = written
	return s.journal.Release(mark.Group)
}

// sync makes the partition's own files durable and gives its entry, nil if it is
// in the trash.
func (p *Partition) sync(s *Store) (*entry, error) {
	p.files.Lock()
	defer p.files.Unlock()
	d := &p.durable
	if p.trashed {
		return nil, nil
	}
	if d.dirty {
		if err := p.syncFiles(s); err != nil {
			return nil, err
		}
		d.dirty = false
	}
	e := d.entry
	return &e, nil
}

func (p *Partition) syncFiles(s *Store) error {
	d := &p.durable
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.segments.Sync(); err != nil {
		return err
	}
	if err := p.index.Flush(d.end.Offset); err != nil {
		return err
	}
	if err := p.index.Sync(); err != nil {
		return err
	}
	return p.writeSnapshot(s)
}

func (p *Partition) writeSnapshot(s *Store) error {
	d := &p.durable
	if !d.historyDirty {
		return nil
	}
	d.history = s.fold(p, d.history)
	if err := writeFile(s.o.FS, p.dir+"/"+snapshotName, encodeSnapshot(d.history)); err != nil {
		return err
	}
	d.historyDirty = false
	return nil
}

// fold shortens a history that has grown long.
func (s *Store) fold(p *Partition, history []queue.Confirm) []queue.Confirm {
	if s.o.Fold == nil || len(history) < 2 || !history[0].Full {
		return history
	}
	bytes := -2 * len(history[0].Delta)
	for _, c := range history {
		bytes += len(c.Delta)
	}
	if bytes < foldBytes && len(history) < foldDeltas {
		return history
	}
	full, ok := s.o.Fold(p.topic, p.id, history)
	if !ok {
		return history
	}
	last := history[len(history)-1]
	return []queue.Confirm{{Epoch: last.Epoch, N: last.N, Full: true, Delta: full}}
}
