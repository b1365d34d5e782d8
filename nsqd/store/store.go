package store

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// DefaultOpenFiles is the default of Options.OpenFiles.
const DefaultOpenFiles = 4096

// The other defaults of Options.
const (
	defaultSegmentBytes    = 64 << 20
	defaultJournalBytes    = 16 << 20
	defaultCheckpointBytes = 64 << 20
	defaultTailBytes       = 2 << 20 // TailBytes and TailsBytes
	defaultIndexRecords    = 512
	defaultRepeatFor       = 30 * time.Second
)

// Errors of the store.
var (
	// errExists means that Create was called for a partition that exists.
	errExists = errors.New("store: the partition exists")
	// errUnknown means that the partition is not in this store.
	errUnknown = errors.New("store: no such partition")
	// ErrDiskFull means that Create found no space. Nothing was created, and the store continues.
	ErrDiskFull = errors.New("store: the disk is full")
	// errClosed means that Close was called.
	errClosed = errors.New("store: closed")
)

// Options of a store. Zero sizes mean the defaults.
type Options struct {
	FS              vfs.FS
	Dir             string
	BootID          string        // boot id of the machine, for unsynced operation
	SegmentBytes    int64         // size of one segment file
	JournalBytes    int64         // size of one journal file
	CheckpointBytes int64         // bytes of journal between checkpoints
	TailBytes       int           // bytes of recent batches in memory, per partition
	TailsBytes      int64         // bytes of recent batches in memory, for all partitions together
	IndexRecords    int           // records of a partition that collect before they are written
	OpenFiles       int           // file handles that stay open between uses
	SyncTogether    int           // changed partitions from which on a checkpoint syncs the file system instead of each file
	NoSync          bool          // acknowledge from the page cache: --durability=replicated
	Mixed           bool          // SetSync may be called: each topic has its own durability
	RepeatFor       time.Duration // time within which an edge may repeat a put
	Log             logrus.FieldLogger
	// JournalSynced and Checkpointed, if not nil, receive durations. They must not block.
	JournalSynced, Checkpointed func(took time.Duration)
	// Doubt, if not nil, is a reason why the directory may lack data that was acknowledged from it
	// (it was restored from a copy). Every partition then gets a new store id.
	Doubt error
	// Compact combines a full version of the channel state and its deltas into one full version. It is optional. The
	// writer calls it at a checkpoint, without a lock of the caller's, when many deltas have accumulated.
	Compact func(topic string, id ident.Partition, versions []queue.StateVersion) (full []byte, ok bool)
}

// Sink receives the completion of submissions. It is called from the journal's goroutine, or with NoSync from the
// goroutine that calls Flush, once at a time. It must not block. An error is final: the store has stopped.
type Sink interface{ Synced(token uint64, err error) }

// Submission is the writes of one partition.
type Submission struct {
	Partition *Partition
	Writes    []queue.Write
}

// Store is an open data directory.
type Store struct {
	o         Options
	files     *vfs.Cache
	disk      vfs.Disk // nil if the file system cannot be synced as a whole
	journal   *journal.Journal
	writer    writer
	tails     tails
	readCache readCache
	damaged   chan struct{} // capacity 1: a range went into quarantine
	failed    chan struct{} // closed by the first error that stops the store
	doubt     error         // set by Open

	noSync atomic.Bool // groups may be unsynced; each checkpoint states it for the groups that follow
	modes  sync.Mutex  // held by SetSync

	order   sync.Mutex // makes the order in the journal equal to the order in mu.unsynced
	encoder encoder    // guarded by order

	topicFolders sync.RWMutex // write-locked to remove a topic's folder; read-locked to add or remove its partitions

	mu struct {
		sync.Mutex
		partitions map[ident.Partition]*Partition
		unsynced   []*pendingSubmit // submitted and not durable
		err        error
		closed     bool
	}
	pendingPool sync.Pool // of *pendingSubmit
}

// Partitions returns all partitions, in the order of topic id and number.
func (s *Store) Partitions() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.mu.partitions), func(a, b *Partition) int { return a.id.Compare(b.id) })
}

// Partition finds a partition by its id.
func (s *Store) Partition(id ident.Partition) (*Partition, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.mu.partitions[id]
	return p, ok
}

// FreeBytes is the free space of the disk. The caller refuses puts before a write fails with ENOSPC.
func (s *Store) FreeBytes() (uint64, error) { return s.o.FS.FreeBytes(s.o.Dir) }

// Journalled returns the number of groups that this run has synced, and the bytes of its journal.
func (s *Store) Journalled() (syncs, bytes int64) { return s.journal.Written() }

// Synced reports whether all later writes are synced to the disk before they are acknowledged.
func (s *Store) Synced() bool { return !s.noSync.Load() }

// SetSync decides whether acknowledged data is synced to the disk from its return on, or
// left in the page cache (Options.Mixed). It makes a checkpoint or two and waits for them.
//
// A checkpoint states whether the groups after it survive a power cut. So it states "not synced" before the first group
// without a sync, and "synced" only when a checkpoint that followed the last such group is durable.
func (s *Store) SetSync(on bool) error {
	s.modes.Lock()
	defer s.modes.Unlock()
	if on == s.Synced() {
		return nil
	}
	if !on {
		s.noSync.Store(true)
		if err := s.Checkpoint(); err != nil {
			return err
		}
		s.journal.SetSync(false)
		return nil
	}
	s.journal.SetSync(true)
	if err := s.Checkpoint(); err != nil {
		return err
	}
	s.noSync.Store(false)
	return s.Checkpoint()
}

// Busy is the time for which a group of submissions has been waiting for the disk; 0 if there is none. Busy does not
// block, even if the disk hangs. With NoSync the call that hangs is Flush. Any goroutine may call it.
func (s *Store) Busy() time.Duration { return s.journal.Busy() }

// Err is the error that stopped the store, nil while it works.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// Failed is closed when an error has stopped the store: Err returns it.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// fail stops the store with its first error.
func (s *Store) fail(err error) {
	s.mu.Lock()
	first := s.mu.err == nil && !s.mu.closed
	if s.mu.err == nil {
		s.mu.err = err
		close(s.failed)
	}
	s.mu.Unlock()
	if first {
		s.o.Log.WithError(err).Error("store stopped, the broker acknowledges nothing from now on")
	}
	s.journal.Fail(err)
}

// Checkpoint writes everything that is durable to the segments, syncs them, and lets the journal reuse its files. The
// store also makes a checkpoint by itself every CheckpointBytes. Errors: errClosed, or the error that stopped the
// store.
func (s *Store) Checkpoint() error { return s.writer.ask(nil) }

// Close answers all submissions, makes a checkpoint unless the store has stopped, and closes the files.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.mu.closed = true
	s.mu.Unlock()
	err := s.journal.Close()
	err = errors.Join(err, s.writer.close())
	return errors.Join(err, s.closeFiles())
}

func (s *Store) closeFiles() error {
	err := s.files.Close()
	if s.disk != nil {
		err = errors.Join(err, s.disk.Close())
	}
	return err
}

func (s *Store) topicsDir() string  { return path.Join(s.o.Dir, "topics") }
func (s *Store) trashDir() string   { return path.Join(s.o.Dir, "trash") }
func (s *Store) journalDir() string { return path.Join(s.o.Dir, "journal") }

func (s *Store) checkpointName() string { return path.Join(s.o.Dir, "checkpoint") }

func (s *Store) partitionDir(topic string, id ident.Partition) string {
	return path.Join(s.topicsDir(), fmt.Sprintf("%s.%s", topic, id.Topic), fmt.Sprint(id.Number))
}
