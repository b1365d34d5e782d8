package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/lockstepmq/lockstep/internal/pause"
)

const (
	// roomEvery is how often the size of the database is looked at.
	roomEvery = 5 * time.Second
	// roomTimeout bounds what the other members have to agree to.
	roomTimeout = 5 * time.Second
	// roomPatience is how long a member that starts waits for itself and the others
	// to make room.
	roomPatience = 2*roomEvery + roomTimeout
	roomPause    = 100 * time.Millisecond
)

// keepRoom keeps history from filling the database. At its quota etcd refuses every
// write, also a broker's registration, until somebody compacts and defragments it
// and takes the alarm back. Started by Start, ends with the member or Stop.
func (s *Server) keepRoom() {
	defer close(s.roomDone)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with keepRoom
		select {
		case <-s.stopped:
		case <-s.etcd.Server.StopNotify():
		case <-ctx.Done():
		}
		cancel()
	}()
	select {
	case <-s.Ready():
	case <-ctx.Done():
		return
	}
	var before []uint64 // whose alarms were there at the last look
	for told := false; pause.For(ctx, s.options.roomEvery); {
		err := s.makeRoom(ctx)
		if err == nil {
			err = s.standIn(ctx, before)
		}
		if before = s.full(); err != nil && !told && ctx.Err() == nil {
			s.log.WithError(err).Error("METADATA is full: nothing can be created, no broker can start, and no dead leader is replaced")
			told = true
		} else if err == nil {
			told = false
		}
	}
}

// awaitRoom returns when the members take writes, or after a while.
func (s *Server) awaitRoom(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, roomPatience)
	defer cancel()
	for len(s.full()) > 0 && ctx.Err() == nil {
		if err := s.makeRoom(ctx); err != nil || len(s.full()) > 0 {
			pause.For(ctx, roomPause)
		}
	}
}

// makeRoom drops all history when the database has come to half of its quota, and
// gives back what is free then. It fails if writes are refused all the same.
func (s *Server) makeRoom(ctx context.Context) error {
	e, refuses := s.etcd.Server, slices.Contains(s.full(), s.MemberID())
	if e.Backend().Size() < s.options.quota/2 && !refuses {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	// Not awaited until it is done, which etcd does not tell when the member stops.
	_, err := e.Compact(ctx, &pb.CompactionRequest{Revision: e.KV().Rev()})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		s.log.WithError(err).Info("the metadata's history stays for now")
	}
	if refuses || e.Backend().SizeInUse() < e.Backend().Size()/2 { // pages in use may hold little
		if err := e.Backend().Defrag(); err != nil {
			s.log.WithError(err).Info("the metadata's database stays as large as it is")
		}
	}
	if !refuses {
		return nil
	}
	if size := e.Backend().Size(); size >= s.options.quota {
		return fmt.Errorf("etcdserver: the database has %d bytes, its quota is %d", size, s.options.quota)
	}
	return s.takeBack(ctx, s.MemberID())
}

// standIn takes the alarms of others back that they leave: who runs has had the time to
// make room and do it, and who died or was removed never will. All have the same data:
// it has room where this one has.
func (s *Server) standIn(ctx context.Context, before []uint64) error {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	for _, id := range s.full() {
		if !slices.Contains(before, id) || s.etcd.Server.Backend().Size() >= s.options.quota {
			continue
		}
		if err := s.takeBack(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// takeBack ends the alarm of a member.
func (s *Server) takeBack(ctx context.Context, id uint64) error {
	_, err := s.etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: id, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("etcdserver: the database has room again, but an alarm stays: %w", err)
	}
	return nil
}

// full gives the members whose databases are full; all refuse writes if there is one.
func (s *Server) full() (members []uint64) {
	for _, a := range s.etcd.Server.Alarms() {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			members = append(members, a.GetMemberID())
		}
	}
	return members
}
