package meta

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/internal/pause"
)

const (
	// keepAlivesPerTTL renewals fall into one TTL, so that a lost one and a
	// change of etcd's leader fit in.
	keepAlivesPerTTL = 4
	// keepAliveRetry separates attempts while etcd does not answer.
	keepAliveRetry = 100 * time.Millisecond
)

// Lease implements Store. The client's own keep-alive gives up when it has not
// heard from etcd for a TTL; ours goes on, because only etcd can say that a
// lease is gone (a leader that is cut off from etcd goes on publishing).
func (e *Etcd) Lease(ctx context.Context, ttlSeconds int64) (int64, <-chan struct{}, error) {
	granted, err := e.lease.Grant(ctx, ttlSeconds)
	if err != nil {
		return 0, nil, writeError(err)
	}
	lost := make(chan struct{})
	if !e.start(func() { e.keepAlive(granted.ID, time.Duration(granted.TTL)*time.Second, lost) }) {
		return 0, nil, ErrClosed
	}
	return int64(granted.ID), lost, nil
}

// keepAlive renews one lease. Started by Lease, ends when the lease is gone or
// the store is closed; owns lost.
func (e *Etcd) keepAlive(id clientv3.LeaseID, ttl time.Duration, lost chan<- struct{}) {
	every := ttl / keepAlivesPerTTL
	wait := every
	for pause.For(e.done, wait) {
		ctx, cancel := context.WithTimeout(e.done, every)
		_, err := e.lease.KeepAliveOnce(ctx, id)
		cancel()
		switch {
		case err == nil:
			wait = every
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			close(lost)
			return
		default:
			wait = min(keepAliveRetry, every)
		}
	}
}
