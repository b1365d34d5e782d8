package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	identityName   = "store.json"
	identityFormat = 1
)

// identity is store.json. On disk, by name (JSON): fields are added, never renamed. Store is renewed when the bytes
// become doubtful. Slot never changes, because it names the folder in the journal and the checkpoint.
type identity struct {
	Format int           `json:"format"`
	Store  ident.StoreID `json:"store"`
	Slot   ident.StoreID `json:"slot"`
	CRC    uint32        `json:"crc"` // of the other three
}

// checksum detects a damaged identity, such as one with a changed digit.
func (id identity) checksum() uint32 {
	return crc32.Checksum(fmt.Appendf(nil, "%d %s %s", id.Format, id.Store, id.Slot), castagnoli)
}

func (s *Store) writeIdentity(p *Partition) error {
	id := identity{Format: identityFormat, Store: p.storeID, Slot: ident.StoreID(p.slot)}
	id.CRC = id.checksum()
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return writeFile(s.o.FS, path.Join(p.dir, identityName), append(b, '\n'))
}

func (s *Store) readIdentity(p *Partition) error {
	b, err := vfs.ReadFile(s.o.FS, path.Join(p.dir, identityName))
	if err != nil {
		return err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.Format != identityFormat || id.Store == 0 || id.Slot == 0 || id.CRC != id.checksum() {
		return fmt.Errorf("%w: %s", ErrCorrupt, path.Join(p.dir, identityName))
	}
	p.storeID, p.slot = id.Store, uint64(id.Slot)
	return nil
}

func (s *Store) newPartition(topic string, id ident.Partition) (*Partition, error) {
	p := &Partition{store: s, id: id, topic: topic, dir: s.partitionDir(topic, id), tailMax: s.o.TailBytes}
	var err error
	if p.segments, err = openSegments(s.o.FS, s.files, p.dir, s.o.SegmentBytes); err != nil {
		return nil, err
	}
	if p.index, err = commitlog.Open(s.o.FS, s.files, p.dir); err != nil {
		return nil, err
	}
	return p, nil
}

// Create creates an empty partition with a new store id, durably, even after an interrupted Create. Errors: errExists;
// ErrDiskFull, after which it may be repeated; or another error of the disk, which stops the store.
func (s *Store) Create(topic string, id ident.Partition) (*Partition, error) {
	if _, ok := s.Partition(id); ok {
		return nil, fmt.Errorf("%w: %s", errExists, id)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	p, err := s.create(topic, id)
	if err != nil {
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		if full && !errors.Is(err, errFolder) {
			return nil, fmt.Errorf("%w: %w", ErrDiskFull, err)
		}
		s.fail(err)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.partitions[id]; ok {
		return nil, fmt.Errorf("%w: %s", errExists, id)
	}
	s.mu.partitions[id] = p
	return p, nil
}

func (s *Store) create(topic string, id ident.Partition) (*Partition, error) {
	s.topicFolders.RLock()
	err := s.o.FS.MkdirAll(s.partitionDir(topic, id))
	s.topicFolders.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	p, err := s.newPartition(topic, id)
	if err != nil {
		return nil, err
	}
	p.storeID, p.slot = ident.NewStoreID(), newSlot()
	p.durable.dirty = true
	if err := s.writeIdentity(p); err != nil {
		return nil, err
	}
	return p, s.syncFolders(p)
}

// newSlot returns a random number for a folder. The low numbers belong to the checkpoint.
func newSlot() uint64 {
	for {
		if slot := uint64(ident.NewStoreID()); slot >= reservedSlots {
			return slot
		}
	}
}

// syncFolders makes a partition's folder durable, with all folders above it.
func (s *Store) syncFolders(p *Partition) error {
	return syncDirs(s.o.FS, p.dir, path.Dir(p.dir), s.topicsDir())
}

// errFolder is a failed sync of a folder. A repeated sync may succeed without the lost entries.
var errFolder = errors.New("store: sync the folder")

func syncDirs(fs vfs.FS, dirs ...string) error {
	for _, dir := range dirs {
		if err := fs.SyncDir(dir); err != nil {
			return fmt.Errorf("%w %s: %w", errFolder, dir, err)
		}
	}
	return nil
}

// Trash removes a partition: it renames the folder into the trash, durably. The caller submits nothing more for the
// partition. Errors: errUnknown, or an error of the disk, which stops the store.
func (s *Store) Trash(id ident.Partition) error {
	s.mu.Lock()
	p, ok := s.mu.partitions[id]
	delete(s.mu.partitions, id)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: %s", errUnknown, id)
	}
	p.files.Lock()
	defer p.files.Unlock()
	p.trashed = true
	clear(p.durable.pending)
	p.durable.pending = nil
	p.mu.Lock()
	p.dropTailLocked(p.mu.end.Offset)
	p.mu.Unlock()
	err := errors.Join(p.segments.close(), p.index.Close())
	if err == nil {
		err = s.moveToTrash(p)
	}
	if err != nil {
		err = fmt.Errorf("store: trash %s: %w", id, err)
		s.fail(err)
	}
	return err
}

func (s *Store) moveToTrash(p *Partition) error {
	s.topicFolders.RLock()
	defer s.topicFolders.RUnlock()
	to := fmt.Sprintf("%s.%s.%d.%d", p.topic, p.id.Topic, p.id.Number, time.Now().UnixNano())
	if err := s.o.FS.Rename(p.dir, path.Join(s.trashDir(), to)); err != nil {
		return err
	}
	return syncDirs(s.o.FS, path.Dir(p.dir), s.trashDir())
}

// EmptyTrash deletes partitions that were removed before the grace time, and the folders of empty topics.
func (s *Store) EmptyTrash(olderThan time.Duration) error {
	names, err := s.o.FS.List(s.trashDir())
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	limit := time.Now().Add(-olderThan).UnixNano()
	for _, name := range names {
		at, err := strconv.ParseInt(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
		if err != nil || at > limit {
			continue
		}
		partition := strings.TrimSuffix(name, path.Ext(name))
		err = s.dropTopicFolder(strings.TrimSuffix(partition, path.Ext(partition)))
		if err == nil {
			err = s.o.FS.RemoveAll(path.Join(s.trashDir(), name))
		}
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// dropTopicFolder removes the folder of a topic if it has no partition. Otherwise every topic that ever existed would
// leave a folder. If a power cut undoes the removal, an empty folder stays, which is harmless.
func (s *Store) dropTopicFolder(name string) error {
	s.topicFolders.Lock()
	defer s.topicFolders.Unlock()
	dir := path.Join(s.topicsDir(), name)
	left, err := s.o.FS.List(dir)
	switch {
	case errors.Is(err, vfs.ErrNotExist):
		return nil // removed with another partition of the topic
	case err != nil || len(left) > 0:
		return err
	}
	return s.o.FS.Remove(dir)
}

// TrimHead removes the segments that end at or below a position (retention). The newest segment always stays. While the
// segments lag behind a cut of the log, their bounds are not those of the log, and TrimHead removes nothing.
func (p *Partition) TrimHead(below ident.Position) error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return nil
	}
	start, some := p.segments.startAfterTrim(below.Offset)
	if !some {
		return nil
	}
	first, prevCRC := p.boundaryOnDisk(start)
	p.mu.Lock()
	if p.mu.cuts != p.durable.cuts {
		p.mu.Unlock()
		return nil
	}
	p.mu.first = first // set before the files are removed: a reader from the old start would find nothing there
	p.mu.quarantine.retain(first.Offset, p.mu.end.Offset)
	p.mu.Unlock()
	if err := p.segments.trimHead(below.Offset); err != nil {
		p.store.fail(err) // a failed sync of the folder must not be retried
		return err
	}
	p.durable.start, p.durable.startCRC, p.durable.dirty = first, prevCRC, true
	return p.index.TrimHead(first)
}

// HeadEnd is the end of the oldest segment; false while it is the only one, which TrimHead does not remove.
func (p *Partition) HeadEnd() (ident.Offset, bool) { return p.segments.headEnd() }

// firstOnDisk is the position at which the first segment begins, and the checksum from which its first batch continues.
func (p *Partition) firstOnDisk() (first ident.Position, prevCRC uint32) {
	o, ok := p.segments.start()
	if !ok {
		return p.durable.end, p.durable.lastCRC
	}
	return p.boundaryOnDisk(o)
}

// boundaryOnDisk is firstOnDisk for any segment, by its first offset. A segment without a batch is
// the only one: retention removed the earlier ones, and a cut emptied it.
func (p *Partition) boundaryOnDisk(o ident.Offset) (first ident.Position, prevCRC uint32) {
	first, empty := ident.Position{Offset: o, Sequence: p.durable.start.Sequence}, true
	_, err := p.segments.headers(o, p.segments.end(), func(b queue.Batch) bool {
		first.Sequence, prevCRC, empty = b.At.Sequence, b.PrevCRC, false
		return false
	})
	if empty && o == p.durable.end.Offset {
		return p.durable.end, p.durable.lastCRC
	}
	if r, ok := p.index.AtOffset(o); err != nil && ok {
		first.Sequence, prevCRC = r.First, r.PrevCRC
	}
	return first, prevCRC
}

// folder is a partition's topic and id, as named by its folder.
type folder struct {
	topic string
	id    ident.Partition
}

func (s *Store) folders() (all []folder, err error) {
	topics, err := s.o.FS.List(s.topicsDir())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, name := range topics {
		dot := strings.LastIndexByte(name, '.')
		topicID, err := strconv.ParseUint(name[dot+1:], 16, 64)
		if dot <= 0 || err != nil {
			s.o.Log.WithField("folder", name).Warn("ignoring a folder that belongs to no topic")
			continue
		}
		numbers, err := s.o.FS.List(path.Join(s.topicsDir(), name))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		for _, number := range numbers {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				continue
			}
			all = append(all, folder{topic: name[:dot], id: ident.Partition{Topic: ident.TopicID(topicID), Number: uint16(n)}})
		}
	}
	return all, nil
}

// load opens one folder found at start; nil if an interrupted Create left it.
func (s *Store) load(topic string, id ident.Partition) (p *Partition, doubtful bool, err error) {
	if p, err = s.newPartition(topic, id); err != nil {
		return nil, false, err
	}
	err = s.readIdentity(p)
	_, hasSegments := p.segments.start()
	switch {
	case errors.Is(err, vfs.ErrNotExist) && !hasSegments:
		return nil, false, nil
	case errors.Is(err, vfs.ErrNotExist) || errors.Is(err, ErrCorrupt):
		s.o.Log.WithError(err).WithField("topic", topic).WithField("partition", id.Number).
			Error("the folder's identity is lost, the partition gets a new store id and lacks its writes in the journal")
		p.storeID, p.slot, doubtful = ident.NewStoreID(), newSlot(), true
	case err != nil:
		return nil, false, err
	}
	if p.durable.history, err = readSnapshot(s.o.FS, p.dir); errors.Is(err, ErrCorrupt) {
		s.o.Log.WithError(err).WithField("topic", topic).WithField("partition", id.Number).
			Error("the channel snapshot is damaged, the channels start from the state in the journal")
		return p, true, nil
	}
	return p, doubtful, err
}
