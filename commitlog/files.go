package commitlog

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// recordsPerFile bounds a file: 3.5 MiB.
const recordsPerFile = 1 << 16

const suffix = ".idx"

func fileName(dir string, base ident.Offset) string {
	return path.Join(dir, fmt.Sprintf("%020d%s", int64(base), suffix))
}

func parseName(name string) (ident.Offset, bool) {
	digits, ok := strings.CutSuffix(path.Base(name), suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return ident.Offset(n), ok && err == nil && n >= 0
}

// Open opens the commit log in dir through the cache of open files. Damage is not an error: the log
// is then empty, and the next Flush removes its files. The caller compares the end of the log with
// the segments and appends the missing records.
func Open(fs vfs.FS, files *vfs.Cache, dir string) (*Log, error) {
	l := &Log{files: files, dir: dir}
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("commitlog: list %s: %w", dir, err)
	}
	for _, name := range names {
		base, ok := parseName(name)
		if !ok {
			continue
		}
		name = fileName(dir, base)
		st, err := fs.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("commitlog: %w", err)
		}
		count := st.Size / RecordSize
		if count == 0 {
			l.mu.garbage = append(l.mu.garbage, name)
			continue
		}
		l.mu.disk = append(l.mu.disk, file{name: name, first: l.mu.flushed, count: count})
		l.mu.flushed += count
	}
	l.mu.tailFrom = l.mu.flushed
	if !l.load() {
		l.Restart(ident.Position{})
	}
	return l, nil
}

// load reads the newest records and the epochs from the files, false if something is damaged.
func (l *Log) load() bool {
	v := l.viewLocked()
	if v.begin == v.end {
		return true
	}
	if !l.dropStale(v) {
		return false
	}
	v = l.viewLocked()
	for _, f := range v.disk {
		r, ok := v.read(f.first)
		if base, _ := parseName(f.name); !ok || r.Offset != base {
			return false
		}
		if f.first == v.begin {
			l.mu.start = ident.Position{Offset: r.Offset, Sequence: r.First}
		}
	}
	last, ok := v.read(v.end - 1)
	if !ok {
		return false
	}
	l.mu.end = last.End()
	return l.loadEpochs(v) && l.loadTail(v)
}

// dropStale drops the files before a file that does not begin at their end. They are older than a Restart, and their
// removal was undone by a power cut. It returns false if the last record of a file cannot be read.
func (l *Log) dropStale(v view) bool {
	for i := len(v.disk) - 1; i > 0; i-- {
		last, ok := v.read(v.disk[i].first - 1)
		if !ok {
			return false
		}
		if base, _ := parseName(v.disk[i].name); base == last.End().Offset {
			continue
		}
		l.discardLocked(v.disk[:i])
		l.mu.disk = v.disk[i:]
		return true
	}
	return true
}

// loadEpochs finds the first record of each epoch by bisection.
func (l *Log) loadEpochs(v view) bool {
	for n := v.begin; n < v.end; {
		first, ok := v.read(n)
		if !ok {
			return false
		}
		if n, ok = v.search(func(r Record) bool { return r.Epoch > first.Epoch }); !ok {
			return false
		}
		last, ok := v.read(n - 1)
		if !ok || last.Epoch != first.Epoch {
			return false
		}
		l.mu.epochs = appendEpoch(appendEpoch(l.mu.epochs, first), last)
	}
	return true
}

// loadTail reads the newest records of the newest file in one call.
func (l *Log) loadTail(v view) bool {
	n := min(cachedRecords, v.disk[len(v.disk)-1].count)
	records, ok := v.readRun(v.end - n)
	l.mu.tail, l.mu.tailFrom = records, v.end-n
	return ok
}

// Flush writes the records that end at or below limit to the files, and applies cuts to the files. It does not sync;
// see Sync.
func (l *Log) Flush(limit ident.Offset) error {
	l.mu.Lock()
	cuts, disk, garbage := l.mu.cuts, slices.Clone(l.mu.disk), l.mu.garbage
	flushed := l.mu.flushed
	from := int(flushed - l.mu.tailFrom)
	to := from + sort.Search(len(l.mu.tail)-from, func(i int) bool { return l.mu.tail[from+i].End().Offset > limit })
	records := slices.Clone(l.mu.tail[from:to])
	l.mu.garbage = nil
	l.mu.Unlock()
	if err := l.remove(garbage...); err != nil {
		return err
	}
	disk, err := l.cutFiles(disk, flushed)
	if err == nil {
		disk, err = l.writeFiles(disk, flushed, records)
	}
	if err != nil {
		return err
	}
	l.flushedTo(cuts, disk, flushed+int64(len(records)))
	return nil
}

// flushedTo records the result of a Flush, unless the log was cut during the Flush and the files have too
// many records: then the next Flush cuts the files.
func (l *Log) flushedTo(cuts uint64, disk []file, flushed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cuts != cuts {
		if len(l.mu.disk) == 0 { // a Restart, or the first file
			l.discardLocked(disk)
			return
		}
		l.mu.disk = disk
		return
	}
	l.mu.disk, l.mu.flushed = disk, flushed
	drop := int(flushed-l.mu.tailFrom) - cachedRecords
	if drop <= cachedRecords { // it copies the array, so it does not run for a few records
		return
	}
	l.mu.tail = slices.Delete(l.mu.tail, 0, drop)
	l.mu.tailFrom += int64(drop)
	if cap(l.mu.tail) > keptRecords {
		l.mu.tail = slices.Clone(l.mu.tail)
	}
}

// discardLocked leaves files to the next Flush, which removes them.
func (l *Log) discardLocked(files []file) {
	for _, f := range files {
		l.mu.garbage = append(l.mu.garbage, f.name)
	}
}

func (l *Log) remove(names ...string) error {
	for _, name := range names {
		if err := l.files.Remove(name); err != nil {
			return fmt.Errorf("commitlog: %w", err)
		}
	}
	return nil
}

// cutFiles removes the records from number end on.
func (l *Log) cutFiles(disk []file, end int64) ([]file, error) {
	for len(disk) > 0 && disk[len(disk)-1].first >= end {
		if err := l.remove(disk[len(disk)-1].name); err != nil {
			return nil, err
		}
		disk = disk[:len(disk)-1]
	}
	if n := len(disk); n > 0 && disk[n-1].first+disk[n-1].count > end {
		f := &disk[n-1]
		f.count = end - f.first
		if err := l.files.Use(f.name, func(h vfs.File) error { return h.Truncate(f.count * RecordSize) }); err != nil {
			return nil, fmt.Errorf("commitlog: cut %s: %w", f.name, err)
		}
	}
	return disk, nil
}

func (l *Log) writeFiles(disk []file, next int64, records []Record) ([]file, error) {
	for len(records) > 0 {
		n := len(disk)
		if n == 0 || disk[n-1].count >= recordsPerFile {
			name := fileName(l.dir, records[0].Offset)
			if err := l.files.Create(name); err != nil {
				return nil, fmt.Errorf("commitlog: %w", err)
			}
			disk = append(disk, file{name: name, first: next})
			n++
		}
		f := &disk[n-1]
		part := records[:min(int64(len(records)), recordsPerFile-f.count)]
		if err := l.writeRecords(f, part); err != nil {
			return nil, err
		}
		f.count += int64(len(part))
		next += int64(len(part))
		records = records[len(part):]
	}
	return disk, nil
}

func (l *Log) writeRecords(f *file, records []Record) error {
	b := make([]byte, 0, len(records)*RecordSize)
	for _, r := range records {
		b = r.AppendTo(b)
	}
	err := l.files.Use(f.name, func(h vfs.File) error {
		_, err := h.WriteAt(b, f.count*RecordSize)
		return err
	})
	if err != nil {
		return fmt.Errorf("commitlog: write %s: %w", f.name, err)
	}
	return nil
}

// Unwritten is the number of records that are not in a file yet.
func (l *Log) Unwritten() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.mu.tail) - int(l.mu.flushed-l.mu.tailFrom)
}

// Flushed names the records that Flush had written at one moment.
type Flushed struct {
	cuts uint64
	end  int64
}

// Flushed returns what Flush has written so far.
func (l *Log) Flushed() Flushed {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Flushed{l.mu.cuts, l.mu.flushed}
}

// NoteSynced records that the caller has made these records durable in another way than by Sync.
func (l *Log) NoteSynced(f Flushed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cuts == f.cuts {
		l.mu.synced = max(l.mu.synced, f.end)
	}
}

// Sync makes the records that Flush wrote durable.
func (l *Log) Sync() error {
	written := l.Flushed()
	l.mu.RLock()
	disk, synced := l.mu.disk, l.mu.synced
	l.mu.RUnlock()
	for i, f := range disk {
		if newest := i == len(disk)-1; !newest && f.first+f.count <= synced {
			continue
		}
		if err := l.files.Use(f.name, vfs.File.Sync); err != nil {
			return fmt.Errorf("commitlog: sync: %w", err)
		}
	}
	l.NoteSynced(written)
	return nil
}

// TrimHead moves the start up to p, where a batch begins, and removes the files that end at or below p.
func (l *Log) TrimHead(p ident.Position) error {
	l.mu.Lock()
	if p.Offset <= l.mu.start.Offset {
		l.mu.Unlock()
		return nil
	}
	l.mu.start = p
	for len(l.mu.epochs) > 0 && l.mu.epochs[0].End.Offset <= p.Offset {
		l.mu.epochs = l.mu.epochs[1:]
	}
	if len(l.mu.epochs) > 0 && l.mu.epochs[0].Start.Offset < p.Offset {
		l.mu.epochs[0].Start = p
	}
	var gone []string
	for len(l.mu.disk) > 1 {
		base, _ := parseName(l.mu.disk[1].name)
		if base > p.Offset || l.mu.disk[1].first > l.mu.flushed {
			break
		}
		gone = append(gone, l.mu.disk[0].name)
		l.mu.disk = l.mu.disk[1:]
	}
	l.mu.Unlock()
	return l.remove(gone...)
}

// Close closes the files.
func (l *Log) Close() (err error) {
	l.mu.RLock()
	disk := l.mu.disk
	l.mu.RUnlock()
	for _, f := range disk {
		err = errors.Join(err, l.files.Forget(f.name))
	}
	return err
}
