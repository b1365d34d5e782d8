package metadata

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// pageKeys and pageTimeout bound one request for a part of the state.
	pageKeys    = 4096
	pageTimeout = 5 * time.Second
	// relistPause is the pause between attempts while etcd does not answer.
	relistPause = 100 * time.Millisecond
)

// Watch implements Store.
func (e *Etcd) Watch(ctx context.Context, prefix string) <-chan Change {
	out := make(chan Change)
	started := e.group.Go(func(life context.Context) {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		w := etcdWatch{store: e, prefix: prefix, out: out}
		for w.list(ctx) && w.follow(ctx) {
		}
	})
	if !started {
		close(out)
	}
	return out
}

// etcdWatch is one watch: it reads everything, follows the changes from there, and reads everything again when etcd no
// longer has all changes in between (compaction, lost leader). Started by Etcd.Watch, ends with its context or the
// store; owns the channel.
type etcdWatch struct {
	store  *Etcd
	prefix string
	out    chan<- Change
	rev    int64 // everything up to here was sent
}

// list sends the current state; false when the watch is over.
func (w *etcdWatch) list(ctx context.Context) bool {
	for {
		entries, rev, err := w.store.List(ctx, w.prefix)
		if err == nil {
			w.rev = rev
			return w.send(ctx, Change{Revision: rev, Puts: entries, Reset: true})
		}
		if !concurrency.Sleep(ctx, relistPause) {
			return false
		}
	}
}

// follow sends the changes after w.rev, until etcd ends the watch (true: list again) or the context ends (false). After
// a broken connection the client itself resumes at the right revision. With require-leader a member without a majority
// ends the watch; otherwise the watch would be silent.
func (w *etcdWatch) follow(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	responses := w.store.watch.Watch(clientv3.WithRequireLeader(ctx), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.rev+1))
	for r := range responses {
		if r.Err() != nil {
			return concurrency.Sleep(ctx, relistPause)
		}
		for len(r.Events) > 0 {
			var c Change
			c, r.Events = firstRevision(r.Events)
			if !w.send(ctx, c) {
				return false
			}
			w.rev = c.Revision
		}
	}
	return ctx.Err() == nil && concurrency.Sleep(ctx, relistPause)
}

// firstRevision splits off the events of the first revision: one transaction is one Change, with each key at most once.
func firstRevision(events []*clientv3.Event) (Change, []*clientv3.Event) {
	c := Change{Revision: events[0].Kv.ModRevision}
	for i, ev := range events {
		switch {
		case ev.Kv.ModRevision != c.Revision:
			return c, events[i:]
		case ev.Type == clientv3.EventTypeDelete:
			c.Deletes = append(c.Deletes, string(ev.Kv.Key))
		default:
			c.Puts = append(c.Puts, entryOf(ev.Kv))
		}
	}
	return c, nil
}

func (w *etcdWatch) send(ctx context.Context, c Change) bool {
	select {
	case w.out <- c:
		w.store.saw(c.Revision)
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// keepAlivesPerTTL is the number of renewals in one TTL: a lost renewal, or a change of etcd's leader, does no
	// harm.
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
	ttl := time.Duration(granted.TTL) * time.Second
	if !e.group.Go(func(life context.Context) { e.keepAlive(life, granted.ID, ttl, lost) }) {
		return 0, nil, ErrClosed
	}
	return int64(granted.ID), lost, nil
}

// keepAlive renews one lease. Started by Lease, ends when the lease is gone or the store is closed; owns lost.
func (e *Etcd) keepAlive(life context.Context, id clientv3.LeaseID, ttl time.Duration, lost chan<- struct{}) {
	every := ttl / keepAlivesPerTTL
	wait := every
	r := renewals{lease: clientv3.RetryLeaseClient(e.client), id: id, life: life}
	defer r.close()
	for concurrency.Sleep(life, wait) {
		ctx, cancel := context.WithTimeout(life, every)
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

// renewals use one stream for as long as possible: for each new stream, an etcd with passwords computes a hash, which
// takes a tenth of a second of CPU time.
type renewals struct {
	lease  pb.LeaseClient
	id     clientv3.LeaseID
	life   context.Context //nolint:containedctx // the stream outlives the request that opens it
	stream pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc
}

// renew renews the lease once, and returns its remaining seconds; 0: the lease is gone. After an error the next call
// uses another stream.
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
