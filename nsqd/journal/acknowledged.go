package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// ackName is the file with the number of the highest group whose submissions were answered.
const ackName = "acknowledged"

const (
	ackMagic = 0x31414b4c // "LKA1" read little-endian
	ackBytes = 24
	// ackPause is the shortest time between two syncs of the acknowledgement record.
	ackPause = 100 * time.Millisecond
	// ackShare bounds the disk time that the syncs take: each is followed by a pause of ackShare times its duration.
	ackShare = 128
)

// acknowledgements maintains the acknowledgement record: durable evidence, outside of the journal's files, that groups
// were answered. Without it, a journal whose last groups were lost by the disk would look complete.
//
// The writer writes the record after each group to the page cache, and a timer syncs it: a second sync before each
// answer would double the latency of every put. So the record is exact after a kill of the process, and at most one
// pause old after a power cut. With NoSync the timer writes it, and nothing syncs it.
type acknowledgements struct {
	file   vfs.File
	noSync *atomic.Bool // the journal's
	fail   func(error)
	group  atomic.Uint64 // the highest answered group
	armed  atomic.Bool   // the timer or syncRecord runs
	timer  *time.Timer
	pause  time.Duration         // next pause of the timer; belongs to syncRecord while armed
	image  [ackBytes]byte        // belongs to the journal's writer
	watch  concurrency.Stopwatch // of syncRecord

	mu struct { // held by syncRecord during its sync
		sync.Mutex
		closed bool
	}
}

// openAcknowledgements makes the record durable with its first number. Afterwards the first error is passed to fail.
func openAcknowledgements(o Options, noSync *atomic.Bool, group uint64, fail func(error)) (*acknowledgements, error) {
	a := &acknowledgements{noSync: noSync, fail: fail, pause: ackPause}
	name := path.Join(o.Dir, ackName)
	f, err := o.FS.Open(name)
	if errors.Is(err, vfs.ErrNotExist) {
		f, err = o.FS.Create(name)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	a.file = f
	a.group.Store(group)
	if err = a.write(&a.image, group); err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("journal: acknowledgement record: %w", err)
	}
	a.timer = time.AfterFunc(ackPause, a.syncRecord)
	a.timer.Stop() // startTimer starts it
	return a, nil
}

// note records that the submissions up to a group were answered. The writer calls it.
func (a *acknowledgements) note(group uint64) error {
	a.group.Store(group)
	if !a.noSync.Load() {
		if err := a.write(&a.image, group); err != nil {
			return fmt.Errorf("journal: acknowledgement record: %w", err)
		}
	}
	a.startTimer()
	return nil
}

// startTimer schedules syncRecord after the pause, unless it is already scheduled.
func (a *acknowledgements) startTimer() {
	if !a.armed.Load() && a.armed.CompareAndSwap(false, true) {
		a.timer.Reset(a.pause)
	}
}

// syncRecord syncs the record, and schedules itself again if more groups were answered during the sync.
// Started by the timer, ends after the sync, waited for by close.
func (a *acknowledgements) syncRecord() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return
	}
	a.watch.Begin()
	defer a.watch.End()
	group, began := a.group.Load(), time.Now()
	var err error
	if a.noSync.Load() {
		err = a.write(new([ackBytes]byte), group)
	} else {
		err = a.file.Sync()
	}
	if err != nil { // armed stays true: no sync is retried
		a.fail(fmt.Errorf("journal: acknowledgement record: %w", err))
		return
	}
	a.pause = max(ackPause, ackShare*time.Since(began))
	a.armed.Store(false)
	if a.group.Load() != group {
		a.startTimer()
	}
}

// write encodes and writes the record. On disk, by position, append only: see doc.go.
func (a *acknowledgements) write(image *[ackBytes]byte, group uint64) error {
	le := binary.LittleEndian
	le.PutUint32(image[:], ackMagic)
	le.PutUint64(image[8:], group)
	le.PutUint64(image[16:], 0)
	le.PutUint32(image[4:], crc32.Checksum(image[8:], castagnoli))
	_, err := a.file.WriteAt(image[:], 0)
	return err
}

// close stops the timer and waits for syncRecord. The writer has ended before.
func (a *acknowledgements) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	a.timer.Stop()
	return a.file.Close()
}

// Acknowledged reads the acknowledgement record of a journal: the highest group that was answered. It
// is 0 if there is no record or its checksum is wrong. A wrong record proves nothing, and is not an error.
func Acknowledged(fs vfs.FS, dir string) (uint64, error) {
	b, err := vfs.ReadFile(fs, path.Join(dir, ackName))
	if errors.Is(err, vfs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	if len(b) < ackBytes || le.Uint32(b) != ackMagic || le.Uint32(b[4:]) != crc32.Checksum(b[8:ackBytes], castagnoli) {
		return 0, nil
	}
	return le.Uint64(b[8:]), nil
}
