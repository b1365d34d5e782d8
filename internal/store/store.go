package store

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/journal"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The defaults of Options.
const (
	DefaultSegmentBytes    = 64 << 20
	DefaultJournalBytes    = 16 << 20
	DefaultCheckpointBytes = 64 << 20
	DefaultTailBytes       = 2 << 20
	DefaultTailsBytes      = 2 << 20
	DefaultIndexRecords    = 512
	DefaultOpenFiles       = 4096
)

// Errors of the store.
var (
	// ErrExists means that Create was asked for a partition that is there.
	ErrExists = errors.New("store: the partition exists")
	// ErrUnknown means that the partition is not in this store.
	ErrUnknown = errors.New("store: no such partition")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("store: closed")
)

// Options of a store. Zero sizes mean the defaults.
type Options struct {
	FS              vfs.FS
	Dir             string
	BootID          string // of the machine, for unsynced operation
	SegmentBytes    int64  // of one segment file
	JournalBytes    int64  // of one journal file
	CheckpointBytes int64  // of journal between checkpoints
	TailBytes       int    // of recent batches kept in memory, per partition
	TailsBytes      int64  // the same, of all partitions together
	IndexRecords    int    // of a partition that gather before they are written
	OpenFiles       int    // file handles kept between uses
	NoSync          bool   // acknowledge from the page cache: --durability=replicated
	Log             logrus.FieldLogger
	// Doubt, if not nil, is why the caller does not trust the directory to hold all
	// that was acknowledged from it (it was restored from a copy): every partition
	// gets a new store id.
	Doubt error
	// Fold makes one full version of the channel state out of a full one and its
	// deltas. Optional; called by the writer at a checkpoint when deltas have
	// piled up. Not called under a lock of the caller's.
	Fold func(topic string, id ident.Partition, confirms []queue.Confirm) (full []byte, ok bool)
}

// Sink is told about submissions. It is called from the journal's goroutine and
// must not block. An error is final: the store has stopped.
type Sink interface{ Synced(token uint64, err error) }

// Submission is what one partition has to write.
type Submission struct {
	Partition *Partition
	Writes    []queue.Write
}

// Store is an open data directory.
type Store struct {
	o       Options
	files   *vfs.Cache
	journal *journal.Journal
	writer  writer
	tails   tails
	recent  recent
	failed  chan struct{} // closed with the first error
	damaged chan struct{} // capacity 1: a place went into quarantine

	order   sync.Mutex // makes the order in the journal that in mu.waiting
	encoder encoder    // under order

	topicFolders sync.RWMutex // written: a topic's folder goes; read: partitions come into one or leave it

	mu struct {
		sync.Mutex
		partitions map[ident.Partition]*Partition
		waiting    []*work // submitted, not durable
		err        error
		closed     bool
	}
	works sync.Pool // of *work
}

// Partitions are all partitions, in the order of topic id and number.
func (s *Store) Partitions() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Partition, 0, len(s.mu.partitions))
	for _, p := range s.mu.partitions {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Partition) int {
		return cmp.Or(cmp.Compare(a.id.Topic, b.id.Topic), cmp.Compare(a.id.Number, b.id.Number))
	})
	return list
}

// Partition finds one.
func (s *Store) Partition(id ident.Partition) (*Partition, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.mu.partitions[id]
	return p, ok
}

// FreeBytes is what may still be written to the disk: the caller keeps a reserve
// and refuses puts before the store would meet ENOSPC.
func (s *Store) FreeBytes() (uint64, error) { return s.o.FS.FreeBytes(s.o.Dir) }

// Journalled is how many groups of submissions this run has synced, and the
// bytes written to the journal.
func (s *Store) Journalled() (syncs, bytes int64) { return s.journal.Syncs(), s.journal.Written() }

// Err is the error that stopped the store, nil while it works.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// Failed is closed when the store stops because of an error; Err tells which.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// fail stops the store.
func (s *Store) fail(err error) {
	s.mu.Lock()
	first := s.mu.err == nil && !s.mu.closed
	if s.mu.err == nil {
		s.mu.err = err
		close(s.failed)
	}
	s.mu.Unlock()
	if first {
		s.o.Log.WithError(err).Error("store: stopped: nothing is acknowledged any more")
	}
	s.journal.Fail(err)
}

// Checkpoint brings everything that is durable into the segments, syncs them and
// lets the journal begin anew. It runs by itself every CheckpointBytes.
func (s *Store) Checkpoint() error { return s.writer.request() }

// Close answers what was submitted, makes a checkpoint, unless the store has
// stopped, and closes the files.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.mu.closed = true
	s.mu.Unlock()
	err := s.journal.Close()
	err = errors.Join(err, s.writer.close())
	return errors.Join(err, s.files.Close())
}

func (s *Store) topicsDir() string  { return path.Join(s.o.Dir, "topics") }
func (s *Store) trashDir() string   { return path.Join(s.o.Dir, "trash") }
func (s *Store) journalDir() string { return path.Join(s.o.Dir, "journal") }

func (s *Store) checkpointName() string { return path.Join(s.o.Dir, "checkpoint") }

func (s *Store) partitionDir(topic string, id ident.Partition) string {
	return path.Join(s.topicsDir(), fmt.Sprintf("%s.%s", topic, id.Topic), fmt.Sprint(id.Number))
}
