package metadata

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// keepAlivesPerTTL is the number of renewals in one TTL: a lost one and a change of etcd's leader do no harm.
	keepAlivesPerTTL = 4
	// keepAliveRetry is the pause between attempts while etcd does not answer.
	keepAliveRetry = 100 * time.Millisecond
)

// Lease implements Store. The client's own keep-alive gives up when etcd was silent for a TTL. This one continues, because
// only etcd's answer proves that a lease is gone: a leader that is partitioned from etcd continues to publish.
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

// keepAlive renews one lease. Started by Lease, ends when the lease is gone or the store is closed; owns lost.
func (e *Etcd) keepAlive(id clientv3.LeaseID, ttl time.Duration, lost chan<- struct{}) {
	every := ttl / keepAlivesPerTTL
	wait := every
	r := renewals{lease: clientv3.RetryLeaseClient(e.client), id: id, life: e.done}
	defer r.close()
	for concurrency.Sleep(e.done, wait) {
		ctx, cancel := context.WithTimeout(e.done, every)
		left, err := r.renew(ctx)
		cancel()
		switch {
		case err != nil:
			wait = min(keepAliveRetry, every)
		case left <= 0:
			close(lost)
			return
		default:
			wait = every
		}
	}
}

// renewals use one stream for as long as possible: for each new one, an etcd with passwords computes a hash, which takes a
// tenth of a second of processor time.
type renewals struct {
	lease  pb.LeaseClient
	id     clientv3.LeaseID
	life   context.Context //nolint:containedctx // the stream outlives the request that opens it
	stream pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc
}

// renew renews the lease once, and returns its remaining seconds; 0: it is gone. After an error the next call uses another
// stream.
func (r *renewals) renew(ctx context.Context) (left int64, err error) {
	if r.stream == nil {
		if err := r.open(ctx); err != nil {
			return 0, err
		}
	}
	defer context.AfterFunc(ctx, r.end)()
	if err = r.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(r.id)}); err != nil {
		r.close()
		return 0, err
	}
	answer, err := r.stream.Recv()
	if err != nil {
		r.close()
		return 0, err
	}
	return answer.TTL, nil
}

func (r *renewals) open(ctx context.Context) error {
	life, end := context.WithCancel(r.life)
	r.end = end
	defer context.AfterFunc(ctx, end)()
	stream, err := r.lease.LeaseKeepAlive(life)
	if err != nil {
		end()
		return err
	}
	r.stream = stream
	return nil
}

func (r *renewals) close() {
	if r.stream != nil {
		r.end()
		r.stream = nil
	}
}
