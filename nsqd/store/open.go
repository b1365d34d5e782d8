package store

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Open recovers a data directory, which the caller has locked, and starts the store. Doubtful partitions of a damaged
// directory get a new store id, so that the cluster does not count them as in sync, and this is logged.
func Open(o Options) (*Store, error) {
	s := &Store{o: o.withDefaults(), damaged: make(chan struct{}, 1), failed: make(chan struct{})}
	s.noSync.Store(o.NoSync)
	s.files = vfs.NewCache(s.o.FS, s.o.OpenFiles)
	s.pendingPool.New = func() any { return &pendingSubmit{} }
	s.mu.partitions = map[ident.Partition]*Partition{}
	if err := s.open(); err != nil {
		if s.journal != nil {
			_ = s.journal.Close()
		}
		_ = s.closeFiles() // the first error is returned
		return nil, err
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegmentBytes)
	o.JournalBytes = cmp.Or(o.JournalBytes, defaultJournalBytes)
	o.CheckpointBytes = cmp.Or(o.CheckpointBytes, defaultCheckpointBytes)
	o.TailBytes = cmp.Or(o.TailBytes, defaultTailBytes)
	o.IndexRecords = cmp.Or(o.IndexRecords, defaultIndexRecords)
	o.TailsBytes = cmp.Or(o.TailsBytes, defaultTailBytes)
	o.OpenFiles = cmp.Or(o.OpenFiles, DefaultOpenFiles)
	o.SyncTogether = cmp.Or(o.SyncTogether, manyPartitions)
	o.RepeatFor = cmp.Or(o.RepeatFor, defaultRepeatFor)
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	return o
}

// open reads everything, writes it again, and makes a checkpoint before the journal starts.
func (s *Store) open() error {
	if err := vfs.MakeDir(s.o.FS, s.o.Dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, dir := range []string{s.topicsDir(), s.trashDir(), s.journalDir()} {
		if err := s.o.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := syncDirs(s.o.FS, s.o.Dir); err != nil {
		return err
	}
	if err := s.openDisk(); err != nil {
		return err
	}
	last, err := readCheckpoint(s.o.FS, s.checkpointName())
	if err == nil && last == nil { // the first start, or an earlier first start was killed: the directory itself may be new
		err = s.o.FS.SyncDir(path.Dir(path.Clean(s.o.Dir)))
	}
	if err != nil {
		return err
	}
	r := &storeRecovery{s: s, last: last, slots: map[uint64]*recovery{}}
	if err := r.run(); err != nil {
		return err
	}
	mark := s.journal.Mark()
	s.writer.s = s
	if err := s.writer.checkpoint(mark, false, true); err != nil {
		return err
	}
	s.writer.start(s, mark)
	if err := s.journal.Start(s.synced); err != nil {
		s.fail(err)
		_ = s.writer.close() // returns the error just set
		return err
	}
	return nil
}

// openDisk opens the file system before the first write, because it reports only failures of later ones.
func (s *Store) openDisk() (err error) {
	if s.disk, err = s.o.FS.OpenDisk(s.topicsDir()); errors.Is(err, errors.ErrUnsupported) {
		s.disk, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

type storeRecovery struct {
	s     *Store
	last  *checkpoint // nil without a checkpoint
	slots map[uint64]*recovery
	order []*recovery
	doubt error // reason why the whole directory is doubtful
}

func (r *storeRecovery) run() error {
	if err := r.loadAll(); err != nil {
		return err
	}
	mark := journal.Mark{}
	if r.last != nil {
		mark = r.last.mark
	} else if len(r.order) > 0 {
		r.doubt = fmt.Errorf("%w: the checkpoint is lost", ErrCorrupt)
	}
	o := journal.Options{FS: r.s.o.FS, Dir: r.s.journalDir(), FileBytes: (r.s.o.JournalBytes + 4095) &^ 4095, NoSync: r.s.o.NoSync, Mixed: r.s.o.Mixed, Synced: r.s.o.JournalSynced}
	j, found, err := journal.Open(o, mark, r.group)
	if err != nil {
		return err
	}
	r.s.journal = j
	r.judge(found, r.adopt())
	if err := forEach(len(r.order), func(i int) error { return r.finish(r.order[i]) }); err != nil {
		return err
	}
	for _, rec := range r.order {
		r.s.mu.partitions[rec.p.id] = rec.p
		if r.s.doubt == nil {
			r.s.doubt = rec.broken
		}
	}
	return nil
}

// loadAll opens all folders.
func (r *storeRecovery) loadAll() error {
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

// load opens one folder; nil if it has no partition.
func (r *storeRecovery) load(f folder) (*recovery, error) {
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
		d := &p.durable // no other record contains the partition's start and end
		d.start, d.startCRC = p.firstOnDisk()
		last := scanChain(p)
		rec = newRecovery(p, entry{start: d.start, startCRC: d.startCRC, end: last.End, committed: d.start, lastCRC: last.CRC, lastTimeNS: last.Time})
		p.durable.identities.End = max(last.End.Offset, 1) // search from the start of the log, because no other record contains the mark
		rec.touched, rec.overlap = true, true
	}
	if r.last != nil && newest(p.durable.history).less(r.last.versions[p.slot]) && !doubtful {
		r.s.o.Log.WithFields(logrus.Fields{"topic": p.topic, "partition": p.id.Number}).
			Error("the channel snapshot is older than the checkpoint, the partition gets a new store id")
		doubtful = true
	}
	rec.doubtful = doubtful
	return rec, nil
}

func (r *storeRecovery) group(body []byte) error {
	for len(body) > 0 {
		rec, n, err := DecodeRecord(body)
		if err != nil {
			return err
		}
		if p := r.slots[rec.Slot]; p != nil { // nil: the partition is in the trash
			if err := p.apply(rec); err != nil {
				return err
			}
		}
		body = body[n:]
	}
	return nil
}

// adopt accepts the batches in the segments beyond the journal's end. An error means that the journal has lost such
// batches.
func (r *storeRecovery) adopt() (lost error) {
	for _, rec := range r.order {
		end := rec.p.durable.end.Offset
		if rec.adopt() && lost == nil {
			lost = fmt.Errorf("%w: the segments of %s/%d continue at offset %d, where the journal ends",
				ErrCorrupt, rec.p.topic, rec.p.id.Number, end)
		}
	}
	return lost
}

// Doubt returns why acknowledged data may be missing since Open, so that replicas got a new store id, or nil.
func (s *Store) Doubt() error { return s.doubt }

// judge decides whether the directory as a whole is doubtful. lost is the error of adopt.
func (r *storeRecovery) judge(found journal.Recovery, lost error) {
	log := r.s.o.Log.WithFields(logrus.Fields{"groups": found.Groups, "bytes": found.Bytes, "salvaged": found.Salvaged})
	switch {
	case found.Corrupt != nil:
		r.doubt = found.Corrupt
	case lost != nil:
		r.doubt = lost
	case r.doubt == nil && r.s.o.Doubt != nil:
		r.doubt = r.s.o.Doubt
	case r.last != nil && !r.last.clean && (r.s.o.NoSync || r.last.noSync) && r.last.bootID != r.s.o.BootID:
		r.doubt = fmt.Errorf("store: the machine was restarted, and with --durability=replicated nothing was synced before")
	}
	if r.doubt != nil {
		r.s.doubt = r.doubt
		log.WithError(r.doubt).Error("acknowledged data may be missing, all partitions get a new store id")
		return
	}
	if found.Torn {
		log.Info("journal's last group is torn, cutting it: it was never acknowledged")
	}
}

// checkMark corrects the identity mark where data was lost. The newest mark, or the only one, may also be lost.
// Retention went by the newest mark, so it may have removed identities that the mark found here counts as present.
func (r *storeRecovery) checkMark(rec *recovery) {
	d := &rec.p.durable
	d.identities = d.identities.Cut(d.end.Offset)
	if rec.broken == nil && r.doubt == nil && !rec.doubtful {
		return
	}
	if d.identities == (queue.IdentityMark{}) && rec.p.identified() {
		d.identities.End, d.dirty = max(d.end.Offset, 1), true // search from the start of the log
	}
	if d.identities != (queue.IdentityMark{}) && d.start.Offset > d.identities.From {
		d.identities.Forgotten, d.dirty = queue.ForgottenUnknown, true
	}
}

// finish rebuilds one partition and renews its store id if needed.
func (r *storeRecovery) finish(rec *recovery) error {
	p := rec.p
	if err := rec.finish(); err != nil {
		return err
	}
	r.checkMark(rec)
	p.restore(min(queue.RecentPuts, max(recentLeast, recentTotal/len(r.order))))
	if rec.broken != nil {
		r.s.o.Log.WithError(rec.broken).WithFields(logrus.Fields{"topic": p.topic, "partition": p.id.Number}).
			Error("acknowledged data is missing, the partition gets a new store id")
	}
	if rec.broken != nil || r.doubt != nil || rec.doubtful {
		p.storeID = ident.NewStoreID()
		if err := r.s.writeIdentity(p); err != nil {
			return err
		}
	}
	return nil
}
