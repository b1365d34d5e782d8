package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// leavePause is the pause between two attempts: etcd refuses the removal of a member that has
// been connected to the others for less than 5 s.
const leavePause = 100 * time.Millisecond

// Leave permanently removes this member from its cluster before it stops: of two members the
// other one could not do it alone. The last member stays.
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
		case !errors.Is(err, etcderrors.ErrUnhealthy) || !concurrency.Sleep(ctx, leavePause):
			return fmt.Errorf("etcdserver: leave: %w", err)
		}
	}
}
