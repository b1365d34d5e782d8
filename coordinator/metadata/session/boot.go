package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Restored reports whether the data path is, or may be, older than the cluster's record of this broker. It may be older
// if it is a copy, unless the broker had stopped as planned. A copy that also contains the only metadata is as old as
// the metadata.
func (s *Session) Restored(ctx context.Context) (bool, error) {
	known, _, err := s.known(ctx)
	r := s.o.File.Record()
	copied := r.Doubted && !r.Clean && !s.o.OnlyMember
	return s.ownState(known).LaterThan(r.State()) || copied && known.Boot > 0, err
}

// ownState is the state of this data path in the metadata. It has the disk id of the path, so that a path is compared
// in spite of its new id after it was emptied, or after its etcd member joined as a new one.
func (s *Session) ownState(known metadata.NodeState) lifecycle.DiskState {
	return lifecycle.DiskState{Disk: s.o.File.Record().Disk, Boot: known.Boot, Starts: known.Starts}
}

// Announce writes the permanent key and raises the boot counter in it. From then on the cluster treats this data path
// as the broker's, and all others as copies.
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

// recount raises the boot counter of a running broker, so that an earlier copy of its data path, such as a snapshot of
// its disk, is recognised as a copy.
func (s *Session) recount(ctx context.Context) error {
	known, revision, err := s.known(ctx)
	own := s.o.File.Record().State()
	if err != nil || revision == 0 || s.ownState(known).LaterThan(own) {
		return err // the broker was removed or replaced: register finds out
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
		return raise(before) // a later run may use this value
	}
	return err
}

// NoteCleanStop records on the data path that the broker stopped as planned.
func (s *Session) NoteCleanStop() error {
	return s.o.File.Update(func(r *nodefile.Record) { r.Clean = true })
}

const (
	// recountPause collects changes of many partitions for one recount.
	recountPause = 200 * time.Millisecond
	// idleRecounts is the number of idle intervals after which the boot counter is raised anyway.
	idleRecounts = 12
	// observePause collects changes of many brokers for one write.
	observePause = 100 * time.Millisecond
)

// Counting is the state of the broker that RunCounting depends on.
type Counting struct {
	Every    time.Duration
	Changed  concurrency.Edge // the metadata of a partition here has changed
	Written  func() int64     // bytes that the journal has written so far
	Stopping func() bool
	WentBack func(error) // called if the metadata is older than before: the broker cannot continue
}

// RunCounting raises the boot counter: soon after a change of the metadata of a partition here, after each interval
// with writes to the journal, and after idleRecounts intervals without writes. It returns when ctx ends.
func (s *Session) RunCounting(ctx context.Context, c Counting) {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	var written int64
	for idle := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.Changed:
			if !concurrency.Sleep(ctx, recountPause) {
				return
			}
		case <-tick.C:
			bytes := c.Written()
			if idle++; bytes == written && idle < idleRecounts {
				continue
			}
			written = bytes
		}
		idle = 0
		s.count(ctx, c)
	}
}

func (s *Session) count(ctx context.Context, c Counting) {
	if c.Stopping() || s.Incarnation() == 0 {
		return
	}
	try, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
	defer cancel()
	err := s.recount(try)
	if errors.Is(err, metadata.ErrWentBack) {
		c.WentBack(err)
	} else if err != nil {
		s.o.Log.WithError(err).Info("cannot raise the boot counter, trying again later")
	}
}

// RunObserving writes the boot counters and starts of the other brokers to the node file after each change, so that
// this broker can warn a broker that starts on an older disk. It returns when ctx ends.
func (s *Session) RunObserving(ctx context.Context, changed concurrency.Edge, nodes func() []metadata.NodeState) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		seen := map[string]lifecycle.DiskState{}
		for _, n := range nodes() {
			if n.Name != s.node.Name {
				seen[string(n.Name)] = lifecycle.DiskState{Disk: lifecycle.DiskID(n.Disk), Boot: n.Boot, Starts: n.Starts}
			}
		}
		if err := s.o.File.Observe(seen); err != nil {
			s.o.Log.WithError(err).Warn("cannot record the boot counters of the other brokers, trying again at their next change")
		}
		if !concurrency.Sleep(ctx, observePause) {
			return
		}
	}
}
