package store

import (
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// pendingSubmit is one submission that is passed to the journal, the sink and the segments. The structs are reused.
// Nothing in one aliases the caller's slices, which the caller's next step overwrites.
type pendingSubmit struct {
	sink    Sink
	token   uint64
	n       uint64 // its number in the journal
	writes  []pendingWrite
	batches []queue.Batch
}

// pendingWrite is one write of a pendingSubmit.
type pendingWrite struct {
	p     *Partition
	write queue.Write // its Batches are empty: they are batches[from:to] of the pendingSubmit
	from  int
	to    int
	cuts  uint64 // Partition.mu.cuts after the write
}

// encoder encodes a submission for the journal.
type encoder struct{ subs []Submission }

// AppendTo encodes the submission (journal.Submit).
func (e *encoder) AppendTo(b []byte) []byte {
	for i := range e.subs {
		for j := range e.subs[i].Writes {
			b = appendRecord(b, e.subs[i].Partition.slot, &e.subs[i].Writes[j])
		}
	}
	return b
}

// Queue submits writes without a disk call, in the order of the calls. Exactly one call of sink.Synced(token) follows,
// perhaps before Queue returns: when all submissions so far are durable, or with the error that stopped the store.
// flush reports that a call of Flush must follow. Readers see the batches at once. The caller may reuse the slices of
// subs on return, but must never change the batches' bytes.
//
// Batches must continue at the end of their partition. Otherwise it panics, because that is a programming error.
func (s *Store) Queue(subs []Submission, sink Sink, token uint64) (flush bool) {
	if !s.queue(subs, sink, token) {
		sink.Synced(token, errClosed)
		return false
	}
	return s.noSync.Load()
}

// Flush writes the queued submissions with Options.NoSync. It waits for the page cache, and therefore may wait for a
// disk that hangs. Synced is called before Flush returns, unless another goroutine writes already.
func (s *Store) Flush() { s.journal.Flush() }

// Wake makes the journal's goroutine write the queued submissions. It does not block.
func (s *Store) Wake() { s.journal.Wake() }

func (s *Store) queue(subs []Submission, sink Sink, token uint64) bool {
	w := s.pendingPool.Get().(*pendingSubmit)
	w.sink, w.token = sink, token
	s.order.Lock()
	defer s.order.Unlock()
	for i := range subs {
		for j := range subs[i].Writes {
			w.add(subs[i].Partition, &subs[i].Writes[j])
		}
	}
	s.encoder.subs = subs
	s.mu.Lock() // held while the journal's lock is taken, because the journal may answer before the append below
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	w.n = s.journal.Submit(&s.encoder)
	s.mu.unsynced = append(s.mu.unsynced, w)
	s.encoder.subs = nil
	return true
}

func (w *pendingSubmit) add(p *Partition, write *queue.Write) {
	o := pendingWrite{p: p, write: *write, from: len(w.batches), cuts: p.submitted(write)}
	w.batches = append(w.batches, write.Batches...)
	o.to = len(w.batches)
	o.write.Batches = nil
	w.writes = append(w.writes, o)
}

// synced receives the completion of each group from the journal, once at a time.
func (s *Store) synced(upTo uint64, mark journal.Mark, err error) {
	s.mu.Lock()
	n := 0
	for n < len(s.mu.unsynced) && s.mu.unsynced[n].n <= upTo {
		n++
	}
	done := append(s.writer.scratch[:0], s.mu.unsynced[:n]...)
	rest := copy(s.mu.unsynced, s.mu.unsynced[n:])
	clear(s.mu.unsynced[rest:])
	s.mu.unsynced = s.mu.unsynced[:rest]
	s.mu.Unlock()
	s.writer.scratch = done
	if err != nil {
		s.fail(err)
	}
	for _, w := range done {
		w.sink.Synced(w.token, err)
	}
	if err == nil {
		s.writer.add(done, mark)
	}
	clear(done)
}

// recycle empties a pendingSubmit for the next submission.
func (s *Store) recycle(w *pendingSubmit) {
	clear(w.writes)
	clear(w.batches)
	*w = pendingSubmit{writes: w.writes[:0], batches: w.batches[:0]}
	s.pendingPool.Put(w)
}
