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

// writeBufferBytes is how many batches' bytes one write gathers.
const writeBufferBytes = 256 << 10

// writeBuffers are lent to writes: thousands of partitions would keep one each.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

const segmentSuffix = ".seg"

// Segments are the files that hold a partition's batches, one after the other
// without anything between them: file %020d.seg begins at that offset.
//
// One goroutine at a time may call Write, Truncate, Reset, TrimHead and Sync;
// readers may run beside it. What a reader sees of a range that is cut
// meanwhile is checked by its checksums only: the caller keeps readers below
// the ends that may be cut, or looks again.
type Segments struct {
	fs       vfs.FS
	files    *vfs.Cache
	dir      string
	maxBytes int64
	mu       struct {
		sync.RWMutex
		list []segment // replaced, never changed in place
	}
	unsynced    map[ident.Offset]struct{} // the writer's: files written since Sync
	dirUnsynced bool
}

type segment struct {
	base ident.Offset
	size int64
}

func (s segment) end() ident.Offset { return s.base + ident.Offset(s.size) }

// Damage says that a range of the log cannot be read: its bytes do not pass
// their checksums, or the disk does not give them. Nothing of it was served, and
// nothing was cut because of it.
type Damage struct {
	From, To ident.Offset // To is a guess unless the index knows better
	Err      error
}

// Error names the range.
func (d *Damage) Error() string {
	return fmt.Sprintf("queue: offsets %d to %d are damaged: %v", d.From, d.To, d.Err)
}

// Unwrap gives the cause: ErrCorrupt, ErrTorn or an error of the disk.
func (d *Damage) Unwrap() error { return d.Err }

// OpenSegments lists the segments in dir. A new file is begun when one has
// maxBytes, and at a batch that asks for it.
func OpenSegments(fs vfs.FS, files *vfs.Cache, dir string, maxBytes int64) (*Segments, error) {
	s := &Segments{fs: fs, files: files, dir: dir, maxBytes: maxBytes, unsynced: map[ident.Offset]struct{}{}}
	s.dirUnsynced = true // removals by a process that was killed may be known to the page cache only
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

// Start is the base of the first file, false if there is none.
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

// End is the end of the last file, 0 if there is none.
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

// Write appends batches to the page cache. They continue at End; into no files
// at all they may begin anywhere. Anything else is a programmer's error.
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

// writeSome writes as many batches as go into one call and one file.
func (s *Segments) writeSome(list []segment, batches []Batch) (int, error) {
	last := list[len(list)-1]
	b, n := batches[0].Bytes, 1 // a large batch goes as it is
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
	h, err := s.files.Open(s.Name(last.base))
	if err != nil {
		return 0, fmt.Errorf("queue: %w", err)
	}
	defer h.Release()
	s.unsynced[last.base] = struct{}{}
	if _, err := h.WriteAt(b, last.size); err != nil {
		return 0, fmt.Errorf("queue: write %s: %w", s.Name(last.base), err)
	}
	h.StartWriteback(last.size, int64(len(b))) // so that a checkpoint's sync finds little to do
	list = slices.Clone(list)
	list[len(list)-1].size += int64(len(b))
	s.set(list)
	return n, nil
}

// Truncate cuts the tail at end. It is durable after Sync; until then a power
// cut may leave more or, after later writes, others: recovery cuts again.
func (s *Segments) Truncate(end ident.Offset) error {
	list := slices.Clone(s.segments())
	for n := len(list); n > 0 && list[n-1].base >= end; n-- {
		if n == 1 && list[0].base == end {
			break // an empty file says where the log begins: retention removed the rest
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
		h, err := s.files.Open(s.Name(list[n-1].base))
		if err != nil {
			return fmt.Errorf("queue: %w", err)
		}
		defer h.Release()
		s.unsynced[list[n-1].base] = struct{}{}
		if err := h.Truncate(list[n-1].size); err != nil {
			return fmt.Errorf("queue: cut %s: %w", s.Name(list[n-1].base), err)
		}
	}
	return nil
}

// Reset removes everything: the next Write may begin anywhere.
func (s *Segments) Reset() error { return s.Truncate(-1) }

// BeginAt removes everything, and lets the log begin at an offset below the first
// file. An empty file says so before the others go: a power cut leaves where to
// begin, or what was there.
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
	h, err := s.files.Create(s.Name(at))
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	h.Release()
	s.dirUnsynced = true
	return nil
}

func (s *Segments) remove(base ident.Offset) error {
	delete(s.unsynced, base)
	s.dirUnsynced = true
	err := s.files.Remove(s.Name(base))
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// StartAfterTrim is where the log begins after TrimHead, false if that removes
// nothing.
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

// TrimHead removes the files that lie wholly below an offset; the last file
// always stays. It answers whether anything went. The directory is synced before
// each removal and after it: no power cut leaves a hole, or the removal without
// the file that follows.
func (s *Segments) TrimHead(below ident.Offset) (bool, error) {
	trimmed := false
	for list := s.segments(); len(list) > 1 && list[0].end() <= below; list = s.segments() {
		if err := s.syncDir(); err != nil {
			return trimmed, err
		}
		s.set(list[1:])
		if err := s.remove(list[0].base); err != nil {
			return trimmed, err
		}
		if err := s.syncDir(); err != nil {
			return trimmed, err
		}
		trimmed = true
	}
	return trimmed, nil
}

// Sync makes everything written and cut so far durable, directory included.
func (s *Segments) Sync() error {
	for base := range s.unsynced {
		if err := s.syncFile(base); err != nil {
			return err
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

func (s *Segments) syncFile(base ident.Offset) error {
	h, err := s.files.Open(s.Name(base))
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	defer h.Release()
	if err := h.Sync(); err != nil {
		return fmt.Errorf("queue: sync %s: %w", s.Name(base), err)
	}
	return nil
}

// Close lets the files go.
func (s *Segments) Close() error {
	var err error
	for _, g := range s.segments() {
		err = errors.Join(err, s.files.Forget(s.Name(g.base)))
	}
	return err
}

// covering finds the file that holds offset o.
func (s *Segments) covering(o ident.Offset) (segment, bool) {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > o }) - 1
	if i < 0 || o >= list[i].end() {
		return segment{}, false
	}
	return list[i], true
}
