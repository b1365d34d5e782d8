package etcd

import (
	"context"
	"fmt"
)

// ForceNewCluster starts a member of several as a cluster with no other member, on loopback.
// It is the way out when the majority of the members is permanently lost. Entries that only the
// others had committed are lost. Afterwards the member is started as usual, and the others
// join it as new members, with empty directories.
func ForceNewCluster(ctx context.Context, o Options) (*Server, error) {
	if !Exists(o.Dir) {
		return nil, fmt.Errorf("%w: %s holds no member", ErrOptions, o.Dir)
	}
	o.InitialCluster, o.forceNew = "", true
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
