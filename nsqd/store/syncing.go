package store

import (
	"fmt"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// manyPartitions is the default of Options.SyncTogether. A sync of the file system takes about as long as those of some
// partitions, and may wait for what other processes have written.
const manyPartitions = 64

// partitionState is the state of a partition that a checkpoint records.
type partitionState struct {
	*Partition
	entry
	channels version // version in the snapshot; zero without a snapshot
	gone     bool    // the partition is in the trash
	changed  bool    // since the last checkpoint
	segments uint64  // Partition.segments.changes when entry was read
	index    commitlog.Flushed
}

// syncPartitions makes the files of all changed partitions durable, and returns the states that they have on the disk.
// written and awaited: see behind.
func (w *writer) syncPartitions(written int64, awaited bool) ([]partitionState, error) {
	s := w.s
	partitions := s.Partitions()
	all, changed := make([]partitionState, len(partitions)), []*partitionState(nil)
	for i, p := range partitions {
		if err := p.write(&all[i]); err != nil {
			return nil, fmt.Errorf("store: checkpoint of %s/%d: %w", p.topic, p.id.Number, err)
		}
		if all[i].changed {
			changed = append(changed, &all[i])
		}
	}
	if s.disk != nil && len(changed) >= s.o.SyncTogether {
		if synced, err := s.syncTogether(changed); synced || err != nil {
			return all, err
		}
	}
	err := forEachPaced(len(changed), w.behind(written, len(changed), awaited), func(i int) error {
		p := changed[i]
		if err := p.sync(); err != nil {
			return fmt.Errorf("store: checkpoint of %s/%d: %w", p.topic, p.id.Number, err)
		}
		return nil
	})
	return all, err
}

// behind reports whether a checkpoint that began when the journal had that many bytes must sync more of its n
// partitions at once. Unless a caller waits for it, it syncs one at a time, because concurrent syncs delay the journal
// and therefore every put. It syncs more at once if necessary to finish before the journal has grown by half of
// CheckpointBytes.
func (w *writer) behind(written int64, n int, awaited bool) func(done int) bool {
	return func(done int) bool {
		_, present := w.s.journal.Written()
		more := float64(present-written) / float64(w.s.o.CheckpointBytes/2)
		return awaited || w.awaited() || more > float64(done)/float64(n)
	}
}

// write writes what the partition's files lack, without a sync, and sets state to what they then have.
func (p *Partition) write(state *partitionState) error {
	p.files.Lock()
	defer p.files.Unlock()
	d := &p.durable
	*state = partitionState{Partition: p, gone: p.trashed, changed: d.dirty && !p.trashed}
	if state.changed {
		if err := p.flush(); err != nil {
			return err
		}
		if err := p.index.Flush(d.end.Offset); err != nil {
			return err
		}
		if d.historyDirty {
			d.history = p.store.compact(p, d.history)
		}
		d.dirty = false // it is set again if retention changes the start during the syncs
		state.segments, state.index = p.segments.changes, p.index.Flushed()
	}
	state.entry, state.channels = d.entry, newest(d.history)
	return nil
}

// sync makes the files of one partition durable, each by itself.
func (p *partitionState) sync() error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.gone = p.trashed; p.gone {
		return nil
	}
	if err := p.Partition.segments.sync(); err != nil {
		return err
	}
	if err := p.Partition.index.Sync(); err != nil {
		return err
	}
	d := &p.durable
	if !d.historyDirty {
		return nil
	}
	if err := writeFile(p.store.o.FS, p.snapshotName(), encodeSnapshot(d.history)); err != nil {
		return err
	}
	d.historyDirty = false
	return nil
}

func (p *Partition) snapshotName() string { return p.dir + "/" + snapshotName }

// syncTogether makes the files of many partitions durable by syncs of the whole file system: one for their contents,
// and another one if snapshots have been replaced. False: such a sync failed, and each file must be synced by itself.
func (s *Store) syncTogether(changed []*partitionState) (synced bool, err error) {
	for _, p := range changed {
		if err := p.stageSnapshot(); err != nil {
			return false, err
		}
	}
	if !s.syncDisk() {
		return false, nil
	}
	replaced := false
	for _, p := range changed {
		some, err := p.replaceSnapshot()
		if err != nil {
			return false, err
		}
		replaced = replaced || some
	}
	if replaced && !s.syncDisk() {
		return false, nil
	}
	for _, p := range changed {
		p.noteSynced()
	}
	return true, nil
}

// syncDisk syncs the file system. A failure may be of a write of another process; if it is of this store, the sync of
// the file reports it.
func (s *Store) syncDisk() bool {
	err := s.disk.Sync()
	if err != nil {
		s.o.Log.WithError(err).Warn("sync of the file system failed, syncing each file")
	}
	return err == nil
}

// stageSnapshot writes the channel state to a temporary file, without a sync.
func (p *partitionState) stageSnapshot() error {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed || !p.durable.historyDirty {
		return nil
	}
	if err := createFile(p.store.o.FS, p.snapshotName()+temporary, encodeSnapshot(p.durable.history), nil); err != nil {
		return fmt.Errorf("store: write %s: %w", p.snapshotName(), err)
	}
	return nil
}

// replaceSnapshot replaces the snapshot by the temporary file, whose content is durable.
func (p *partitionState) replaceSnapshot() (replaced bool, err error) {
	p.files.Lock()
	defer p.files.Unlock()
	if p.gone = p.trashed; p.gone || !p.durable.historyDirty {
		return false, nil
	}
	name := p.snapshotName()
	if err := p.store.o.FS.Rename(name+temporary, name); err != nil {
		return false, fmt.Errorf("store: replace %s: %w", name, err)
	}
	return true, nil
}

// noteSynced records that the files are durable as they were at write, with their snapshots.
func (p *partitionState) noteSynced() {
	p.files.Lock()
	defer p.files.Unlock()
	if p.trashed {
		return
	}
	p.Partition.segments.noteSynced(p.segments)
	p.Partition.index.NoteSynced(p.index)
	p.durable.historyDirty = false
}

// newest is the newest version of a history of channel states, zero if it is empty.
func newest(history []queue.StateVersion) version {
	if len(history) == 0 {
		return version{}
	}
	last := history[len(history)-1]
	return version{uint64(last.Epoch), last.N}
}
