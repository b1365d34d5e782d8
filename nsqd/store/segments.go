package store

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
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// writeBufferBytes is the number of bytes of batches that one write gathers.
const writeBufferBytes = 256 << 10

// writeBuffers are shared: thousands of partitions would otherwise have one each.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

const segmentSuffix = ".seg"

// segments are the files with a partition's batches, without gaps: file %020d.seg begins at the offset in its name.
//
// The methods that write run in one goroutine at a time, concurrently with readers. If a range is cut during a read,
// only the checksums protect the reader: it reads below ends that may be cut, or checks again afterwards.
type segments struct {
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
	changes     uint64 // counts the changes of files and entries, for noteSynced
}

type segment struct {
	base ident.Offset
	size int64
}

func (s segment) end() ident.Offset { return s.base + ident.Offset(s.size) }

// openSegments lists the segments in dir. A write begins a new file after maxBytes, and at a batch made by NewFile.
func openSegments(fs vfs.FS, files *vfs.Cache, dir string, maxBytes int64) (*segments, error) {
	s := &segments{fs: fs, files: files, dir: dir, maxBytes: maxBytes, unsynced: map[ident.Offset]struct{}{}}
	s.dirUnsynced = true // removals of a killed process may be in the page cache only
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("store: list %s: %w", dir, err)
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentSuffix)
		base, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || base < 0 {
			continue
		}
		st, err := fs.Stat(path.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		s.mu.list = append(s.mu.list, segment{ident.Offset(base), st.Size})
	}
	return s, nil
}

func (s *segments) name(base ident.Offset) string {
	return path.Join(s.dir, fmt.Sprintf("%020d%s", int64(base), segmentSuffix))
}

func (s *segments) segments() []segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.list
}

func (s *segments) set(list []segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list = list
}

// start is the first offset of the first file, false if there is no file.
func (s *segments) start() (ident.Offset, bool) {
	list := s.segments()
	if len(list) == 0 {
		return 0, false
	}
	return list[0].base, true
}

// headEnd is the end of the first file, false if there is no second one.
func (s *segments) headEnd() (ident.Offset, bool) {
	list := s.segments()
	if len(list) < 2 {
		return 0, false
	}
	return list[0].end(), true
}

// end is the end of the last file, 0 without files.
func (s *segments) end() ident.Offset {
	list := s.segments()
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].end()
}

func (s *segments) bytes() int64 {
	n := int64(0)
	for _, g := range s.segments() {
		n += g.size
	}
	return n
}

// write appends batches to the page cache. They must continue at End; if there is no file they may begin anywhere.
// Otherwise it panics, because that is a programming error.
func (s *segments) write(batches []queue.Batch) error {
	for len(batches) > 0 {
		list := s.segments()
		at := batches[0].At.Offset
		if len(list) > 0 && list[len(list)-1].end() != at {
			panic(fmt.Sprintf("store: write at %d into segments that end at %d", at, list[len(list)-1].end()))
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
func (s *segments) writeSome(list []segment, batches []queue.Batch) (int, error) {
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
		return 0, fmt.Errorf("store: write %s: %w", s.name(last.base), err)
	}
	list = slices.Clone(list)
	list[len(list)-1].size += int64(len(b))
	s.set(list)
	return n, nil
}

// writeAt writes b into a file, at an offset of the log.
func (s *segments) writeAt(g segment, b []byte, at ident.Offset) error {
	s.changed(g.base)
	return s.files.Use(s.name(g.base), func(f vfs.File) error {
		from := int64(at - g.base)
		_, err := f.WriteAt(b, from)
		if err == nil && len(b) >= gatherBytes {
			f.StartWriteback(from, int64(len(b))) // leaves less work for the sync of a checkpoint
		}
		return err
	})
}

// truncate cuts the tail at end. The cut is durable after Sync. Until then a power cut may leave
// more bytes or, after later writes, other bytes; recovery cuts again.
func (s *segments) truncate(end ident.Offset) error {
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
	if len(list) == 0 {
		return nil
	}
	last := &list[len(list)-1]
	s.changed(last.base) // even if it ends there: a killed process may have cut it in the page cache only
	if last.end() <= end {
		return nil
	}
	last.size = int64(end - last.base)
	s.set(list)
	if err := s.files.Use(s.name(last.base), func(f vfs.File) error { return f.Truncate(last.size) }); err != nil {
		return fmt.Errorf("store: cut %s: %w", s.name(last.base), err)
	}
	return nil
}

// reset removes all files. The next write may begin anywhere.
func (s *segments) reset() error { return s.truncate(-1) }

// beginAt removes all files, so that the log begins at an offset below the first one. It makes an empty file for that
// offset durable before it removes the others: a power cut leaves either the new start or the old files.
func (s *segments) beginAt(at ident.Offset) error {
	if err := s.begin(at); err != nil {
		return err
	}
	if err := s.syncDir(); err != nil {
		return err
	}
	s.set(append([]segment{{base: at}}, s.segments()...))
	return s.truncate(at)
}

func (s *segments) begin(at ident.Offset) error {
	if err := s.files.Create(s.name(at)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.dirUnsynced = true
	s.changes++
	return nil
}

func (s *segments) remove(base ident.Offset) error {
	delete(s.unsynced, base)
	s.dirUnsynced = true
	s.changes++
	if err := s.files.Remove(s.name(base)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// startAfterTrim is the start of the log after trimHead, false if trimHead would remove nothing.
func (s *segments) startAfterTrim(below ident.Offset) (ident.Offset, bool) {
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

// trimHead removes the files that end at or below an offset, except the last file. It syncs the directory before and
// after each removal, so that a power cut leaves neither a gap nor a removal without the following file.
func (s *segments) trimHead(below ident.Offset) error {
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

// sync makes all writes and cuts so far durable, directory included.
func (s *segments) sync() error {
	for base := range s.unsynced {
		if err := s.files.Use(s.name(base), vfs.File.Sync); err != nil {
			return fmt.Errorf("store: sync %s: %w", s.name(base), err)
		}
		delete(s.unsynced, base)
	}
	return s.syncDir()
}

// changed records a change of a file that no sync has made durable yet.
func (s *segments) changed(base ident.Offset) {
	s.unsynced[base] = struct{}{}
	s.changes++
}

// noteSynced records that a sync of the whole disk, begun after this number of changes, has made them durable. If there
// were later ones, the next sync syncs all of them again.
func (s *segments) noteSynced(changes uint64) {
	if s.changes == changes {
		clear(s.unsynced)
		s.dirUnsynced = false
	}
}

func (s *segments) syncDir() error {
	if !s.dirUnsynced {
		return nil
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.dirUnsynced = false
	return nil
}

func (s *segments) close() (err error) {
	for _, g := range s.segments() {
		err = errors.Join(err, s.files.Forget(s.name(g.base)))
	}
	return err
}

func (s *segments) covering(o ident.Offset) (segment, bool) {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > o }) - 1
	if i < 0 || o >= list[i].end() {
		return segment{}, false
	}
	return list[i], true
}

var errNoPlace = errors.New("the batch is outside the segments")

// repair writes batches of a peer over damaged ranges, after the caller has proved them, and extends files that were
// cut short. The batches are durable on return. Like write, it runs in one goroutine at a time.
func (s *segments) repair(batches []queue.Batch) error {
	for i := range batches {
		if err := s.rewrite(&batches[i]); err != nil {
			return fmt.Errorf("store: repair offset %d: %w", batches[i].At.Offset, err)
		}
	}
	return s.sync()
}

// rewrite writes one batch at its position.
func (s *segments) rewrite(b *queue.Batch) error {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > b.At.Offset }) - 1
	if i < 0 || b.At.Offset > list[i].end() || b.End.Offset > limitOf(list, i) {
		return errNoPlace
	}
	g := list[i]
	if err := s.writeAt(g, b.Bytes, b.At.Offset); err != nil {
		return err
	}
	if b.End.Offset > g.end() {
		list = slices.Clone(list)
		list[i].size = int64(b.End.Offset - g.base)
		s.set(list)
	}
	return nil
}

// limitOf is the greatest possible end of a file: the beginning of the next one. The last file does not grow.
func limitOf(list []segment, i int) ident.Offset {
	if i+1 < len(list) {
		return list[i+1].base
	}
	return list[i].end()
}
