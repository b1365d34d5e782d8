package store

import (
	"fmt"
	"path"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/journal"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Open recovers a data directory and starts the store. The caller holds the lock
// on the directory. A damaged directory opens: what is doubtful has a new store
// id, so that the cluster does not count on it, and the log says so.
func Open(o Options) (*Store, error) {
	s := &Store{o: o.withDefaults(), failed: make(chan struct{}), damaged: make(chan struct{}, 1)}
	s.files = vfs.NewCache(s.o.FS, s.o.OpenFiles)
	s.works.New = func() any { return &work{} }
	s.mu.partitions = map[ident.Partition]*Partition{}
	if err := s.open(); err != nil {
		if s.journal != nil {
			_ = s.journal.Close()
		}
		_ = s.files.Close() // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	o.SegmentBytes = orDefault(o.SegmentBytes, DefaultSegmentBytes)
	o.JournalBytes = orDefault(o.JournalBytes, DefaultJournalBytes)
	o.CheckpointBytes = orDefault(o.CheckpointBytes, DefaultCheckpointBytes)
	o.TailBytes = int(orDefault(int64(o.TailBytes), DefaultTailBytes))
	o.IndexRecords = int(orDefault(int64(o.IndexRecords), DefaultIndexRecords))
	o.TailsBytes = orDefault(o.TailsBytes, DefaultTailsBytes)
	o.OpenFiles = int(orDefault(int64(o.OpenFiles), DefaultOpenFiles))
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	return o
}

func orDefault(n, otherwise int64) int64 {
	if n == 0 {
		return otherwise
	}
	return n
}

// open: folders, checkpoint, partitions, journal; then everything is written
// anew, and only then does the journal take over.
func (s *Store) open() error {
	if err := vfs.MakeDir(s.o.FS, s.o.Dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, dir := range []string{s.topicsDir(), s.trashDir(), s.journalDir()} {
		if err := s.o.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := s.o.FS.SyncDir(s.o.Dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	last, err := readCheckpoint(s.o.FS, s.checkpointName())
	if err == nil && last == nil { // the first start, or one that was killed: the directory itself may be new
		err = s.o.FS.SyncDir(path.Dir(path.Clean(s.o.Dir)))
	}
	if err != nil {
		return err
	}
	r := &reopening{s: s, last: last, slots: map[uint64]*recovery{}}
	if err := r.run(); err != nil {
		return err
	}
	mark := s.journal.Mark()
	s.writer.s = s
	if err := s.writer.checkpoint(mark, true); err != nil {
		return err
	}
	s.writer.start(s, mark)
	if err := s.journal.Start(s.synced); err != nil {
		s.fail(err)
		_ = s.writer.close() // ends with the error just set
		return err
	}
	return nil
}

// reopening is the recovery of all partitions.
type reopening struct {
	s     *Store
	last  *checkpoint // nil: there was none
	slots map[uint64]*recovery
	order []*recovery
	doubt error // about the whole directory
}

func (r *reopening) run() error {
	if err := r.loadAll(); err != nil {
		return err
	}
	mark := journal.Mark{}
	if r.last != nil {
		mark = r.last.mark
	} else if len(r.order) > 0 {
		r.doubt = fmt.Errorf("%w: the checkpoint is lost", ErrCorrupt)
	}
	o := journal.Options{FS: r.s.o.FS, Dir: r.s.journalDir(), FileBytes: (r.s.o.JournalBytes + 4095) &^ 4095, NoSync: r.s.o.NoSync}
	j, found, err := journal.Open(o, mark, r.group)
	if err != nil {
		return err
	}
	r.s.journal = j
	r.judge(found)
	if err := forEach(len(r.order), func(i int) error { return r.finish(r.order[i]) }); err != nil {
		return err
	}
	for _, rec := range r.order {
		r.s.mu.partitions[rec.p.id] = rec.p
	}
	return nil
}

// loadAll opens all folders.
func (r *reopening) loadAll() error {
	folders, err := r.s.folders()
	if err != nil {
		return err
	}
	found := make([]*recovery, len(folders))
	err = forEach(len(folders), func(i int) (err error) {
		found[i], err = r.load(folders[i])
		return err
	})
	for _, rec := range found {
		if rec != nil {
			r.slots[rec.p.slot] = rec
			r.order = append(r.order, rec)
		}
	}
	return err
}

// load opens one folder; nil if there is no partition in it.
func (r *reopening) load(f folder) (*recovery, error) {
	p, doubtful, err := r.s.load(f.topic, f.id)
	if p == nil || err != nil {
		return nil, err
	}
	rec, known := newRecovery(p, entry{}), false
	if r.last != nil {
		if e, ok := r.last.entries[p.slot]; ok {
			rec = newRecovery(p, e)
			known = true
		}
	}
	if !known { // Create may have been killed before it synced the folders
		if err := r.s.syncFolders(p); err != nil {
			return nil, err
		}
	}
	if doubtful && !known || r.last == nil {
		d := &p.durable // nothing else says where it begins and ends
		d.start, d.startCRC = p.firstOnDisk()
		end, last := scanChain(p)
		rec = newRecovery(p, entry{start: d.start, startCRC: d.startCRC, end: end, committed: d.start, lastCRC: last.crc, lastTimeNS: last.time})
		rec.touched, rec.overlap = true, true
	}
	rec.doubtful = doubtful
	return rec, nil
}

// group takes one group of the journal.
func (r *reopening) group(body []byte) error {
	for len(body) > 0 {
		rec, n, err := DecodeRecord(body)
		if err != nil {
			return err
		}
		if p := r.slots[rec.Slot]; p != nil { // else it is in the trash
			if err := p.apply(rec); err != nil {
				return err
			}
		}
		body = body[n:]
	}
	return nil
}

// judge decides whether the directory as a whole is doubtful.
func (r *reopening) judge(found journal.Recovery) {
	log := r.s.o.Log.WithFields(logrus.Fields{"groups": found.Groups, "bytes": found.Bytes, "salvaged": found.Salvaged})
	switch {
	case found.Corrupt != nil:
		r.doubt = found.Corrupt
	case r.doubt == nil && r.s.o.Doubt != nil:
		r.doubt = r.s.o.Doubt
	case r.last != nil && (r.s.o.NoSync || r.last.noSync) && r.last.bootID != r.s.o.BootID:
		r.doubt = fmt.Errorf("store: the machine was started anew and nothing is synced in this mode")
	}
	if r.doubt != nil {
		log.WithError(r.doubt).Error("store: acknowledged data may be missing: all partitions get a new store id")
		return
	}
	if found.Torn {
		log.Info("store: the journal's last group is torn: it was not acknowledged, and is cut")
	}
}

// finish rebuilds one partition and renews its store id if need be.
func (r *reopening) finish(rec *recovery) error {
	p := rec.p
	if err := rec.finish(); err != nil {
		return err
	}
	p.restore()
	if rec.broken != nil {
		r.s.o.Log.WithError(rec.broken).WithFields(logrus.Fields{"topic": p.topic, "partition": p.id.Number}).
			Error("store: acknowledged data is missing: the partition gets a new store id")
	}
	if rec.broken != nil || r.doubt != nil || rec.doubtful {
		p.storeID = ident.NewStoreID()
		if err := r.s.writeIdentity(p); err != nil {
			return err
		}
	}
	return nil
}
