package replica

import (
	"cmp"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxEpochs bounds the epoch table in memory and on the wire. A replica that is
// further behind than this many epochs is compared from its end backwards.
const maxEpochs = 256

// log is where the machine's own log ends, what of it is durable, and the
// newest batches as long as followers may need them.
type log struct {
	end     ident.Position
	lastCRC uint32
	timeNS  int64 // of the newest batch: time never goes back
	epochs  []commitlog.EpochEnd

	token   uint64 // last one given out
	pending []submission
	durable submission // what the newest synced submission made durable

	tail      []queue.Batch // from head on contiguous, up to end; leaders only
	head      int
	tailBytes int
}

// submission is what is durable once its token is.
type submission struct {
	token   uint64
	atMS    int64 // when it was handed out
	end     ident.Position
	epoch   ident.Epoch
	confirm version
}

func newLog(r queue.Restored, epochs int) log {
	return log{
		end: r.End, lastCRC: r.LastCRC, timeNS: r.LastTimeNS,
		epochs: newest(slices.Clone(r.Epochs), epochs),
		durable: submission{
			end: r.End, epoch: r.Epoch, confirm: version{r.Confirm.Epoch, r.Confirm.N},
		},
	}
}

// newest keeps the last n epochs of a table.
func newest(epochs []commitlog.EpochEnd, n int) []commitlog.EpochEnd {
	return append(epochs[:0], epochs[max(0, len(epochs)-cmp.Or(n, maxEpochs)):]...)
}

// closed reports whether a submission with this token was already closed.
func (l *log) closed(token uint64) bool {
	return len(l.pending) > 0 && l.pending[len(l.pending)-1].token >= token || l.durable.token >= token
}

// closeToken notes what the submission makes durable; false if it was closed
// by an earlier Step into the same Effects.
func (l *log) closeToken(token uint64, nowMS int64, e ident.Epoch, c version) bool {
	if l.closed(token) {
		return false
	}
	l.pending = append(l.pending, submission{token: token, atMS: nowMS, end: l.end, epoch: e, confirm: c})
	return true
}

func (l *log) synced(token uint64) {
	n := 0
	for n < len(l.pending) && l.pending[n].token <= token {
		l.durable = l.pending[n]
		n++
	}
	l.pending = append(l.pending[:0], l.pending[n:]...)
}

// clamp notes a truncation: what earlier submissions wrote above it will never
// be durable content of this log.
func (l *log) clamp(p ident.Position) {
	l.durable.end = least(l.durable.end, p)
	for i := range l.pending {
		l.pending[i].end = least(l.pending[i].end, p)
	}
}

// appendBatch moves the end over a sealed batch.
func (m *Machine) appendBatch(b queue.Batch) {
	l := &m.log
	l.end, l.lastCRC, l.timeNS = b.End, b.CRC, max(l.timeNS, b.Time)
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == b.Epoch {
		l.epochs[n-1].End = b.End
	} else {
		l.epochs = append(l.epochs, commitlog.EpochEnd{Epoch: b.Epoch, Start: b.At, End: b.End})
		l.epochs = newest(l.epochs, m.o.Epochs)
	}
	m.index.Append(commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: b.Time / 1e6,
	})
	if m.lead != nil || !m.broken(BreakRequestFollower) {
		m.recent.add(b)
	}
}

// truncate cuts the log to p, which must be a border between batches at or
// above the committed end. The caller writes the record.
func (m *Machine) truncate(p ident.Position) {
	if p.Offset < m.committed.Offset {
		panic("replica: truncation below the committed end")
	}
	l := &m.log
	l.lastCRC = m.crcAt(p.Offset)
	l.end = p
	m.follow.verified = least(m.follow.verified, p)
	if !m.broken(BreakTruncateClamp) {
		l.clamp(p)
	}
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Start.Offset >= p.Offset; n-- {
		l.epochs = l.epochs[:n-1]
	}
	if n := len(l.epochs); n > 0 {
		l.epochs[n-1].End = least(l.epochs[n-1].End, p)
	}
	m.index.Truncate(p.Offset)
	if !m.broken(BreakRequestTruncate) {
		m.recent.truncate(p.Offset)
	}
	m.log.dropTail()
	m.out.Truncated = true
	m.counters.Truncations++
}

// restartAt forgets the whole log; the next batch comes at p.
func (m *Machine) restartAt(p ident.Position, prevCRC uint32) {
	l := &m.log
	l.end, l.lastCRC, l.epochs = p, prevCRC, nil
	l.clamp(p)
	m.committed, m.follow.verified = p, least(m.follow.verified, p)
	m.index.Restart(p)
	m.recent.truncate(0)
	l.dropTail()
	m.out.Truncated = true
	m.counters.Restarts++
}

// crcAt gives the checksum of the batch that ends at o: what the next one's
// PrevCRC must be. o must be a border within [start, end].
func (m *Machine) crcAt(o ident.Offset) uint32 {
	if o == m.log.end.Offset {
		return m.log.lastCRC
	}
	if b := m.log.tailFrom(o); b != nil {
		return b[0].PrevCRC
	}
	if r, ok := m.index.AtOffset(o); ok && r.Offset == o {
		return r.PrevCRC
	}
	return 0
}

// borderAt completes an offset that is a border within the log; false if it is
// not one.
func (m *Machine) borderAt(o ident.Offset) (ident.Position, bool) {
	if o == m.log.end.Offset {
		return m.log.end, true
	}
	r, ok := m.index.AtOffset(o)
	if !ok || r.Offset != o {
		return ident.Position{}, false
	}
	return ident.Position{Offset: r.Offset, Sequence: r.First}, true
}

// pushTail keeps a batch for followers, within limit bytes.
func (l *log) pushTail(b queue.Batch, limit int) {
	l.tail = append(l.tail, b)
	l.tailBytes += len(b.Bytes)
	for l.tailBytes > limit && l.head < len(l.tail)-1 {
		l.popTail()
	}
}

// trimTailTo drops what ends at or before o.
func (l *log) trimTailTo(o ident.Offset) {
	for l.head < len(l.tail) && l.tail[l.head].End.Offset <= o {
		l.popTail()
	}
}

// popTail drops the oldest batch and lets its bytes be collected.
func (l *log) popTail() {
	l.tailBytes -= len(l.tail[l.head].Bytes)
	l.tail[l.head] = queue.Batch{}
	l.head++
	switch {
	case l.head == len(l.tail):
		l.tail, l.head = l.tail[:0], 0
	case l.head >= 64 && 2*l.head >= len(l.tail):
		n := copy(l.tail, l.tail[l.head:])
		clear(l.tail[n:])
		l.tail, l.head = l.tail[:n], 0
	}
}

func (l *log) dropTail() { l.tail, l.head, l.tailBytes = nil, 0, 0 }

// tailFrom gives the kept batches from offset o on; nil if o is not a border
// among them.
func (l *log) tailFrom(o ident.Offset) []queue.Batch {
	kept := l.tail[l.head:]
	i := sort.Search(len(kept), func(i int) bool { return kept[i].At.Offset >= o })
	if i < len(kept) && kept[i].At.Offset == o {
		return kept[i:]
	}
	return nil
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
