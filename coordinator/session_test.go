package coordinator

import (
	"cmp"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

func newSession(t *testing.T, store meta.Store) *session {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &session{store: store, keys: meta.Keys{Cluster: "test"}, node: meta.NodeState{Name: "n1"}, ttl: 3, log: log}
}

func TestBootCounterTellsARestoredPath(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := context.Background()
	s := newSession(t, store)
	var local int64
	start := func() {
		require.NoError(t, s.announce(ctx, local, func(n int64) error { local = n; return nil }))
	}
	restored := func(local int64) bool {
		r, err := s.restored(ctx, local)
		require.NoError(t, err)
		return r
	}
	require.False(t, restored(0), "a new broker")
	start()
	require.False(t, restored(local))
	start()
	require.EqualValues(t, 2, local)
	require.False(t, restored(local))
	require.True(t, restored(1), "yesterday's copy")
	require.True(t, restored(0), "wiped")

	crash := errors.New("crash")
	require.ErrorIs(t, s.announce(ctx, local, func(n int64) error { local = n; return crash }), crash)
	require.False(t, restored(local), "a crash between path and key leaves the path ahead")
	start()
	require.EqualValues(t, 4, local)
	local = 0 // wiped
	start()
	require.EqualValues(t, 5, local)
}

// TestBootCounterTellsACopyOfARunningBroker: also where a transaction got no
// answer, or did not hold.
func TestBootCounterTellsACopyOfARunningBroker(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := context.Background()
	s := newSession(t, store)
	var local int64
	save := func(n int64) error { local = n; return nil }
	require.NoError(t, s.announce(ctx, local, save))
	require.NoError(t, s.register(ctx))
	snapshot := local
	require.NoError(t, s.recount(ctx, save))
	r, err := s.restored(ctx, snapshot)
	require.NoError(t, err)
	require.True(t, r)
	r, err = s.restored(ctx, local)
	require.NoError(t, err)
	require.False(t, r)

	full := errors.New("full")
	require.ErrorIs(t, s.recount(ctx, func(int64) error { return full }), full)
	require.NoError(t, s.register(ctx), "it is still the last one that was started")

	later := newSession(t, store)
	require.NoError(t, later.announce(ctx, snapshot, func(int64) error { return nil }))
	require.NoError(t, s.recount(ctx, save))
	require.ErrorIs(t, s.register(ctx), errReplaced)
	require.NoError(t, later.register(ctx))
}

// overtaken calls before once, ahead of the next transaction.
type overtaken struct {
	meta.Store
	before func()
}

func (o *overtaken) Txn(ctx context.Context, cmp []meta.Compare, puts []meta.Put) (bool, int64, error) {
	if before := o.before; before != nil {
		o.before = nil
		before()
	}
	return o.Store.Txn(ctx, cmp, puts)
}

// TestLaterProcessStaysBesideARecount: it is started in the instant in which the
// earlier one raises the boot counter.
func TestLaterProcessStaysBesideARecount(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := t.Context()
	save := func(int64) error { return nil }
	seen := &overtaken{Store: store}
	earlier, later := newSession(t, seen), newSession(t, store)
	require.NoError(t, earlier.announce(ctx, 0, save))
	require.NoError(t, earlier.register(ctx))
	seen.before = func() { require.NoError(t, later.announce(ctx, 1, save)) }
	require.NoError(t, earlier.recount(ctx, save))
	require.NoError(t, later.register(ctx))
	require.NoError(t, earlier.recount(ctx, save))
	require.NoError(t, later.register(ctx), "it is the last one that was started")
	require.ErrorIs(t, earlier.register(ctx), errReplaced)
}

func TestRegistrationReplacesThatOfAnEarlierRun(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := context.Background()
	first, second := newSession(t, store.Session()), newSession(t, store.Session())
	require.NoError(t, first.register(ctx))
	require.NoError(t, second.register(ctx))
	require.Greater(t, second.incarnation(), first.incarnation())
	<-first.gone()
	e, err := store.Get(ctx, second.keys.Live("n1"))
	require.NoError(t, err)
	require.Equal(t, second.incarnation(), meta.IncarnationOf(e))
	n, err := meta.DecodeNode(e)
	require.NoError(t, err)
	require.Equal(t, e.Lease, n.Lease, "a peer can revoke it")
}

// slowStore answers late.
type slowStore struct {
	meta.Store
	by time.Duration
}

func (s slowStore) wait(ctx context.Context) error {
	select {
	case <-time.After(s.by):
		return nil
	case <-ctx.Done():
		return meta.ErrUnavailable
	}
}

func (s slowStore) Get(ctx context.Context, key string) (meta.Entry, error) {
	e, err := s.Store.Get(ctx, key)
	return e, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Lease(ctx context.Context, ttl int64) (int64, <-chan struct{}, error) {
	id, lost, err := s.Store.Lease(ctx, ttl)
	return id, lost, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Txn(ctx context.Context, compares []meta.Compare, puts []meta.Put) (bool, int64, error) {
	ok, rev, err := s.Store.Txn(ctx, compares, puts)
	return ok, rev, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Revoke(ctx context.Context, id int64) error {
	return cmp.Or(s.Store.Revoke(ctx, id), s.wait(ctx))
}

func TestRegistrationAtASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory()
		defer store.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 { // the second has an earlier one to end
			require.NoError(t, newSession(t, slowStore{store.Session(), time.Second}).registerUntil(ctx))
		}
	})
}

func TestDataPathBelongsToOneNode(t *testing.T) {
	f := nodeFile{fs: vfs.NewMemory(), dir: "/data"}
	boot, err := f.load("n1")
	require.NoError(t, err)
	require.Zero(t, boot)
	require.NoError(t, f.save("n1", 5))
	boot, err = f.load("n1")
	require.NoError(t, err)
	require.EqualValues(t, 5, boot)
	_, err = f.load("n2")
	require.ErrorContains(t, err, `belongs to node "n1"`)

	f.cluster = "orders"
	_, err = f.load("n1")
	require.NoError(t, err, "an older build did not write it")
	require.NoError(t, f.save("n1", 6))
	_, err = f.load("n1")
	require.NoError(t, err)
	f.cluster = "order"
	_, err = f.load("n1")
	require.ErrorContains(t, err, `belongs to a broker of cluster "orders", this is "order"`)
}

// TestRestartKeepsThatABrokerLeaves: the word is in the key that a start writes anew,
// also when another write comes in between.
func TestRestartKeepsThatABrokerLeaves(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := t.Context()
	save := func(int64) error { return nil }
	seen := &overtaken{Store: store}
	s := newSession(t, seen)
	require.NoError(t, s.announce(ctx, 0, save))
	seen.before = func() { // the operator comes first
		n, _, err := s.known(ctx)
		require.NoError(t, err)
		n.Leaving = true
		ok, _, err := store.Txn(ctx, nil, []meta.Put{{Key: s.keys.Node("n1"), Value: meta.Encode(n)}})
		require.NoError(t, err)
		require.True(t, ok)
	}
	for range 2 {
		require.NoError(t, s.announce(ctx, 1, save))
		n, _, err := s.known(ctx)
		require.NoError(t, err)
		require.True(t, n.Leaving)
		require.Equal(t, s.boot.Load(), n.Boot, "it was not written")
	}
}

// TestRecountKnowsNoForgottenBroker: one that was decommissioned and runs still does not
// come back into the cluster by counting.
func TestRecountKnowsNoForgottenBroker(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := t.Context()
	save := func(int64) error { return nil }
	s := newSession(t, store)
	require.NoError(t, s.announce(ctx, 0, save))
	_, _, err := store.Txn(ctx, nil, []meta.Put{{Key: s.keys.Node("n1"), Delete: true}})
	require.NoError(t, err)
	require.NoError(t, s.recount(ctx, save))
	_, revision, err := s.known(ctx)
	require.NoError(t, err)
	require.Zero(t, revision)
}

// TestRegistrationInVainLeavesNoLease: it would be renewed for ever.
func TestRegistrationInVainLeavesNoLease(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := t.Context()
	seen := &leased{overtaken: overtaken{Store: store}}
	s, other := newSession(t, seen), newSession(t, store)
	seen.before = func() { require.NoError(t, other.register(ctx)) }
	require.ErrorIs(t, s.register(ctx), errCompare)
	require.Len(t, seen.lost, 1)
	<-seen.lost[0]
	require.Zero(t, s.incarnation())
}

// leased sees the leases that are taken, and revokes none that is stuck.
type leased struct {
	overtaken
	lost  []<-chan struct{}
	stuck bool
}

func (l *leased) Lease(ctx context.Context, ttl int64) (int64, <-chan struct{}, error) {
	id, lost, err := l.Store.Lease(ctx, ttl)
	l.lost = append(l.lost, lost)
	return id, lost, err
}

func (l *leased) Revoke(ctx context.Context, id int64) error {
	if l.stuck {
		return meta.ErrUnavailable
	}
	return l.Store.Revoke(ctx, id)
}

// TestRegistrationIsNotBesideAnEarlierOne: while that cannot be ended there is no other.
func TestRegistrationIsNotBesideAnEarlierOne(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	seen := &leased{overtaken: overtaken{Store: store}}
	s := newSession(t, seen)
	require.NoError(t, s.register(t.Context()))
	seen.stuck = true
	require.ErrorIs(t, s.register(t.Context()), meta.ErrUnavailable)
	require.Len(t, seen.lost, 1, "and no lease is taken")
}

// TestWordEndsWithItsRegistration: what a broker tells is told under its lease, and not
// in the place of another registration.
func TestWordEndsWithItsRegistration(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	ctx := t.Context()
	first, second := newSession(t, store), newSession(t, store)
	require.NoError(t, first.register(ctx))
	require.NoError(t, first.handingOver(ctx))
	store.Expire(first.leaseID())
	_, err := store.Get(ctx, first.keys.Live("n1"))
	require.ErrorIs(t, err, meta.ErrNotFound)

	require.NoError(t, second.register(ctx))
	require.NoError(t, first.handingOver(ctx))
	e, err := store.Get(ctx, first.keys.Live("n1"))
	require.NoError(t, err)
	n, err := meta.DecodeNode(e)
	require.NoError(t, err)
	require.False(t, n.HandingOver, "another process said so")

	require.NoError(t, second.leave(ctx))
	require.Zero(t, second.incarnation())
}

// TestRegistrationEndsWithAClusterThatWentBack: there is no other cluster to be in.
func TestRegistrationEndsWithAClusterThatWentBack(t *testing.T) {
	store := meta.NewMemory()
	defer store.Close()
	require.ErrorIs(t, newSession(t, wentBack{store}).registerUntil(t.Context()), meta.ErrWentBack)
}

type wentBack struct{ meta.Store }

func (wentBack) Lease(context.Context, int64) (int64, <-chan struct{}, error) {
	return 0, nil, meta.ErrWentBack
}
