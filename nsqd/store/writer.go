package store

import (
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// gatherBytes is the number of bytes of a partition that collect before they are written to the segments.
	gatherBytes = 64 << 10
	// gatherWorks is the number of submissions after which the writer processes them even if they
	// are small. Waking it for each submission cost a thread switch per group.
	gatherWorks = 256
	// compactBytes and compactDeltas: deltas are compacted when they exceed the full version by this size, or reach
	// this number.
	compactBytes  = 256 << 10
	compactDeltas = 4096
)

// writer owns the goroutine that writes durable submissions to the segments.
type writer struct {
	s       *Store
	scratch []*pendingSubmit // belongs to the journal's goroutine
	mu      struct {
		sync.Mutex
		queue    []*pendingSubmit
		bytes    int          // bytes of the batches in queue
		urgent   bool         // a batch in queue begins a file, or a restart empties the log, so that earlier files must be removed
		mark     journal.Mark // mark of the newest submission in queue or applied
		begun    bool         // the journal has its first file, which no checkpoint records yet
		requests []request
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

// add queues durable submissions; mark is the journal's mark after them. It wakes the goroutine only when enough has
// collected, because the memory tail and the journal have everything until then.
func (w *writer) add(works []*pendingSubmit, mark journal.Mark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.queue = append(w.mu.queue, works...)
	for _, work := range works {
		for i := range work.batches {
			w.mu.bytes += len(work.batches[i].Bytes)
			w.mu.urgent = w.mu.urgent || work.batches[i].BeginsFile()
		}
		for i := range work.writes {
			w.mu.urgent = w.mu.urgent || work.writes[i].write.Kind == queue.WriteRestart
		}
	}
	w.mu.begun = w.mu.begun || mark.Files > 0 && w.mu.mark.Files == 0
	w.mu.mark = mark
	if w.gatheredLocked() {
		w.wake.Signal()
	}
}

func (w *writer) gatheredLocked() bool {
	return w.mu.bytes >= gatherBytes || len(w.mu.queue) >= gatherWorks || w.mu.urgent || w.mu.begun
}

// request asks the writer to write and sync the durable batches of a partition; nil requests a checkpoint.
type request struct {
	p      *Partition
	answer chan error
}

// ask sends a request and waits for the answer.
func (w *writer) ask(p *Partition) error {
	w.s.journal.Barrier() // the writer receives a group only after the sinks were called for it
	answer := make(chan error, 1)
	w.mu.Lock()
	if w.mu.closing {
		w.mu.Unlock()
		return errClosed
	}
	w.mu.requests = append(w.mu.requests, request{p, answer})
	w.wake.Signal()
	w.mu.Unlock()
	return <-answer
}

func forCheckpoint(r request) bool { return r.p == nil }

// afterFlush flushes a partition unless it is trashed, and calls then while its files are locked.
func (p *Partition) afterFlush(then func() error) error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	return then()
}

// close ends the goroutine after a last checkpoint.
func (w *writer) close() error {
	w.mu.Lock()
	w.mu.closing = true
	w.wake.Signal()
	w.mu.Unlock()
	w.done.Wait()
	return w.s.Err()
}

// awaited reports whether a caller has requested a checkpoint or the close since run last took the requests.
func (w *writer) awaited() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.closing || slices.ContainsFunc(w.mu.requests, forCheckpoint)
}

// run applies submissions and makes checkpoints until close. Started by Store.Open, waited for by close.
func (w *writer) run() {
	defer w.done.Done()
	var spare []*pendingSubmit
	for {
		w.mu.Lock()
		for !w.gatheredLocked() && len(w.mu.requests) == 0 && !w.mu.closing {
			w.wake.Wait()
		}
		works, mark, begun, requests, closing := w.mu.queue, w.mu.mark, w.mu.begun, w.mu.requests, w.mu.closing
		w.mu.queue, w.mu.bytes, w.mu.urgent, w.mu.begun, w.mu.requests = spare[:0], 0, false, false, nil
		w.mu.Unlock()
		err := w.s.Err()
		for _, work := range works {
			if err == nil {
				err = w.apply(work)
			}
			w.s.recycle(work)
		}
		for _, r := range requests {
			if forCheckpoint(r) {
				continue
			}
			if err == nil {
				err = r.p.afterFlush(r.p.segments.sync)
			}
			r.answer <- err
		}
		if err == nil {
			err = w.s.trimTails()
		}
		clear(works)
		spare = works
		_, written := w.s.journal.Written()
		due := begun || written-w.written >= w.s.o.CheckpointBytes
		if asked := slices.ContainsFunc(requests, forCheckpoint); err == nil && (due || closing || asked) {
			err = w.checkpoint(mark, closing, closing || asked)
		}
		if err != nil && w.s.Err() == nil {
			w.s.fail(err)
		}
		for _, r := range requests {
			if forCheckpoint(r) {
				r.answer <- err
			}
		}
		if closing {
			return
		}
	}
}

func (w *writer) apply(work *pendingSubmit) error {
	for i := range work.writes {
		o := &work.writes[i]
		if err := o.p.apply(o, work.batches[o.from:o.to]); err != nil {
			return err
		}
	}
	return nil
}

// apply applies one durable write to the durable state and the segments.
func (p *Partition) apply(o *pendingWrite, batches []queue.Batch) error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return nil
	}
	d := &p.durable
	d.dirty = true
	w := &o.write
	d.note(w)
	switch w.Kind {
	case queue.WriteTruncate, queue.WriteReset:
		if d.cut(w.At, w.PrevCRC) && p.segments.end() > w.At.Offset {
			if err := p.segments.truncate(w.At.Offset); err != nil {
				return err
			}
		}
	case queue.WriteRestart:
		d.restart(w.At, w.PrevCRC)
		d.identities = queue.IdentityMark{}
		if err := p.segments.reset(); err != nil {
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

// note records the part of a write that is not in the segments.
func (d *durableState) note(w *queue.Write) {
	switch w.Kind {
	case queue.WriteState:
		d.history, d.historyDirty = addVersion(d.history, w.State), true
	case queue.WriteCommitted:
		d.committed = w.At
	case queue.WriteIdentities:
		d.identities = w.Identities
	default:
		d.epoch = max(d.epoch, w.Epoch)
	}
}

func (d *durableState) add(b queue.Batch) {
	d.pending = append(d.pending, b)
	d.pendingBytes += len(b.Bytes)
	d.end, d.lastCRC, d.lastTimeNS = b.End, b.CRC, b.Time
	d.epoch = max(d.epoch, b.Epoch)
}

// cut drops the pending batches at or above a position, unless the log ends before it. The record carries the checksum
// with which the log then ends, so that the cut does not depend on a read.
func (d *durableState) cut(at ident.Position, prevCRC uint32) bool {
	if at.Offset >= d.end.Offset {
		return false
	}
	for n := len(d.pending); n > 0 && d.pending[n-1].At.Offset >= at.Offset; n-- {
		d.pendingBytes -= len(d.pending[n-1].Bytes)
		d.pending = d.pending[:n-1]
	}
	d.end, d.lastCRC, d.identities = at, prevCRC, d.identities.Cut(at.Offset)
	return true
}

func (d *durableState) restart(at ident.Position, prevCRC uint32) {
	d.pending, d.pendingBytes = nil, 0 // release the array, because thousands of partitions would otherwise keep one each
	d.start, d.end, d.committed = at, at, at
	d.lastCRC, d.startCRC = prevCRC, prevCRC
}

// flush writes the pending batches, and the commit log's records if enough have collected, without a sync.
func (p *Partition) flush() error {
	d := &p.durable
	if len(d.pending) == 0 {
		return nil
	}
	if err := p.segments.write(d.pending); err != nil {
		return err
	}
	d.pending, d.pendingBytes = nil, 0
	p.wroteUpTo(d.end.Offset, d.cuts)
	if p.index.Unwritten() < p.store.o.IndexRecords {
		return nil
	}
	return p.index.Flush(d.end.Offset)
}

// checkpoint makes everything up to mark durable outside the journal. clean: the store is closing, and nothing follows
// the checkpoint. awaited: a caller waits for it.
func (w *writer) checkpoint(mark journal.Mark, clean, awaited bool) error {
	s := w.s
	began := time.Now()
	_, written := s.journal.Written()
	c := &checkpoint{
		mark: mark, bootID: s.o.BootID, noSync: s.noSync.Load(), clean: clean,
		entries: map[uint64]entry{}, versions: map[uint64]version{},
	}
	states, err := w.syncPartitions(written, awaited)
	if err != nil {
		return err
	}
	var order []uint64
	for _, p := range states {
		if p.gone {
			continue
		}
		c.entries[p.slot] = p.entry
		if p.channels != (version{}) {
			c.versions[p.slot] = p.channels
		}
		order = append(order, p.slot)
	}
	slices.Sort(order)
	now := s.journal.Mark()
	c.mark.Synced = max(c.mark.Group, now.Synced)
	c.mark.Files, c.mark.FileBytes = now.Files, now.FileBytes
	if err := writeFile(s.o.FS, s.checkpointName(), c.encode(order)); err != nil {
		return err
	}
	w.written = written
	if s.o.Checkpointed != nil {
		s.o.Checkpointed(time.Since(began))
	}
	return s.journal.Release(mark.Group)
}

// compact merges a long history into one full version.
func (s *Store) compact(p *Partition, history []queue.StateVersion) []queue.StateVersion {
	if s.o.Compact == nil || len(history) < 2 || !history[0].Full {
		return history
	}
	bytes := -2 * len(history[0].Delta)
	for _, c := range history {
		bytes += len(c.Delta)
	}
	if bytes < compactBytes && len(history) < compactDeltas {
		return history
	}
	full, ok := s.o.Compact(p.topic, p.id, history)
	if !ok {
		return history
	}
	last := history[len(history)-1]
	return []queue.StateVersion{{Epoch: last.Epoch, N: last.N, Full: true, Delta: full}}
}
