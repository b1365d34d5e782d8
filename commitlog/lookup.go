package commitlog

import (
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Last is the newest record. It may end before End if the records up to End are lost, and it may be before Start.
func (l *Log) Last() (Record, bool) {
	return l.lastWhere(func(Record) bool { return true })
}

// AtOffset finds the record of the batch that covers byte o.
func (l *Log) AtOffset(o ident.Offset) (Record, bool) {
	r, ok := l.lastWhere(func(r Record) bool { return r.Offset <= o })
	return r, ok && o < r.End().Offset && o >= l.Start().Offset
}

// AtSequence finds the record of the batch with message n.
func (l *Log) AtSequence(n ident.Sequence) (Record, bool) {
	r, ok := l.lastWhere(func(r Record) bool { return r.First <= n })
	return r, ok && n < r.End().Sequence && r.Offset >= l.Start().Offset
}

// AtTime finds the first record that is not older than ms, unix ms.
func (l *Log) AtTime(ms int64) (Record, bool) {
	start := l.Start().Offset
	return l.firstWhere(func(r Record) bool { return r.TimeMS >= ms && r.Offset >= start })
}

// Newest returns the n-th newest record, counted from 1, or the oldest one if there are fewer.
func (l *Log) Newest(n int) (Record, bool) {
	l.mu.RLock()
	tail := l.mu.tail
	if n <= len(tail) {
		r := tail[len(tail)-n]
		l.mu.RUnlock()
		return r, true
	}
	v := l.viewLocked()
	l.mu.RUnlock()
	if r, ok := v.read(max(v.end-int64(n-len(tail)), v.begin)); ok {
		return r, true
	}
	if len(tail) > 0 {
		return tail[0], true
	}
	return Record{}, false
}

// walkRecords is how many records Walk reads at a time.
const walkRecords = 512

// Walk calls visit for the records of the batches from offset `from` on, in order. It returns false if some could not
// be read; visit is not called for those. The log must not be cut during Walk.
func (l *Log) Walk(from ident.Offset, visit func(Record)) bool {
	l.mu.RLock()
	tail, v := slices.Clone(l.mu.tail), l.viewLocked()
	l.mu.RUnlock()
	n, ok := v.search(func(r Record) bool { return r.Offset >= from })
	for n < v.end {
		records, read := v.readRun(n)
		for _, r := range records {
			visit(r)
		}
		if !read {
			return false
		}
		n += int64(len(records))
	}
	for _, r := range tail {
		if r.Offset >= from {
			visit(r)
		}
	}
	return ok
}

// firstWhere finds the first record for which f is true; once true, f must stay true. It searches the
// memory under the lock, and the files without it.
func (l *Log) firstWhere(f func(Record) bool) (Record, bool) {
	l.mu.RLock()
	tail := l.mu.tail
	i := sort.Search(len(tail), func(i int) bool { return f(tail[i]) })
	if i < len(tail) && (i > 0 || l.mu.flushed == 0) {
		r := tail[i]
		l.mu.RUnlock()
		return r, true
	}
	var fallback Record
	found := i < len(tail)
	if found {
		fallback = tail[i]
	}
	v := l.viewLocked()
	l.mu.RUnlock()
	n, ok := v.search(f)
	if !ok {
		return Record{}, false
	}
	if n == v.end {
		return fallback, found
	}
	return v.read(n)
}

// lastWhere finds the last record for which f is true; once false, f must stay false.
func (l *Log) lastWhere(f func(Record) bool) (Record, bool) {
	l.mu.RLock()
	tail := l.mu.tail
	if i := sort.Search(len(tail), func(i int) bool { return !f(tail[i]) }); i > 0 {
		r := tail[i-1]
		l.mu.RUnlock()
		return r, true
	}
	v := l.viewLocked()
	l.mu.RUnlock()
	n, ok := v.search(func(r Record) bool { return !f(r) })
	if !ok || n == v.begin {
		return Record{}, false
	}
	return v.read(n - 1)
}

// view is the part of the log that is in files and not in memory. It is read without the lock.
type view struct {
	files      *vfs.Cache
	disk       []file
	begin, end int64
}

func (l *Log) viewLocked() view {
	v := view{files: l.files, disk: l.mu.disk, end: min(l.mu.flushed, l.mu.tailFrom)}
	v.begin = v.end
	if len(v.disk) > 0 {
		v.begin = min(v.disk[0].first, v.end)
	}
	return v
}

// search finds the first record for which f is true, or v.end. It fails if a record on the path of the
// search cannot be read.
func (v view) search(f func(Record) bool) (n int64, ok bool) {
	ok = true
	i := sort.Search(int(v.end-v.begin), func(i int) bool {
		r, readable := v.read(v.begin + int64(i))
		ok = ok && readable
		return readable && f(r)
	})
	return v.begin + int64(i), ok
}

// cutAt returns the number of the first record at or after offset end. If the records cannot be read, it
// returns the first number of the file that must contain that record. The index then has a gap, and
// lookups in the gap find nothing.
func (v view) cutAt(end ident.Offset) int64 {
	if n, ok := v.search(func(r Record) bool { return r.Offset >= end }); ok {
		return n
	}
	cut := v.begin
	for _, f := range v.disk {
		if base, ok := parseName(f.name); ok && base <= end && f.first < v.end {
			cut = f.first
		}
	}
	return cut
}

// fileOf finds the file with record n; false if no file has it.
func (v view) fileOf(n int64) (file, bool) {
	i := sort.Search(len(v.disk), func(i int) bool { return v.disk[i].first > n }) - 1
	if i < 0 || n >= v.end || n >= v.disk[i].first+v.disk[i].count {
		return file{}, false
	}
	return v.disk[i], true
}

// readRun reads at least one record from number n on, at most to the end of its file.
func (v view) readRun(n int64) (records []Record, ok bool) {
	f, ok := v.fileOf(n)
	if !ok {
		return nil, false
	}
	b := make([]byte, min(walkRecords, f.first+f.count-n, v.end-n)*RecordSize)
	err := v.files.Use(f.name, func(h vfs.File) error {
		_, err := h.ReadAt(b, (n-f.first)*RecordSize)
		return err
	})
	for ; err == nil && len(b) > 0; b = b[RecordSize:] {
		var r Record
		if r, err = Decode(b); err == nil {
			records = append(records, r)
		}
	}
	return records, err == nil
}

func (v view) read(n int64) (r Record, ok bool) {
	f, ok := v.fileOf(n)
	if !ok {
		return Record{}, false
	}
	var b [RecordSize]byte
	err := v.files.Use(f.name, func(h vfs.File) (err error) {
		if _, err = h.ReadAt(b[:], (n-f.first)*RecordSize); err == nil {
			r, err = Decode(b[:])
		}
		return err
	})
	return r, err == nil
}
