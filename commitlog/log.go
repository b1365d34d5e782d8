package commitlog

import (
	"slices"
	"sort"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

const (
	// cachedRecords is the number of the newest records that stay in memory after they were written
	// to a file: replication nearly always asks for the end.
	cachedRecords = 32
	// keptRecords is the capacity of the largest array kept for these records.
	keptRecords = 2 * cachedRecords
)

// Log is the commit log of one partition. The zero value is an empty log in memory that begins at
// 0. All methods may be called from any goroutine. One goroutine at a time may call Append,
// Truncate, TruncateAtGap or Restart, and one may call Flush, Sync or TrimHead.
type Log struct {
	files *vfs.Cache // nil: the log is in memory only
	dir   string
	mu    struct {
		sync.RWMutex
		start, end ident.Position
		// Records are numbered without gaps since Open. Records from tailFrom on are in tail, records below flushed are
		// in disk, and records below synced are durable there. tailFrom ≤ flushed, synced ≤ flushed.
		tail     []Record
		tailFrom int64
		flushed  int64
		synced   int64
		disk     []file   // replaced, never changed in place: readers keep it without the lock
		garbage  []string // files to be removed by the next Flush
		cuts     uint64   // counts Truncate and Restart, so that Flush notices them
		epochs   []EpochEnd
	}
}

// file is one file of records numbered first to first+count-1.
type file struct {
	name         string
	first, count int64
}

// Append appends records.
func (l *Log) Append(records ...Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.tail = append(l.mu.tail, records...)
	for _, r := range records {
		l.mu.end = r.End()
		l.mu.epochs = appendEpoch(l.mu.epochs, r)
	}
}

func appendEpoch(epochs []EpochEnd, r Record) []EpochEnd {
	if n := len(epochs); n > 0 && epochs[n-1].Epoch == r.Epoch {
		epochs[n-1].End = r.End()
		return epochs
	}
	start := ident.Position{Offset: r.Offset, Sequence: r.First}
	return append(epochs, EpochEnd{Epoch: r.Epoch, Start: start, End: r.End()})
}

// Truncate drops the records from offset end on, where a batch begins. Above the current end it does nothing.
func (l *Log) Truncate(end ident.Offset) {
	l.mu.RLock()
	done, cut, inTail := end >= l.mu.end.Offset, int64(0), false
	if len(l.mu.tail) > 0 && end >= l.mu.tail[0].Offset {
		i := sort.Search(len(l.mu.tail), func(i int) bool { return l.mu.tail[i].Offset >= end })
		cut, inTail = l.mu.tailFrom+int64(i), true
	}
	v := l.viewLocked()
	l.mu.RUnlock()
	if done {
		return
	}
	if !inTail {
		cut = v.cutAt(end)
	}
	last, ok := v.read(cut - 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked(cut, end, last, ok)
}

// cutLocked keeps the records below number cut. last is the newest of them.
func (l *Log) cutLocked(cut int64, end ident.Offset, last Record, ok bool) {
	l.mu.cuts++
	if i := cut - l.mu.tailFrom; i >= 0 {
		if i > 0 {
			last, ok = l.mu.tail[i-1], true
		}
		l.mu.tail = l.mu.tail[:i]
	} else {
		l.mu.tail, l.mu.tailFrom = l.mu.tail[:0], cut
	}
	l.mu.flushed, l.mu.synced = min(l.mu.flushed, cut), min(l.mu.synced, cut)
	at := ident.Position{Offset: max(end, l.mu.start.Offset), Sequence: l.mu.start.Sequence}
	if ok && last.End().Offset > l.mu.start.Offset {
		at.Sequence = last.End().Sequence
	}
	l.mu.end = at
	n := len(l.mu.epochs)
	for n > 0 && l.mu.epochs[n-1].Start.Offset >= at.Offset {
		n--
	}
	if l.mu.epochs = l.mu.epochs[:n]; n > 0 {
		l.mu.epochs[n-1].End = at
	}
}

// TruncateAtGap drops the first record that begins at or above floor and does not continue its predecessor, and all
// records after it. It does not search in the dropped records, because their order may be wrong.
func (l *Log) TruncateAtGap(floor ident.Offset) {
	l.mu.RLock()
	tail, from, v := slices.Clone(l.mu.tail), l.mu.tailFrom, l.viewLocked()
	l.mu.RUnlock()
	read := func(n int64) (Record, bool) {
		if n >= from {
			return tail[n-from], true
		}
		return v.read(n)
	}
	end := from + int64(len(tail))
	n := v.begin + int64(sort.Search(int(end-v.begin), func(i int) bool {
		r, ok := read(v.begin + int64(i))
		return !ok || r.Offset >= floor
	}))
	last, some := Record{}, false
	if n > v.begin {
		last, some = read(n - 1)
	}
	for ; n < end; n++ {
		r, ok := read(n)
		if !ok || some && (r.PrevCRC != last.CRC || last.End() != (ident.Position{Offset: r.Offset, Sequence: r.First})) {
			break
		}
		last, some = r, true
	}
	if n < end {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cutLocked(n, last.End().Offset, last, some)
	}
}

// Restart empties the log. The next record begins at p.
func (l *Log) Restart(p ident.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cuts++
	l.discardLocked(l.mu.disk)
	next := l.mu.tailFrom + int64(len(l.mu.tail))
	l.mu.disk, l.mu.tail, l.mu.epochs = nil, l.mu.tail[:0], nil
	l.mu.tailFrom, l.mu.flushed, l.mu.synced = next, next, next
	l.mu.start, l.mu.end = p, p
}

// Start is the first position that the log still has.
func (l *Log) Start() ident.Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.start
}

// End is the position after the last record.
func (l *Log) End() ident.Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.end
}

// Epochs is the table of epochs, oldest first. The slice belongs to the caller.
func (l *Log) Epochs() []EpochEnd {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Clone(l.mu.epochs)
}
