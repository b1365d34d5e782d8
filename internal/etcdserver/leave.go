package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/lockstepmq/lockstep/internal/pause"
)

// leavePause is between two tries: etcd lets nobody leave who has not been connected
// to the others for 5 s.
const leavePause = 100 * time.Millisecond

// Leave takes this member out of its cluster for good, before it is stopped: of two
// members the other one could not do it alone. The last one stays.
func (s *Server) Leave(ctx context.Context) error {
	e := s.etcd.Server
	if len(e.Cluster().Members()) < 2 {
		return nil
	}
	for {
		_, err := e.RemoveMember(ctx, s.MemberID())
		switch {
		case err == nil, errors.Is(err, etcderrors.ErrStopped):
			return nil
		case !errors.Is(err, etcderrors.ErrUnhealthy) || !pause.For(ctx, leavePause):
			return fmt.Errorf("etcdserver: leave: %w", err)
		}
	}
}
