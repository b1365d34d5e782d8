package session

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
)

// boot is the boot counter, as the data path has it.
func (s *Session) boot() int64 { return s.o.File.Record().Boot }

// Restored reports whether the data path is older than the cluster's knowledge of this
// broker, or may be: it is a copy, and not one of a broker that had stopped as planned. A
// copy that holds the only metadata, too, is as old as these.
func (s *Session) Restored(ctx context.Context) (bool, error) {
	known, _, err := s.known(ctx)
	r := s.o.File.Record()
	copied := r.Doubted && !r.Clean && !s.o.OnlyMember
	return s.ownState(known).LaterThan(r.State()) || copied && known.Boot > 0, err
}

// ownState is what the metadata has of this broker's data path. The id of the disk is that of the path: a path whose
// member of the embedded etcd joined as a new one, or was emptied, has another id, and is compared all the same.
func (s *Session) ownState(known metadata.NodeState) lifecycle.DiskState {
	return lifecycle.DiskState{Disk: s.o.File.Record().Disk, Boot: known.Boot, Starts: known.Starts}
}

// Announce writes the permanent key and raises the boot counter in it. From then on the
// data path is the one that the cluster has on record, and not a copy.
func (s *Session) Announce(ctx context.Context) error {
	key := s.o.Keys.Node(s.node.Name)
	var marks nodefile.Marks
	if s.o.Mark != nil {
		var err error
		if marks, err = s.o.Mark(); err != nil {
			return err
		}
	}
	start := rand.Text()
	for {
		known, revision, err := s.known(ctx)
		if err != nil {
			return err
		}
		state := s.ownState(known)
		err = s.o.File.Update(func(r *nodefile.Record) {
			now := r.State().Begin(start, state)
			r.Boot, r.Starts, r.Clean, r.Doubted, r.Marks = now.Boot, now.Starts, false, false, marks
			if r.Disk == "" {
				r.Disk = nodefile.NewDisk()
			}
		})
		if err != nil {
			return err
		}
		r := s.o.File.Record()
		s.node.V, s.node.Boot, s.node.Starts, s.node.Disk = metadata.Version, r.Boot, r.Starts, string(r.Disk)
		s.node.Leaving, s.node.Drain = known.Leaving, known.Drain
		put := []metadata.Put{{Key: key, Value: metadata.Encode(s.node)}}
		ok, _, err := s.o.Store.Txn(ctx, []metadata.Compare{{Key: key, Create: -1, Mod: revision}}, put)
		if err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
		if ok {
			return nil
		}
	}
}

// recount raises the boot counter of a broker that runs, so that a copy of its data
// path that was taken in between, such as a snapshot of its disk, is known as one.
func (s *Session) recount(ctx context.Context) error {
	known, revision, err := s.known(ctx)
	own := s.o.File.Record().State()
	if err != nil || revision == 0 || s.ownState(known).LaterThan(own) {
		return err // forgotten, or replaced: register finds out
	}
	before := own.Boot
	known.V, known.Boot, known.Starts = metadata.Version, before+1, own.Starts
	raise := func(to int64) error { return s.o.File.Update(func(r *nodefile.Record) { r.Boot = to }) }
	if err := raise(known.Boot); err != nil {
		return err
	}
	key := s.o.Keys.Node(s.node.Name)
	ok, _, err := s.o.Store.Txn(ctx, []metadata.Compare{{Key: key, Create: -1, Mod: revision}}, []metadata.Put{{Key: key, Value: metadata.Encode(known)}})
	if err == nil && !ok {
		return raise(before) // or it would be that of a later run, too
	}
	return err
}

// NoteCleanStop notes on the data path that the broker stopped as planned.
func (s *Session) NoteCleanStop() error {
	return s.o.File.Update(func(r *nodefile.Record) { r.Clean = true })
}
