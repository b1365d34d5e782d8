package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	stalledEvery = 250 * time.Millisecond // interval of the checks that the disk and the core loops make progress
	busyTimeout  = 500 * time.Millisecond // timeout of the call that asks another broker whether it makes progress
)

// watchdog observes the broker's disk and core loops from outside.
type watchdog struct{ *Broker }

// stall is the longest-running current operation.
type stall struct {
	stage string // for the log
	busy  time.Duration
}

// longest takes no lock that another goroutine holds while the disk hangs.
func (b watchdog) longest() stall {
	s := stall{"write of the journal", b.store.Busy()}
	for _, busy := range b.engine.Busy() {
		if busy > s.busy {
			s = stall{"pass of a core loop", busy}
		}
	}
	return s
}

// stallLimit is the duration of one operation after which other brokers should lead: twice T_isr, as for an overdue
// sync (EL-8).
func (b watchdog) stallLimit() time.Duration {
	return 2 * time.Duration(b.o.Replica.ISRMS) * time.Millisecond
}

func (b watchdog) stalled() bool { return b.longest().busy >= b.stallLimit() }

// hangs reports whether a broker, this one included, does not make progress or has failed.
func (b watchdog) hangs(n ident.Node) bool {
	if n == b.self {
		return b.stalled()
	}
	return b.peers.HasFailed(n)
}

// runWatchdog makes other brokers lead while a call to this broker's disk, or a pass of a core loop, neither succeeds
// nor fails. Otherwise no put would be committed in that time, because a process that answers keeps its registration.
// It takes no lock that a hung disk or loop may hold.
func (b watchdog) runWatchdog(ctx context.Context) {
	noted, renounced := stall{}, int64(0)
	concurrency.Every(ctx, stalledEvery, func() {
		noted = b.noteStall(noted)
		lease := b.session.LeaseID()
		if b.stopping.Load() || b.session.Incarnation() == 0 || !b.mustRenounce(ctx) {
			return
		}
		if lease != renounced {
			b.log.Warn("stalled while other brokers make progress: giving up leaderships")
		}
		renounced = lease
		b.peers.Renounce(ctx, lease)
	})
}

func (b watchdog) noteStall(noted stall) stall {
	now := b.longest()
	if now.busy < b.stallLimit() {
		if noted.stage != "" {
			b.log.WithField("stage", noted.stage).Info("stall ended")
		}
		return stall{}
	}
	if now.stage != noted.stage {
		b.log.WithField("stage", now.stage).WithField("for", now.busy.Round(time.Millisecond)).
			Warn("stalled: no puts are committed here until this operation ends")
	}
	return now
}

// mustRenounce reports whether a leader here cannot commit and others can. Machines themselves detect that their sync
// is overdue while other members are ahead. This check also covers idle leaders, and machines that are not stepped.
func (b watchdog) mustRenounce(ctx context.Context) bool {
	return b.anyReplica(func(v *replica.View) bool { return v.DiskStalled }) || b.stalled() && b.othersWork(ctx)
}

// othersWork reports whether a partition led here has its minimum of other in-sync members whose brokers report that
// their disks and loops work. New leaders would not help brokers that share a hung disk.
func (b watchdog) othersWork(ctx context.Context) bool {
	able := map[ident.Node]*atomic.Bool{}
	for _, p := range b.engine.Partitions() {
		if v := p.View(); leads(v) {
			for _, m := range v.ISR {
				if m.Node != b.self && b.peers.Up(m.Node) {
					able[m.Node] = &atomic.Bool{}
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for n, a := range able {
		asked.Go(func() {
			r, err := calls.Busy.Ask(ctx, b.dispatch, n, calls.None{})
			a.Store(err == nil && r.Milliseconds < b.stallLimit().Milliseconds()/2)
		})
	}
	asked.Wait()
	return b.anyReplica(func(v *replica.View) bool {
		others := 0
		for _, m := range v.ISR {
			if a := able[m.Node]; a != nil && a.Load() {
				others++
			}
		}
		return leads(v) && others >= v.MinInSync
	})
}

func leads(v *replica.View) bool { return v.Role == replica.Leader || v.Role == replica.Electing }

// awaitDisk waits until the disk and the core loops make progress: a broker that registers may be elected.
func (b watchdog) awaitDisk(ctx context.Context) {
	for (b.stalled() || b.anyReplica(func(v *replica.View) bool { return v.SyncOverdue })) && concurrency.Sleep(ctx, stalledEvery) {
		continue
	}
}
