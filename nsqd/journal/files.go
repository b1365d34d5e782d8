package journal

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

const (
	// maxFree bounds the files that wait for reuse.
	maxFree = 8
	// zeroChunk is the number of bytes zeroed with one call.
	zeroChunk = 1 << 20
)

// rotate makes a free file the current one. It waits until one is ready.
func (j *Journal) rotate() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.mu.free) == 0 && j.mu.err == nil {
		j.mu.waiting = true
		j.filesChanged.Broadcast()
		j.filesChanged.Wait()
	}
	j.mu.waiting = false
	if j.mu.err != nil {
		return j.mu.err
	}
	f := j.mu.free[0]
	j.mu.free = j.mu.free[1:]
	j.mu.used = append(j.mu.used, f)
	if j.file != nil {
		j.gen++
	}
	j.file, j.pos = f, 0
	j.filesChanged.Broadcast()
	return nil
}

// prepare creates free files in advance, so that the writer need not fill one with zeros. Started by
// Start, ends after the writer or with an error, waited for by Close.
func (j *Journal) prepare() {
	defer j.done.Done()
	for {
		j.mu.Lock()
		// While closing, the writer may still need files for queued submissions.
		for !j.mu.ended && j.mu.err == nil && (len(j.mu.free) > 0 || j.mu.closing && !j.mu.waiting) {
			j.filesChanged.Wait()
		}
		stop := j.mu.ended || j.mu.err != nil
		number := j.mu.created
		j.mu.created++
		j.mu.Unlock()
		if stop {
			return
		}
		f, err := j.create(number)
		if err != nil {
			j.Fail(err)
			return
		}
		j.mu.Lock()
		j.mu.free = append(j.mu.free, f)
		j.filesChanged.Broadcast()
		j.mu.Unlock()
	}
}

// create creates a file of written zeros: syncing into blocks that were only allocated takes nearly twice as long.
func (j *Journal) create(number uint64) (*logFile, error) {
	name := fileName(j.o.Dir, number)
	f, err := j.o.FS.Create(name)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	zeroes := make([]byte, min(zeroChunk, j.o.FileBytes))
	for at := int64(0); at < j.o.FileBytes; at += int64(len(zeroes)) {
		n := min(int64(len(zeroes)), j.o.FileBytes-at)
		if _, err := f.WriteAt(zeroes[:n], at); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("journal: zero %s: %w", name, err)
		}
	}
	if err = f.Sync(); err == nil {
		err = j.o.FS.SyncDir(j.o.Dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("journal: sync %s: %w", name, err)
	}
	return j.use(f, name), nil
}

// use prepares a file of zeros or of old groups for writing. Its groups are read only after a crash,
// so they bypass the page cache, unless NoSync leaves them there.
func (j *Journal) use(f vfs.File, name string) *logFile {
	return &logFile{File: f, name: name, direct: !j.o.NoSync && !j.o.Mixed && f.Direct()}
}

// Release reports that a durable checkpoint includes all groups up to group. Files without newer groups are reused, or
// removed if there are too many, but not so many that fewer are left than Mark.Files may have counted: the current file
// may have no durable group yet.
func (j *Journal) Release(group uint64) error {
	j.mu.Lock()
	var drop []*logFile
	for len(j.mu.used) > 1 && j.mu.used[0].last <= group {
		f := j.mu.used[0]
		j.mu.used = j.mu.used[1:]
		if len(j.mu.free) < maxFree || j.mu.begun <= maxFree {
			j.mu.free = append(j.mu.free, f)
		} else {
			drop = append(drop, f)
			j.mu.begun--
		}
	}
	j.filesChanged.Broadcast()
	j.mu.Unlock()
	for _, f := range drop {
		err := f.Close()
		if err == nil {
			err = j.o.FS.Remove(f.name)
		}
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}
