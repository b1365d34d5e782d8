package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	quotaEvery        = 5 * time.Second             // interval of the checks of the database's size
	quotaTimeout      = 5 * time.Second             // timeout of requests that need a majority
	startQuotaTimeout = 2*quotaEvery + quotaTimeout // limit of a starting member's wait for space
	roomPause         = 100 * time.Millisecond
)

// watchQuota prevents history from filling the database. At its quota etcd refuses every write, including a broker's
// registration, until a client compacts and defragments it and disarms the alarm. Started by Start, ends with the member or
// Stop.
func (s *Server) watchQuota(ctx context.Context) {
	defer close(s.quotaDone)
	select {
	case <-s.Ready():
	case <-ctx.Done():
		return
	}
	var before []uint64 // members that had alarms at the last check
	for logged := false; concurrency.Sleep(ctx, s.options.quotaEvery); {
		err := s.freeSpace(ctx)
		if err == nil {
			err = s.disarmOthers(ctx, before)
		}
		if before = s.full(); err != nil && !logged && ctx.Err() == nil {
			s.log.WithError(err).Error("metadata is full: no topic can be created, no broker can start, and no dead leader is replaced")
			logged = true
		} else if err == nil {
			logged = false
		}
	}
}

// awaitSpace returns when the members accept writes, or after startQuotaTimeout.
func (s *Server) awaitSpace(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startQuotaTimeout)
	defer cancel()
	for len(s.full()) > 0 && ctx.Err() == nil {
		if err := s.freeSpace(ctx); err != nil || len(s.full()) > 0 {
			concurrency.Sleep(ctx, roomPause)
		}
	}
}

// freeSpace compacts all history when the database has reached half of its quota, and returns free pages to the file system.
// It fails if the database still refuses writes.
func (s *Server) freeSpace(ctx context.Context) error {
	e, refuses := s.etcd.Server, slices.Contains(s.full(), s.memberID())
	if e.Backend().Size() < s.options.quota/2 && !refuses {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, quotaTimeout)
	defer cancel()
	// The compaction is not awaited: etcd does not report its end if the member stops.
	_, err := e.Compact(ctx, &pb.CompactionRequest{Revision: e.KV().Rev()})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		s.log.WithError(err).Info("cannot compact the metadata's history, trying again later")
	}
	if refuses || e.Backend().SizeInUse() < e.Backend().Size()/2 { // pages in use may hold little data
		if err := s.defragment(); err != nil {
			s.log.WithError(err).Info("cannot defragment the metadata's database, trying again later")
		}
	}
	if !refuses {
		return nil
	}
	if size := e.Backend().Size(); size >= s.options.quota {
		return fmt.Errorf("etcd: the database has %d bytes, its quota is %d", size, s.options.quota)
	}
	return s.disarm(ctx, s.memberID())
}

// defragment returns free pages of the database to the file system, unless the member ends. It runs in one of etcd's own
// goroutines, so that etcd waits for it before it closes the database: a concurrent close would end the process.
func (s *Server) defragment() error {
	e, result := s.etcd.Server, make(chan error, 1)
	e.GoAttach(func() { result <- e.Backend().Defrag() })
	select {
	case err := <-result:
		return err
	case <-e.StopNotify():
		return ErrStopped
	}
}

// disarmOthers disarms the alarms that other members have left: a running member has had time to free space and disarm
// its own alarm, and a dead or removed member never will. All members have the same data, so if this one has space,
// they have too.
func (s *Server) disarmOthers(ctx context.Context, before []uint64) error {
	ctx, cancel := context.WithTimeout(ctx, quotaTimeout)
	defer cancel()
	for _, id := range s.full() {
		if !slices.Contains(before, id) || s.etcd.Server.Backend().Size() >= s.options.quota {
			continue
		}
		if err := s.disarm(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// disarm ends the alarm of a member.
func (s *Server) disarm(ctx context.Context, id uint64) error {
	_, err := s.etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: id, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("etcd: the database has room again, but an alarm remains: %w", err)
	}
	return nil
}

// full returns the members whose databases are full; a single full database makes all members refuse writes.
func (s *Server) full() (members []uint64) {
	for _, a := range s.etcd.Server.Alarms() {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			members = append(members, a.GetMemberID())
		}
	}
	return members
}
