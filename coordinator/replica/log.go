package replica

import (
	"cmp"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxEpochs bounds the epoch table in memory and on the wire. divergence compares older logs from their end backwards.
const maxEpochs = 256

// log is the end of this replica's log, its durable part, and the newest batches. Only the methods here change it.
type log struct {
	end     ident.Position
	lastCRC uint32 // checksum of the newest batch: the next batch contains it
	timeNS  int64  // of the newest batch: time in a log never decreases
	epochs  []commitlog.EpochEnd

	token   uint64       // the newest token issued
	pending []submission // passed to the journal, not durable yet
	durable submission   // the newest durable submission

	tail tail // of a leader; empty on a follower
}

// submission is the state of the log that becomes durable with its token.
type submission struct {
	token uint64
	atMS  int64 // when the journal got it
	end   ident.Position
	epoch ident.Epoch // promised
	state version     // of the channels
}

func newLog(r queue.Restored, epochs int) log {
	return log{
		end: r.End, lastCRC: r.LastCRC, timeNS: r.LastTimeNS,
		epochs: newest(slices.Clone(r.Epochs), epochs),
		durable: submission{
			end: r.End, epoch: r.Epoch, state: version{r.State.Epoch, r.State.N},
		},
	}
}

// newest keeps the last n epochs of a table.
func newest(epochs []commitlog.EpochEnd, n int) []commitlog.EpochEnd {
	return append(epochs[:0], epochs[max(0, len(epochs)-cmp.Or(n, maxEpochs)):]...)
}

func (l *log) closed(token uint64) bool {
	return len(l.pending) > 0 && l.pending[len(l.pending)-1].token >= token || l.durable.token >= token
}

// closeToken records the state that the submission makes durable, unless an earlier Step has closed it.
func (l *log) closeToken(token uint64, nowMS int64, e ident.Epoch, state version) {
	if !l.closed(token) {
		l.pending = append(l.pending, submission{token: token, atMS: nowMS, end: l.end, epoch: e, state: state})
	}
}

// synced moves the submissions up to token from pending to durable.
func (l *log) synced(token uint64) {
	n := 0
	for n < len(l.pending) && l.pending[n].token <= token {
		l.durable = l.pending[n]
		n++
	}
	l.pending = append(l.pending[:0], l.pending[n:]...)
}

// clamp adjusts the submissions to a truncation to p: bytes that earlier submissions wrote above p will never be
// durable content of this log.
func (l *log) clamp(p ident.Position) {
	l.durable.end = least(l.durable.end, p)
	for i := range l.pending {
		l.pending[i].end = least(l.pending[i].end, p)
	}
}

func (l *log) lastEpoch() ident.Epoch {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].Epoch
	}
	return 0
}

// appendBatch moves the end over a sealed batch. The caller writes it.
func (m *Machine) appendBatch(b queue.Batch) {
	l := &m.log
	l.end, l.lastCRC, l.timeNS = b.End, b.CRC, max(l.timeNS, b.Time)
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == b.Epoch {
		l.epochs[n-1].End = b.End
	} else {
		l.epochs = append(l.epochs, commitlog.EpochEnd{Epoch: b.Epoch, Start: b.At, End: b.End})
		l.epochs = newest(l.epochs, m.o.Epochs)
	}
	m.index.Append(b.Record())
	m.recent.Add(b, m.nowMS)
	if b.Identified {
		m.dedupe.Add(&b, m.nowMS)
		m.marks.noteBatch(b.At.Offset)
	}
}

// extend adds a batch to this Step's submission. If the submission's last record is an append, the batch joins that
// record.
func (m *Machine) extend(b queue.Batch) {
	if n := len(m.out.Write); n > 0 && m.wrote() {
		if w := &m.out.Write[n-1]; w.Kind == queue.WriteAppend && w.Epoch == m.promised {
			w.Batches = append(w.Batches, b)
			return
		}
	}
	m.write(queue.Write{Kind: queue.WriteAppend, Epoch: m.promised, At: b.At, Batches: []queue.Batch{b}})
}

// truncate cuts the log to p, a batch boundary at or above the committed end. The caller writes the record first
// (RB-11).
func (m *Machine) truncate(p ident.Position) {
	if p.Offset < m.committed.Offset {
		panic("replica: truncation below the committed end")
	}
	l := &m.log
	l.lastCRC = m.crcAt(p.Offset)
	l.end = p
	m.follow.verified = least(m.follow.verified, p)
	l.clamp(p)
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Start.Offset >= p.Offset; n-- {
		l.epochs = l.epochs[:n-1]
	}
	if n := len(l.epochs); n > 0 {
		l.epochs[n-1].End = least(l.epochs[n-1].End, p)
	}
	m.index.Truncate(p.Offset)
	m.recent.Truncate(p.Offset)
	m.dedupe.Truncate(p.Offset)
	m.marks.cut(p.Offset)
	l.tail.drop()
	m.counters.Truncations++
}

// restartAt removes the whole log; the next batch begins at p. The caller writes the record.
func (m *Machine) restartAt(p ident.Position, prevCRC uint32, forgotten queue.Clock) {
	l := &m.log
	l.end, l.lastCRC, l.epochs = p, prevCRC, nil
	l.clamp(p)
	m.committed, m.follow.verified = p, least(m.follow.verified, p)
	m.index.Restart(p)
	m.recent.Truncate(0)
	m.dedupe.Restart(p.Offset, forgotten)
	m.marks = marks{}
	l.tail.drop()
	m.counters.Restarts++
}

// crcAt returns the checksum of the batch that ends at the boundary o: the PrevCRC of the next batch.
func (m *Machine) crcAt(o ident.Offset) uint32 {
	if o == m.log.end.Offset {
		return m.log.lastCRC
	}
	if b := m.log.tail.from(o); b != nil {
		return b[0].PrevCRC
	}
	if r, ok := m.index.AtOffset(o); ok && r.Offset == o {
		return r.PrevCRC
	}
	return 0
}

// borderAt returns the position at offset o; false if no batch begins or ends there.
func (m *Machine) borderAt(o ident.Offset) (at ident.Position, ok bool) {
	if o == m.log.end.Offset {
		return m.log.end, true
	}
	at, ok = m.batchAt(o)
	return at, ok && at.Offset == o
}

// batchAt returns the position at which the batch that covers byte o begins.
func (m *Machine) batchAt(o ident.Offset) (ident.Position, bool) {
	r, ok := m.index.AtOffset(o)
	if !ok {
		return ident.Position{}, false
	}
	return ident.Position{Offset: r.Offset, Sequence: r.First}, true
}

// advanceCommitted moves the committed end forward. The new end is written with the next submission that happens
// anyway, so that recovery never cuts below it. It is not worth a sync of its own.
func (m *Machine) advanceCommitted(p ident.Position) {
	if p.Offset <= m.committed.Offset {
		return
	}
	m.committed = p
	if m.wrote() {
		m.writeCommitted()
	}
}

// committedEveryMS is the least time between two submissions of a leader that carry the committed end.
const committedEveryMS = 100

// recordCommitted adds the committed end to the leader's next submission, at most once per committedEveryMS, so that an
// old disk shows how far its leader had committed. A put commits in a Step that writes nothing.
func (m *Machine) recordCommitted() {
	if m.wrote() && m.nowMS-m.committedMS >= committedEveryMS {
		m.writeCommitted()
	}
}

// writeCommitted adds the committed end to this Step's submission, if the journal has a lower one.
func (m *Machine) writeCommitted() {
	if m.committedWritten < m.committed.Offset {
		m.write(queue.Write{Kind: queue.WriteCommitted, At: m.committed})
		m.committedWritten, m.committedMS = m.committed.Offset, m.nowMS
	}
}

func least(a, b ident.Position) ident.Position {
	if b.Offset < a.Offset {
		return b
	}
	return a
}

func greatest(a, b ident.Position) ident.Position {
	if b.Offset > a.Offset {
		return b
	}
	return a
}

// tail is the newest part of a leader's log, in memory, so that followers that keep up need no reads. The batches are
// contiguous up to the log's end. `head` counts the popped entries in front, so that a pop moves nothing.
type tail struct {
	batches []queue.Batch
	head    int
	bytes   int
}

// addToTail keeps a new batch in memory for the followers, if there are any.
func (m *Machine) addToTail(b queue.Batch) {
	if len(m.state.Replicas) > 1 {
		m.log.tail.push(b, m.o.TailBytes)
	}
}

// all returns the batches, oldest first.
func (t *tail) all() []queue.Batch { return t.batches[t.head:] }

// push adds the newest batch, and drops the oldest ones above limit bytes.
func (t *tail) push(b queue.Batch, limit int) {
	t.batches = append(t.batches, b)
	t.bytes += len(b.Bytes)
	for t.bytes > limit && t.head < len(t.batches)-1 {
		t.pop()
	}
}

func (t *tail) trimTo(o ident.Offset) {
	for t.head < len(t.batches) && t.batches[t.head].End.Offset <= o {
		t.pop()
	}
}

// compactFrom is the number of popped entries from which a pop may move the remaining ones to the front.
const compactFrom = 64

// pop drops the oldest batch and lets its bytes be collected.
func (t *tail) pop() {
	t.bytes -= len(t.batches[t.head].Bytes)
	t.batches[t.head] = queue.Batch{}
	t.head++
	switch {
	case t.head == len(t.batches):
		t.batches, t.head = t.batches[:0], 0
	case t.head >= compactFrom && 2*t.head >= len(t.batches):
		n := copy(t.batches, t.batches[t.head:])
		clear(t.batches[n:])
		t.batches, t.head = t.batches[:n], 0
	}
}

// drop empties the tail and frees its memory.
func (t *tail) drop() { *t = tail{} }

// from returns the batches from offset o on; nil if no batch in the tail begins there.
func (t *tail) from(o ident.Offset) []queue.Batch {
	kept := t.all()
	i := sort.Search(len(kept), func(i int) bool { return kept[i].At.Offset >= o })
	if i < len(kept) && kept[i].At.Offset == o {
		return kept[i:]
	}
	return nil
}
