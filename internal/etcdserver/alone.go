package etcdserver

import (
	"context"
	"fmt"
)

// StartAlone starts a member that was one of several as a cluster of its own, on
// loopback: the way out when the majority of the members is gone for ever. What
// only they had decided is lost. Afterwards the member is started as usual, and
// others join it anew, with empty directories.
func StartAlone(ctx context.Context, o Options) (*Server, error) {
	if !Exists(o.Dir) {
		return nil, fmt.Errorf("%w: %s holds no member", ErrOptions, o.Dir)
	}
	o.InitialCluster, o.alone = "", true
	s, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.Wait(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}
