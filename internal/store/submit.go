package store

import (
	"github.com/lockstepmq/lockstep/internal/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// work is one submission on its way: journal, sink, segments. Works are reused;
// nothing in one aliases the caller's slices, which the next Step overwrites.
type work struct {
	sink    Sink
	token   uint64
	n       uint64 // its number in the journal
	ops     []op
	batches []queue.Batch
}

// op is one write of a work.
type op struct {
	p     *Partition
	write queue.Write // Batches empty: they are work.batches[from:to]
	from  int
	to    int
	cuts  uint64 // Partition.mu.cuts after the write
}

// encoder is the journal's view of a submission.
type encoder struct{ subs []Submission }

// AppendTo implements journal.Appender.
func (e *encoder) AppendTo(b []byte) []byte {
	for i := range e.subs {
		for j := range e.subs[i].Writes {
			b = appendRecord(b, e.subs[i].Partition.slot, &e.subs[i].Writes[j])
		}
	}
	return b
}

// Submit writes. It never blocks on a sync and keeps the order of calls;
// sink.Synced(token) is called exactly once, perhaps before Submit returns, when
// everything submitted so far is durable, or with the error that stopped the
// store. Batches are visible to readers at once. The slices of subs may be used
// again on return; the batches' bytes may not be changed ever.
//
// Batches must continue at the end of their partition: anything else is a
// programmer's error and panics.
func (s *Store) Submit(subs []Submission, sink Sink, token uint64) {
	if !s.submit(subs, sink, token) {
		sink.Synced(token, ErrClosed)
		return
	}
	s.journal.Flush()
}

func (s *Store) submit(subs []Submission, sink Sink, token uint64) bool {
	w := s.works.Get().(*work)
	w.sink, w.token = sink, token
	s.order.Lock()
	defer s.order.Unlock()
	for i := range subs {
		for j := range subs[i].Writes {
			w.add(subs[i].Partition, &subs[i].Writes[j])
		}
	}
	s.encoder.subs = subs
	s.mu.Lock() // held over the journal's: it may answer before we have noted the work
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	w.n = s.journal.Submit(&s.encoder)
	s.mu.waiting = append(s.mu.waiting, w)
	s.encoder.subs = nil
	return true
}

func (w *work) add(p *Partition, write *queue.Write) {
	o := op{p: p, write: *write, from: len(w.batches), cuts: p.submitted(write)}
	w.batches = append(w.batches, write.Batches...)
	o.to = len(w.batches)
	o.write.Batches = nil
	w.ops = append(w.ops, o)
}

// synced is called by the journal after each group, once at a time.
func (s *Store) synced(d journal.Durable, err error) {
	s.mu.Lock()
	n := 0
	for n < len(s.mu.waiting) && s.mu.waiting[n].n <= d.N {
		n++
	}
	done := append(s.writer.scratch[:0], s.mu.waiting[:n]...)
	rest := copy(s.mu.waiting, s.mu.waiting[n:])
	clear(s.mu.waiting[rest:])
	s.mu.waiting = s.mu.waiting[:rest]
	s.mu.Unlock()
	s.writer.scratch = done
	if err != nil {
		s.fail(err)
	}
	for _, w := range done {
		w.sink.Synced(w.token, err)
	}
	if err == nil {
		s.writer.add(done, journal.Mark{Group: d.Group, CRC: d.CRC, Files: d.Files})
	}
	clear(done)
}

// recycle empties a work for the next submission.
func (s *Store) recycle(w *work) {
	clear(w.ops)
	clear(w.batches)
	*w = work{ops: w.ops[:0], batches: w.batches[:0]}
	s.works.Put(w)
}
