package session

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

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
	WentBack func(error) // the metadata is older than it was: the broker cannot continue
}

// RunCounting raises the boot counter: soon after a change of the metadata of a partition here, after each interval with
// writes to the journal, and after idleRecounts intervals without. It returns when ctx ends.
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

// RunObserving writes the boot counters and starts of the other brokers to the node file after each change, so that this
// broker can notify another one that starts on an older disk. It returns when ctx ends.
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
