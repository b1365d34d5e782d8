package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/lockstepmq/lockstep/internal/mutation"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

const (
	// keepBufferBytes bounds the group buffers kept between groups.
	keepBufferBytes = 8 << 20
	// newBufferBytes is what a group buffer has at first: enough for memory of
	// its own pages, so that vfs.Aligned need not copy.
	newBufferBytes = 64 << 10
)

// ErrClosed answers what is submitted after Close.
var ErrClosed = errors.New("journal: closed")

// Appender encodes a submission at the end of b.
type Appender interface{ AppendTo(b []byte) []byte }

// Durable says that all submissions up to number N are durable, the last of them
// in Group, whose header crc is CRC. Files is as in Mark.
type Durable struct {
	N     uint64
	Group uint64
	CRC   uint32
	Files int
}

// Options of a journal.
type Options struct {
	FS        vfs.FS
	Dir       string
	FileBytes int64 // of one file, a multiple of 4096
	NoSync    bool  // leave syncing to the kernel: --durability=replicated
}

// Journal is an open journal. Its goroutines are started by Start and end in
// Close.
type Journal struct {
	o       Options
	durable func(Durable, error)
	mu      struct {
		sync.Mutex
		buf     []byte // the group that fills: room for its header, then bodies
		n       uint64 // submissions so far
		taken   uint64 // submissions that the writer has taken
		err     error  // final
		told    bool   // the owner knows of err
		closing bool
		waiting bool       // the writer waits for a free file
		ended   bool       // the writer has returned
		free    []*logFile // ready to be written
		used    []*logFile // oldest first; the last is the writer's
		created uint64     // number for the next new file
		begun   int        // how many files a group was ever written to
		mark    Mark       // the newest durable group
		written int64      // bytes written by this run
		syncs   int64      // fdatasyncs of groups by this run
	}
	wake sync.Cond // on mu: something was submitted, closing, error
	room sync.Cond // on mu: free files changed
	done sync.WaitGroup

	writing sync.Mutex // the goroutine's, or that of a Flush; taken before mu
	// Of who is writing.
	spare  []byte
	file   *logFile
	pos    int64
	gen    uint64
	synced uint64
	next   uint64
	crc    uint32
}

type logFile struct {
	vfs.File
	name   string
	direct bool   // written past the page cache
	begun  bool   // a group was ever written to it
	last   uint64 // highest group in it
}

// Open replays the groups after the mark; on return what it gave is durable, so
// the caller may change files by it. The journal accepts submissions, but writes
// none before Start: by then the caller must have everything replayed in a durable
// checkpoint, because the files are used again from the beginning.
func Open(o Options, from Mark, visit func(body []byte) error) (*Journal, Recovery, error) {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, Recovery{}, fmt.Errorf("journal: %w", err)
	}
	images, err := readImages(o.FS, o.Dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	r := &replayer{next: from.Group + 1, crc: from.CRC, synced: from.Synced, highest: from.Synced}
	if err := r.replay(images, visit); err != nil {
		return nil, r.Recovery, err
	}
	r.judgeFiles(images, from)
	if !o.NoSync {
		if err := r.harden(o.FS, o.Dir, images); err != nil {
			return nil, r.Recovery, err
		}
	}
	if r.gen == 0 {
		r.gen = rand.Uint64N(1 << 62) // see replayer.ours
	}
	j := &Journal{o: o, gen: r.gen + 1, crc: r.crc}
	// The number of a torn group whose header is lost too is not used again.
	j.next = max(r.next, r.highest+1) + 1
	j.synced = j.next - 1
	j.mu.mark = Mark{Group: j.synced, CRC: j.crc, Synced: j.synced}
	j.wake.L, j.room.L = &j.mu, &j.mu
	j.mu.buf, j.spare = newBuffer()[:headerSize], newBuffer()
	for _, im := range images {
		j.mu.created = max(j.mu.created, im.number+1)
		if err := j.adopt(im); err != nil {
			return nil, r.Recovery, err
		}
	}
	return j, r.Recovery, nil
}

func newBuffer() []byte { return make([]byte, 0, newBufferBytes) }

// adopt takes a file of an earlier run for use, unless its size is odd.
func (j *Journal) adopt(im *image) error {
	name := fileName(j.o.Dir, im.number)
	if int64(len(im.data)) != j.o.FileBytes {
		return nil // removed by Start: until then it may be needed again
	}
	f, err := j.o.FS.Open(name)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	used := j.use(f, name)
	if used.begun = im.begun(); used.begun {
		j.mu.begun++
	}
	j.mu.free = append(j.mu.free, used)
	return nil
}

// Start begins to write. durable is called from the journal's goroutine or by
// Flush, once at a time, and must not block; its error is final and is repeated
// for all that follows.
func (j *Journal) Start(durable func(Durable, error)) error {
	j.durable = durable
	if err := j.dropStrays(); err != nil {
		return err
	}
	// A file that an earlier process made may be known to the page cache only.
	if err := j.o.FS.SyncDir(j.o.Dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.done.Add(2)
	go j.write()
	go j.prepare()
	return nil
}

// dropStrays removes files of another size: an oversized group, a changed
// option, or a creation that a crash interrupted.
func (j *Journal) dropStrays() error {
	known := map[string]bool{}
	for _, f := range j.mu.free {
		known[f.name] = true
	}
	images, err := j.o.FS.List(j.o.Dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for _, name := range images {
		if name = j.o.Dir + "/" + name; !known[name] {
			if err := j.o.FS.Remove(name); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
		}
	}
	return nil
}

// Submit adds a submission to the next group and returns its number. It never
// blocks: the caller's admission bounds what is queued. Flush must follow.
func (j *Journal) Submit(a Appender) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.buf = a.AppendTo(j.mu.buf)
	j.mu.n++
	if !j.o.NoSync {
		j.wake.Signal()
	}
	return j.mu.n
}

// Flush sees to it that what was submitted is written. A group that is not synced
// is but a copy to the page cache, less than it takes to wake the journal's
// goroutine: the caller writes it, and durable is called before Flush returns,
// unless somebody writes already or a new file is due. The caller must hold
// nothing that durable wants.
func (j *Journal) Flush() {
	if !j.o.NoSync {
		return
	}
	if j.writing.TryLock() {
		defer j.writing.Unlock()
		if j.fits() {
			j.writeQueued()
			return
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wake.Signal()
}

// fits reports whether what is queued goes into the present file.
func (j *Journal) fits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil && j.pos+int64(len(j.mu.buf)) <= j.o.FileBytes && j.mu.err == nil
}

// Fail stops the journal with an error that happened elsewhere in the store.
func (j *Journal) Fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.err == nil {
		j.mu.err = err
	}
	j.wake.Signal() // the writer tells the owner even if nothing is submitted
	j.room.Broadcast()
}

// Err is the error that stopped the journal.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.err
}

// Mark is the newest durable group; right after Open, what the first
// checkpoint must say.
func (j *Journal) Mark() Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.mu.mark
	if m.Files = j.filesLocked(); m.Files > 0 {
		m.FileBytes = j.o.FileBytes
	}
	return m
}

// filesLocked is how many files with groups there are from now on, at least: more than
// so many that are free are removed. Of what is not synced nothing is known.
func (j *Journal) filesLocked() int {
	if j.o.NoSync {
		return 0
	}
	return min(j.mu.begun, maxFree)
}

// Written is how many bytes this run has written.
func (j *Journal) Written() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.written
}

// Syncs is how many groups this run has synced.
func (j *Journal) Syncs() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.syncs
}

// Close writes what is queued, waits for the goroutines and closes the files.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.mu.closing = true
	j.wake.Signal()
	j.room.Broadcast()
	j.mu.Unlock()
	j.done.Wait()
	j.writing.Lock() // a Flush may still be at it
	defer j.writing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.mu.err
	for _, f := range append(j.mu.free, j.mu.used...) {
		err = errors.Join(err, f.Close())
	}
	j.mu.free, j.mu.used = nil, nil
	if j.mu.err == nil {
		j.mu.err = ErrClosed
	}
	return err
}

// write is the journal's goroutine: take all, write, sync, tell, repeat. Started
// by Start, ends when Close has been called and nothing is queued.
func (j *Journal) write() {
	defer j.done.Done()
	for j.wait() {
		j.writing.Lock()
		j.writeQueued()
		j.writing.Unlock()
	}
	j.end()
}

// writeQueued writes what is queued as one group, and tells.
func (j *Journal) writeQueued() {
	buf, n, err, ok := j.take()
	if !ok {
		return // somebody else did
	}
	d := Durable{N: n}
	if err == nil {
		if err = j.writeGroup(buf); err != nil {
			j.Fail(err)
		}
		d.Group, d.CRC, d.Files = j.next-1, j.crc, j.Mark().Files
	}
	if cap(buf) > keepBufferBytes {
		buf = newBuffer()
	}
	j.spare = buf[:0]
	j.durable(d, err)
}

// end lets prepare go: no file is needed any more.
func (j *Journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.ended = true
	j.room.Broadcast()
}

// dueLocked: there are submissions to write, or an error to tell.
func (j *Journal) dueLocked() bool {
	return j.mu.n != j.mu.taken || j.mu.err != nil && !j.mu.told
}

// wait returns when something is due; false: nothing will be any more.
func (j *Journal) wait() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.dueLocked() && !j.mu.closing {
		j.wake.Wait()
	}
	return j.dueLocked()
}

// take takes all submissions.
func (j *Journal) take() (buf []byte, n uint64, err error, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dueLocked() {
		return nil, 0, nil, false
	}
	j.mu.told = j.mu.err != nil
	buf = j.mu.buf
	j.mu.buf = append(j.spare[:0], make([]byte, headerSize)...)
	j.mu.taken = j.mu.n
	return buf, j.mu.n, j.mu.err, true
}

// writeGroup writes and syncs one group. buf has room for the header in front.
func (j *Journal) writeGroup(buf []byte) error {
	size := len(buf)
	if int64(size)-headerSize > math.MaxUint32 {
		return fmt.Errorf("journal: a group of %d bytes is more than one can be", size)
	}
	if j.file == nil || (j.pos > 0 && j.pos+int64(size) > j.o.FileBytes) {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	h := Header{
		Length: uint32(size - headerSize), BodyCRC: crc32.Checksum(buf[headerSize:], castagnoli),
		PrevCRC: j.crc, Generation: j.gen, Group: j.next, Synced: j.synced,
	}
	crc := h.put(buf)
	end := alignUp(int(j.pos)+size, pageBytes) - int(j.pos)
	var page [pageBytes]byte
	buf = append(buf, page[:end-size]...)
	if j.file.direct {
		buf = vfs.Aligned(buf)
	}
	if _, err := j.file.WriteAt(buf, j.pos); err != nil {
		return fmt.Errorf("journal: write group %d: %w", j.next, err)
	}
	if !j.o.NoSync && !mutation.Off(mutation.JournalSync) {
		if err := j.file.Sync(); err != nil {
			return fmt.Errorf("journal: sync group %d: %w", j.next, err)
		}
		j.synced = j.next
	}
	j.pos = int64(alignUp(int(j.pos)+size, Align))
	j.crc = crc
	j.noteGroup(int64(len(buf)))
	return nil
}

func (j *Journal) noteGroup(bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.file.last = j.next
	if !j.file.begun {
		j.file.begun = true
		j.mu.begun++
	}
	j.mu.mark = Mark{Group: j.next, CRC: j.crc, Synced: j.synced}
	j.mu.written += bytes
	if !j.o.NoSync {
		j.mu.syncs++
	}
	j.next++
}
