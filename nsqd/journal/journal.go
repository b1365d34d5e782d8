package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

const (
	// reusedBufferBytes is the largest group buffer that is reused.
	reusedBufferBytes = 8 << 20
	// newBufferBytes is the initial size of a group buffer. It is so large that the buffer is aligned, and vfs.Aligned
	// does not copy it.
	newBufferBytes = 64 << 10
)

// errClosed is the error of submissions after Close.
var errClosed = errors.New("journal: closed")

// Options of a journal.
type Options struct {
	FS        vfs.FS
	Dir       string
	FileBytes int64 // size of one file, a multiple of 4096
	NoSync    bool  // leave the sync to the kernel: --durability=replicated
	Mixed     bool  // SetSync may be called
	// Synced, if not nil, receives the duration of each sync of a group. It must not block.
	Synced func(took time.Duration)
}

// Journal is an open journal. Start starts its goroutines, Close ends them.
type Journal struct {
	o       Options
	durable func(n uint64, at Mark, err error)
	noSync  atomic.Bool // groups are not synced at present
	mu      struct {
		sync.Mutex
		buf      []byte // the next group: room for its header, then bodies
		n        uint64 // submissions so far
		dequeued uint64 // submissions that a writer has dequeued
		err      error  // final
		reported bool   // err was passed to durable
		closing  bool
		waiting  bool       // the writer waits for a free file
		ended    bool       // the writer has returned
		free     []*logFile // ready to be written
		used     []*logFile // oldest first; the writer uses the last
		created  uint64     // number for the next new file
		begun    int        // number of files that ever had a group
		mark     Mark       // the newest durable group
		written  int64      // bytes written by this run
		syncs    int64      // fdatasyncs of groups by this run
	}
	wake         sync.Cond // on mu: something was submitted, closing, error
	filesChanged sync.Cond // on mu: free files changed
	done         sync.WaitGroup

	writing sync.Mutex // held by the goroutine that writes; acquired before mu
	// The fields below belong to the goroutine that holds writing.
	spare  []byte
	file   *logFile
	pos    int64
	gen    uint64
	synced uint64
	next   uint64
	crc    uint32
	acked  *acknowledgements // set by Start

	groups concurrency.Stopwatch // measures the group that is being written
}

type logFile struct {
	vfs.File
	name   string
	direct bool   // written bypassing the page cache
	begun  bool   // the file has held a group at some time
	last   uint64 // highest group in it
}

// Open replays the groups after the mark. On return they are durable, so the caller may change files because of them.
// The journal accepts submissions but writes none before Start. Before it calls Start, the caller must have made a
// durable checkpoint of everything replayed, because Start reuses the files from the beginning.
func Open(o Options, from Mark, visit func(body []byte) error) (*Journal, Recovery, error) {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, Recovery{}, fmt.Errorf("journal: %w", err)
	}
	images, err := readImages(o.FS, o.Dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	acked, err := Acknowledged(o.FS, o.Dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	known := max(from.Synced, acked)
	r := &replayer{next: from.Group + 1, crc: from.CRC, synced: known, highest: known}
	if err := r.replay(images, visit); err != nil {
		return nil, r.Recovery, err
	}
	r.judgeFiles(images, from)
	if !o.NoSync {
		if err := r.rewriteUnsynced(o.FS, o.Dir, images); err != nil {
			return nil, r.Recovery, err
		}
	}
	if r.gen == 0 {
		r.gen = rand.Uint64N(1 << 62) // see replayer.isOwn
	}
	j := &Journal{o: o, gen: r.gen + 1, crc: r.crc}
	j.noSync.Store(o.NoSync)
	// This also avoids reusing the number of a torn group whose header is lost.
	j.next = max(r.next, r.highest+1) + 1
	j.synced = j.next - 1
	j.mu.mark = Mark{Group: j.synced, CRC: j.crc, Synced: j.synced}
	j.wake.L, j.filesChanged.L = &j.mu, &j.mu
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

// adopt reuses a file of an earlier run, unless its size differs.
func (j *Journal) adopt(im *image) error {
	name := fileName(j.o.Dir, im.number)
	if int64(len(im.data)) != j.o.FileBytes {
		return nil // Start removes it; a recovery before that may need it
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

// Start begins to write. durable reports that all submissions up to number n are durable, and the mark after them, once
// at a time. It must not block. Its error is final and is repeated for all later submissions.
func (j *Journal) Start(durable func(n uint64, at Mark, err error)) error {
	j.durable = durable
	if err := j.removeStrays(); err != nil {
		return err
	}
	var err error
	if j.acked, err = openAcknowledgements(j.o, &j.noSync, j.next-1, j.Fail); err != nil {
		return err
	}
	// The entry of a file that an earlier process created may exist only in the page cache.
	if err := j.o.FS.SyncDir(j.o.Dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.done.Add(2)
	go j.write()
	go j.prepare()
	return nil
}

// removeStrays removes files of another size: made for an oversized group, made under another option, or incomplete.
func (j *Journal) removeStrays() error {
	known := map[string]bool{j.o.Dir + "/" + ackName: true}
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

// Submit adds a submission, which AppendTo encodes at the end of b, to the next group and returns its
// number. It never blocks: the caller bounds the queued bytes. Flush must follow.
func (j *Journal) Submit(a interface{ AppendTo(b []byte) []byte }) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.buf = a.AppendTo(j.mu.buf)
	j.mu.n++
	if !j.noSync.Load() {
		j.wake.Signal()
	}
	return j.mu.n
}

// Flush makes the journal write the submissions. With NoSync a group is only a copy to the page cache, which takes less
// than waking the journal's goroutine. So the caller writes it, and durable is called before Flush returns, unless
// another goroutine writes already or a new file is due. The caller must hold no lock that durable takes.
func (j *Journal) Flush() {
	if !j.noSync.Load() {
		return
	}
	if j.writing.TryLock() {
		defer j.writing.Unlock()
		if j.fits() {
			j.writeQueued()
			return
		}
	}
	j.Wake()
}

// Wake notifies the journal's goroutine that submissions are queued. It does not wait.
func (j *Journal) Wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wake.Signal()
}

func (j *Journal) fits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil && j.pos+int64(len(j.mu.buf)) <= j.o.FileBytes && j.mu.err == nil
}

// SetSync starts or ends the sync of groups (Options.Mixed). It does not make earlier groups more durable; the caller
// makes a checkpoint for that. SetSync waits for the group in progress.
func (j *Journal) SetSync(on bool) {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.noSync.Store(!on)
	j.Wake() // submissions may be queued without a Flush
}

// Fail stops the journal with an error from another part of the store.
func (j *Journal) Fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.err == nil {
		j.mu.err = err
	}
	j.wake.Signal() // the writer calls durable even if nothing is submitted
	j.filesChanged.Broadcast()
}

// Mark is the mark of the newest durable group. Right after Open it is the mark for the first checkpoint.
func (j *Journal) Mark() Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.mu.mark
	if j.mu.begun > 0 && !j.o.NoSync && !j.o.Mixed { // without syncs nothing is known to be durable
		m.Files, m.FileBytes = min(j.mu.begun, maxFree), j.o.FileBytes // further free files are removed
	}
	return m
}

// Written is the number of groups that this run has synced, and the bytes that it has written.
func (j *Journal) Written() (syncs, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.syncs, j.mu.written
}

// Busy is the time for which a group, or the acknowledgement record, has been waiting for the disk; 0 if neither is. It
// grows while the disk hangs, with and without NoSync. It counts from the first call during the operation, so a
// watchdog calls it regularly. It takes no lock.
func (j *Journal) Busy() time.Duration { return max(j.groups.Busy(), j.acked.watch.Busy()) }

// Barrier returns after durable has returned for every group that any goroutine could see before the call.
func (j *Journal) Barrier() {
	j.writing.Lock()
	defer j.writing.Unlock()
}

// Close writes the queued submissions, waits for the goroutines and closes the files.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.mu.closing = true
	j.wake.Signal()
	j.filesChanged.Broadcast()
	j.mu.Unlock()
	j.done.Wait()
	j.writing.Lock() // wait for a Flush that is still writing
	defer j.writing.Unlock()
	var ackErr error
	if j.acked != nil {
		ackErr = j.acked.close() // not under j.mu, because it may call Fail, which takes j.mu
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	err := errors.Join(j.mu.err, ackErr)
	for _, f := range append(j.mu.free, j.mu.used...) {
		err = errors.Join(err, f.Close())
	}
	j.mu.free, j.mu.used = nil, nil
	if j.mu.err == nil {
		j.mu.err = errClosed
	}
	return err
}

// write is the journal's goroutine: it takes all submissions, writes and syncs them, calls durable,
// and repeats. Started by Start, ends when Close was called and nothing is queued.
func (j *Journal) write() {
	defer j.done.Done()
	for j.wait() {
		j.writing.Lock()
		j.writeQueued()
		j.writing.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.ended = true // no further file is needed
	j.filesChanged.Broadcast()
}

// writeQueued writes the queued submissions as one group and calls durable.
func (j *Journal) writeQueued() {
	buf, n, err, ok := j.take()
	if !ok {
		return // another goroutine has written them
	}
	if err == nil {
		j.groups.Begin()
		if err = j.writeGroup(buf); err != nil {
			j.Fail(err)
		}
		j.groups.End()
	}
	at := j.Mark()
	if cap(buf) > reusedBufferBytes {
		buf = newBuffer()
	}
	j.spare = buf[:0]
	j.durable(n, at, err)
	if err == nil {
		j.noteAcknowledged(at.Group)
	}
}

// noteAcknowledged records that a group was answered.
func (j *Journal) noteAcknowledged(group uint64) {
	if !j.noSync.Load() { // with NoSync the timer writes it
		j.groups.Begin()
		defer j.groups.End()
	}
	if err := j.acked.note(group); err != nil {
		j.Fail(err)
	}
}

// dueLocked reports whether there are submissions to write, or an error to report.
func (j *Journal) dueLocked() bool {
	return j.mu.n != j.mu.dequeued || j.mu.err != nil && !j.mu.reported
}

// wait returns when a submission or an error is due. False: the journal is closed, and nothing will become due.
func (j *Journal) wait() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.dueLocked() && !j.mu.closing {
		j.wake.Wait()
	}
	return j.dueLocked()
}

func (j *Journal) take() (buf []byte, n uint64, err error, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dueLocked() {
		return nil, 0, nil, false
	}
	j.mu.reported = j.mu.err != nil
	buf = j.mu.buf
	j.mu.buf = append(j.spare[:0], make([]byte, headerSize)...)
	j.mu.dequeued = j.mu.n
	return buf, j.mu.n, j.mu.err, true
}

// writeGroup writes and syncs one group. buf has room for the header in front.
func (j *Journal) writeGroup(buf []byte) error {
	size := len(buf)
	if int64(size)-headerSize > math.MaxUint32 {
		return fmt.Errorf("journal: a group of %d bytes exceeds the limit of 4 GiB", size)
	}
	if j.file == nil || (j.pos > 0 && j.pos+int64(size) > j.o.FileBytes) {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	h := header{
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
	if !j.noSync.Load() {
		began := time.Now()
		err := j.file.Sync()
		if j.o.Synced != nil {
			j.o.Synced(time.Since(began))
		}
		if err != nil {
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
	if !j.noSync.Load() {
		j.mu.syncs++
	}
	j.next++
}
