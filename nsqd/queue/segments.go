package queue

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// writeBufferBytes is the number of bytes of batches that one write gathers.
const writeBufferBytes = 256 << 10

// writeBuffers are shared: thousands of partitions would otherwise have one each.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

const segmentSuffix = ".seg"

// Segments are the files with a partition's batches, without gaps: file %020d.seg begins at the offset in its name.
//
// Write, Truncate, Reset, TrimHead, Repair and Sync run in one goroutine at a time, concurrently with
// readers. If a range is cut during a read, only the checksums protect the reader: the caller reads below
// ends that may be cut, or checks again after the read.
type Segments struct {
	fs       vfs.FS
	files    *vfs.Cache
	dir      string
	maxBytes int64
	mu       struct {
		sync.RWMutex
		list []segment // replaced, never changed in place
	}
	unsynced    map[ident.Offset]struct{} // of the writer: files written since Sync
	dirUnsynced bool
}

type segment struct {
	base ident.Offset
	size int64
}

func (s segment) end() ident.Offset { return s.base + ident.Offset(s.size) }

// Damage is a range of the log that cannot be read: its bytes fail their checksums, or the disk returns
// an error. No byte of it was served, and nothing was cut because of it.
type Damage struct {
	From, To ident.Offset // To is an estimate unless the index has the batch
	Err      error
}

// Error names the range.
func (d *Damage) Error() string {
	return fmt.Sprintf("queue: offsets %d to %d are damaged: %v", d.From, d.To, d.Err)
}

// Unwrap returns the cause: ErrCorrupt, errTorn or an error of the disk.
func (d *Damage) Unwrap() error { return d.Err }

// OpenSegments lists the segments in dir. A write begins a new file when the last one has maxBytes,
// and at a batch from NewFile.
func OpenSegments(fs vfs.FS, files *vfs.Cache, dir string, maxBytes int64) (*Segments, error) {
	s := &Segments{fs: fs, files: files, dir: dir, maxBytes: maxBytes, unsynced: map[ident.Offset]struct{}{}}
	s.dirUnsynced = true // removals of a killed process may be in the page cache only
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("queue: list %s: %w", dir, err)
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentSuffix)
		base, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || base < 0 {
			continue
		}
		st, err := fs.Stat(path.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
		s.mu.list = append(s.mu.list, segment{ident.Offset(base), st.Size})
	}
	return s, nil
}

// Name is the path of the file that begins at base.
func (s *Segments) Name(base ident.Offset) string {
	return path.Join(s.dir, fmt.Sprintf("%020d%s", int64(base), segmentSuffix))
}

func (s *Segments) segments() []segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.list
}

func (s *Segments) set(list []segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list = list
}

// Start is the first offset of the first file, false if there is no file.
func (s *Segments) Start() (ident.Offset, bool) {
	list := s.segments()
	if len(list) == 0 {
		return 0, false
	}
	return list[0].base, true
}

// HeadEnd is the end of the first file, false if there is no second one.
func (s *Segments) HeadEnd() (ident.Offset, bool) {
	list := s.segments()
	if len(list) < 2 {
		return 0, false
	}
	return list[0].end(), true
}

// End is the end of the last file, 0 without files.
func (s *Segments) End() ident.Offset {
	list := s.segments()
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].end()
}

// Bytes is the size of all files.
func (s *Segments) Bytes() int64 {
	n := int64(0)
	for _, g := range s.segments() {
		n += g.size
	}
	return n
}

// Write appends batches to the page cache. They must continue at End; without any file they may
// begin anywhere. It panics otherwise, because that is a programming error.
func (s *Segments) Write(batches []Batch) error {
	for len(batches) > 0 {
		list := s.segments()
		at := batches[0].At.Offset
		if len(list) > 0 && list[len(list)-1].end() != at {
			panic(fmt.Sprintf("queue: write at %d into segments that end at %d", at, list[len(list)-1].end()))
		}
		if len(list) == 0 || list[len(list)-1].size >= s.maxBytes || batches[0].BeginsFile() && list[len(list)-1].size > 0 {
			if err := s.begin(at); err != nil {
				return err
			}
			list = append(slices.Clone(list), segment{base: at})
			s.set(list)
		}
		n, err := s.writeSome(list, batches)
		if err != nil {
			return err
		}
		batches = batches[n:]
	}
	return nil
}

// writeSome writes the batches that fit into one call and one file, and returns their number.
func (s *Segments) writeSome(list []segment, batches []Batch) (int, error) {
	last := list[len(list)-1]
	b, n := batches[0].Bytes, 1 // a large batch is written without a copy
	if len(b) < writeBufferBytes {
		buf := writeBuffers.Get().(*[]byte)
		defer writeBuffers.Put(buf)
		b = append((*buf)[:0], b...)
		for n < len(batches) && len(b)+len(batches[n].Bytes) <= writeBufferBytes && last.size+int64(len(b)) < s.maxBytes && !batches[n].BeginsFile() {
			b = append(b, batches[n].Bytes...)
			n++
		}
		*buf = b
	}
	if err := s.writeAt(last, b, last.end()); err != nil {
		return 0, fmt.Errorf("queue: write %s: %w", s.Name(last.base), err)
	}
	list = slices.Clone(list)
	list[len(list)-1].size += int64(len(b))
	s.set(list)
	return n, nil
}

// writeAt writes b into a file, at an offset of the log.
func (s *Segments) writeAt(g segment, b []byte, at ident.Offset) error {
	s.unsynced[g.base] = struct{}{}
	return s.files.Use(s.Name(g.base), func(f vfs.File) error {
		from := int64(at - g.base)
		_, err := f.WriteAt(b, from)
		if err == nil {
			f.StartWriteback(from, int64(len(b))) // leaves less for the sync of a checkpoint
		}
		return err
	})
}

// Truncate cuts the tail at end. The cut is durable after Sync. Until then a power cut may leave
// more bytes or, after later writes, other bytes; recovery cuts again.
func (s *Segments) Truncate(end ident.Offset) error {
	list := slices.Clone(s.segments())
	for n := len(list); n > 0 && list[n-1].base >= end; n-- {
		if n == 1 && list[0].base == end {
			break // an empty file marks the start of the log after retention has removed the rest
		}
		base := list[len(list)-1].base
		list = list[:len(list)-1]
		s.set(slices.Clone(list))
		if err := s.remove(base); err != nil {
			return err
		}
	}
	if n := len(list); n > 0 && list[n-1].end() > end {
		list[n-1].size = int64(end - list[n-1].base)
		s.set(list)
		last := list[n-1]
		s.unsynced[last.base] = struct{}{}
		if err := s.files.Use(s.Name(last.base), func(f vfs.File) error { return f.Truncate(last.size) }); err != nil {
			return fmt.Errorf("queue: cut %s: %w", s.Name(last.base), err)
		}
	}
	return nil
}

// Reset removes all files. The next Write may begin anywhere.
func (s *Segments) Reset() error { return s.Truncate(-1) }

// BeginAt removes all files, so that the log begins at an offset below the first one. It makes an empty file for that
// offset durable before it removes the others: a power cut leaves either the new start or the old files.
func (s *Segments) BeginAt(at ident.Offset) error {
	if err := s.begin(at); err != nil {
		return err
	}
	if err := s.syncDir(); err != nil {
		return err
	}
	s.set(append([]segment{{base: at}}, s.segments()...))
	return s.Truncate(at)
}

// begin creates an empty file.
func (s *Segments) begin(at ident.Offset) error {
	if err := s.files.Create(s.Name(at)); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	s.dirUnsynced = true
	return nil
}

func (s *Segments) remove(base ident.Offset) error {
	delete(s.unsynced, base)
	s.dirUnsynced = true
	if err := s.files.Remove(s.Name(base)); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// StartAfterTrim is the start of the log after TrimHead, false if TrimHead would remove nothing.
func (s *Segments) StartAfterTrim(below ident.Offset) (ident.Offset, bool) {
	list := s.segments()
	n := 0
	for n+1 < len(list) && list[n].end() <= below {
		n++
	}
	if n == 0 {
		return 0, false
	}
	return list[n].base, true
}

// TrimHead removes the files that are completely below an offset, except the last file. It syncs the directory before
// and after each removal, so no power cut leaves a gap, or the removal without the file that follows.
func (s *Segments) TrimHead(below ident.Offset) error {
	for list := s.segments(); len(list) > 1 && list[0].end() <= below; list = s.segments() {
		if err := s.syncDir(); err != nil {
			return err
		}
		s.set(list[1:])
		if err := s.remove(list[0].base); err != nil {
			return err
		}
		if err := s.syncDir(); err != nil {
			return err
		}
	}
	return nil
}

// Sync makes all writes and cuts so far durable, directory included.
func (s *Segments) Sync() error {
	for base := range s.unsynced {
		if err := s.files.Use(s.Name(base), vfs.File.Sync); err != nil {
			return fmt.Errorf("queue: sync %s: %w", s.Name(base), err)
		}
		delete(s.unsynced, base)
	}
	return s.syncDir()
}

func (s *Segments) syncDir() error {
	if !s.dirUnsynced {
		return nil
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	s.dirUnsynced = false
	return nil
}

// Close closes the files.
func (s *Segments) Close() (err error) {
	for _, g := range s.segments() {
		err = errors.Join(err, s.files.Forget(s.Name(g.base)))
	}
	return err
}

// covering finds the file with offset o.
func (s *Segments) covering(o ident.Offset) (segment, bool) {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > o }) - 1
	if i < 0 || o >= list[i].end() {
		return segment{}, false
	}
	return list[i], true
}
