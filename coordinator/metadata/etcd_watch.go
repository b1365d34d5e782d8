package metadata

import (
	"context"
	"time"

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
	run := func() {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(e.done, cancel)()
		w := etcdWatch{store: e, prefix: prefix, out: out}
		for w.list(ctx) && w.follow(ctx) {
		}
	}
	if !e.start(run) {
		close(out)
	}
	return out
}

// etcdWatch is one watch: it reads everything, follows from there, and reads everything again when etcd no longer has all
// changes in between (compaction, lost leader). Started by Etcd.Watch, ends with its context or the store; owns the channel.
type etcdWatch struct {
	store  *Etcd
	prefix string
	out    chan<- Change
	rev    int64 // everything up to here was sent
}

// list sends the present state; false when the watch is over.
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

// follow sends the changes after w.rev, until etcd ends the watch (true: list again) or the context ends (false). After a
// broken connection the client itself resumes at the right revision. With require-leader a member without a majority ends the
// watch; otherwise it would be silent.
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
