package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSession(t *testing.T, store metadata.Store) *Session {
	log := logrus.New()
	log.SetOutput(io.Discard)
	file, err := nodefile.Open(vfstest.NewMemory(), "/data", "test", "n1")
	require.NoError(t, err)
	return New(Options{Store: store, Keys: metadata.Keys{Cluster: "test"}, Node: metadata.NodeState{Name: "n1"}, File: file, TTL: 3 * time.Second, Log: log})
}

// onPath gives a session the data path of another one, as it was with an earlier
// boot counter.
func (s *Session) onPath(t *testing.T, of *Session, boot int64) {
	r := of.o.File.Record()
	r.Boot = boot
	require.NoError(t, s.o.File.Update(func(own *nodefile.Record) { *own = r }))
}

func TestBootCounterTellsARestoredPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := context.Background()
		s := newSession(t, store)
		set := func(boot int64) {
			require.NoError(t, s.o.File.Update(func(r *nodefile.Record) { r.Boot = boot }))
		}
		restored := func(local int64) bool {
			was := s.boot()
			set(local)
			defer set(was)
			r, err := s.Restored(ctx)
			require.NoError(t, err)
			return r
		}
		require.False(t, restored(0), "a new broker")
		require.NoError(t, s.Announce(ctx))
		require.False(t, restored(s.boot()))
		require.NoError(t, s.Announce(ctx))
		require.EqualValues(t, 2, s.boot())
		require.False(t, restored(2))
		require.True(t, restored(1), "yesterday's copy")
		require.True(t, restored(0), "wiped")
		require.False(t, restored(3), "a crash between path and key leaves the path ahead")
		set(3)
		require.NoError(t, s.Announce(ctx))
		require.EqualValues(t, 4, s.boot())
		set(0) // wiped
		require.NoError(t, s.Announce(ctx))
		require.EqualValues(t, 5, s.boot())
	})
}

// TestStartsTellARestoredPath: the boot counter of a copy that lived on has passed that of the metadata.
func TestStartsTellARestoredPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		s, elsewhere := newSession(t, store), metadatatest.NewMemory()
		defer elsewhere.Close()
		require.NoError(t, s.Announce(ctx))
		snapshot := newSession(t, elsewhere)
		snapshot.onPath(t, s, s.boot())
		require.NoError(t, s.Announce(ctx))
		require.NoError(t, s.recount(ctx))
		for range 3 {
			require.NoError(t, snapshot.Announce(ctx))
		}
		require.Greater(t, snapshot.boot(), s.boot())
		require.NoError(t, snapshot.register(ctx))
		require.NoError(t, s.register(ctx))

		snapshot.o.Store = store
		restored := func(s *Session) bool {
			r, err := s.Restored(ctx)
			require.NoError(t, err)
			return r
		}
		require.True(t, restored(snapshot))
		require.False(t, restored(s))
		was := snapshot.boot()
		require.NoError(t, snapshot.recount(ctx))
		require.Equal(t, was, snapshot.boot(), "the metadata has another start")
		require.ErrorIs(t, snapshot.register(ctx), errReplaced)

		require.NoError(t, snapshot.Announce(ctx))
		require.False(t, restored(snapshot), "it is the one on record now")
		require.Len(t, snapshot.o.File.Record().Starts, 1, "it has not lived the others")
		require.NoError(t, snapshot.register(ctx))
		require.ErrorIs(t, s.register(ctx), errReplaced)
	})
}

// TestStartsInTheMetadata: the permanent key has them, also after a write by a build that does not know them; the live key
// has none.
func TestStartsInTheMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		s := newSession(t, store)
		for range 2 {
			require.NoError(t, s.Announce(ctx))
		}
		require.NoError(t, s.register(ctx))
		require.NoError(t, s.PublishHandingOver(ctx))
		starts := s.o.File.Record().Starts
		require.Len(t, starts, 2)
		known, _, err := s.known(ctx)
		require.NoError(t, err)
		require.Equal(t, starts, known.Starts)
		e, err := store.Get(ctx, s.o.Keys.Live("n1"))
		require.NoError(t, err)
		live, err := metadata.DecodeNode(e)
		require.NoError(t, err)
		require.Empty(t, live.Starts)

		known.Starts = nil
		_, _, err = store.Txn(ctx, nil, []metadata.Put{{Key: s.o.Keys.Node("n1"), Value: metadata.Encode(known)}})
		require.NoError(t, err)
		restored, err := s.Restored(ctx)
		require.NoError(t, err)
		require.False(t, restored)
		require.NoError(t, s.recount(ctx))
		known, _, err = s.known(ctx)
		require.NoError(t, err)
		require.Equal(t, starts, known.Starts)
		require.Equal(t, s.boot(), known.Boot)
	})
}

// TestCopiedPathIsNotTrusted: the counter of a copy may be that of the cluster, and
// the copy older nonetheless; not if it was taken after a planned stop.
func TestCopiedPathIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		s := newSession(t, store)
		require.NoError(t, s.Announce(ctx))
		for _, c := range []struct{ doubted, clean, alone, restored bool }{
			{doubted: true, restored: true},
			{doubted: true, clean: true},
			{doubted: true, alone: true},
			{},
		} {
			require.NoError(t, s.o.File.Update(func(r *nodefile.Record) { r.Doubted, r.Clean = c.doubted, c.clean }))
			s.o.OnlyMember = c.alone
			r, err := s.Restored(ctx)
			require.NoError(t, err)
			require.Equal(t, c.restored, r, "%+v", c)
		}
		require.NoError(t, s.o.File.Update(func(r *nodefile.Record) { r.Doubted, r.Clean = true, true }))
		require.NoError(t, s.Announce(ctx))
		require.False(t, s.o.File.Record().Doubted, "the start is completed")
		require.False(t, s.o.File.Record().Clean, "and has not ended yet")
		require.NoError(t, s.NoteCleanStop())
		require.True(t, s.o.File.Record().Clean)
	})
}

// TestNameOfALivingBrokerIsTaken: the later process is refused, and changes nothing.
func TestNameOfALivingBrokerIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		living, second := newSession(t, store.Session()), newSession(t, store.Session())
		living.node.RPCAddress, second.node.RPCAddress = "a:1", "b:1"
		require.NoError(t, living.Announce(ctx))
		require.NoError(t, living.register(ctx))
		require.ErrorIs(t, second.AwaitName(ctx), errNameTaken)
		known, _, err := living.known(ctx)
		require.NoError(t, err)
		require.Equal(t, living.boot(), known.Boot)
		require.NoError(t, living.AwaitName(ctx), "its own earlier run")

		copied := newSession(t, store.Session())
		copied.onPath(t, living, living.boot())
		require.NoError(t, copied.o.File.Update(func(r *nodefile.Record) { r.Doubted = true }))
		require.ErrorIs(t, copied.AwaitName(ctx), errNameTaken, "on a copy of its data path")

		waited := make(chan error, 1)
		go func() { waited <- second.AwaitName(ctx) }()
		synctest.Wait()
		store.Expire(living.LeaseID())
		require.NoError(t, <-waited, "it died")
	})
}

// standing is a metadata store whose answers are slow until a time.
type standing struct {
	metadata.Store
	until time.Time
}

func (s standing) Get(ctx context.Context, key string) (metadata.Entry, error) {
	if time.Now().Before(s.until) {
		time.Sleep(slowMetadata)
	}
	return s.Store.Get(ctx, key)
}

// TestARegistrationOfADeadBrokerMayStay: while the metadata stands still no lease ends, so a name is not
// taken by a registration that outlives its time.
func TestARegistrationOfADeadBrokerMayStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		dead := newSession(t, store.Session())
		second := newSession(t, standing{store.Session(), time.Now().Add(20 * time.Second)})
		dead.node.RPCAddress, second.node.RPCAddress = "a:1", "b:1"
		require.NoError(t, dead.Announce(t.Context()))
		require.NoError(t, dead.register(t.Context()))
		waited := make(chan error, 1)
		go func() { waited <- second.AwaitName(t.Context()) }()
		time.Sleep(22 * time.Second)
		store.Expire(dead.LeaseID())
		require.NoError(t, <-waited)
	})
}

// TestBootCounterTellsACopyOfARunningBroker: also where a transaction got no
// answer, or did not hold.
func TestBootCounterTellsACopyOfARunningBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := context.Background()
		s := newSession(t, store)
		require.NoError(t, s.Announce(ctx))
		require.NoError(t, s.register(ctx))
		snapshot := newSession(t, store)
		snapshot.onPath(t, s, s.boot())
		require.NoError(t, s.recount(ctx))
		r, err := snapshot.Restored(ctx)
		require.NoError(t, err)
		require.True(t, r)
		r, err = s.Restored(ctx)
		require.NoError(t, err)
		require.False(t, r)

		later := newSession(t, store)
		later.onPath(t, s, 1)
		require.NoError(t, later.Announce(ctx))
		require.NoError(t, s.recount(ctx))
		require.ErrorIs(t, s.register(ctx), errReplaced)
		require.NoError(t, later.register(ctx))
	})
}

// TestRecountThatIsNotOnTheDiskIsNotTold: the disk is full.
func TestRecountThatIsNotOnTheDiskIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		s := newSession(t, store)
		full := errors.New("full")
		var fail error
		var err error
		s.o.File, err = nodefile.Open(vfstest.Wrap(vfstest.NewMemory(), func(vfstest.Op) error { return fail }), "/data", "test", "n1")
		require.NoError(t, err)
		require.NoError(t, s.Announce(ctx))
		require.NoError(t, s.register(ctx))
		fail = full
		require.ErrorIs(t, s.recount(ctx), full)
		require.NoError(t, s.register(ctx), "it is still the last one that was started")
	})
}

// overtaken calls before once, ahead of the next transaction.
type overtaken struct {
	metadata.Store
	before func()
}

func (o *overtaken) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if before := o.before; before != nil {
		o.before = nil
		before()
	}
	return o.Store.Txn(ctx, cmp, puts)
}

// TestLaterProcessStaysBesideARecount: it is started in the instant in which the
// earlier one raises the boot counter.
func TestLaterProcessStaysBesideARecount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		seen := &overtaken{Store: store}
		earlier, later := newSession(t, seen), newSession(t, store)
		require.NoError(t, earlier.Announce(ctx))
		require.NoError(t, earlier.register(ctx))
		seen.before = func() { require.NoError(t, later.Announce(ctx)) }
		require.NoError(t, earlier.recount(ctx))
		require.NoError(t, later.register(ctx))
		require.NoError(t, earlier.recount(ctx))
		require.NoError(t, later.register(ctx), "it is the last one that was started")
		require.ErrorIs(t, earlier.register(ctx), errReplaced)
	})
}

func TestRegistrationReplacesThatOfAnEarlierRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := context.Background()
		first, second := newSession(t, store.Session()), newSession(t, store.Session())
		require.NoError(t, first.register(ctx))
		require.NoError(t, second.register(ctx))
		require.Greater(t, second.Incarnation(), first.Incarnation())
		<-first.Lost()
		e, err := store.Get(ctx, second.o.Keys.Live("n1"))
		require.NoError(t, err)
		require.Equal(t, second.Incarnation(), ident.Incarnation(e.Create))
		n, err := metadata.DecodeNode(e)
		require.NoError(t, err)
		require.Equal(t, e.Lease, n.Lease, "a peer can revoke it")
	})
}

// slowStore answers late.
type slowStore struct {
	metadata.Store
	by time.Duration
}

func (s slowStore) wait(ctx context.Context) error {
	select {
	case <-time.After(s.by):
		return nil
	case <-ctx.Done():
		return metadata.ErrUnavailable
	}
}

func (s slowStore) Get(ctx context.Context, key string) (metadata.Entry, error) {
	e, err := s.Store.Get(ctx, key)
	return e, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Lease(ctx context.Context, ttl int64) (int64, <-chan struct{}, error) {
	id, lost, err := s.Store.Lease(ctx, ttl)
	return id, lost, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Txn(ctx context.Context, compares []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	ok, rev, err := s.Store.Txn(ctx, compares, puts)
	return ok, rev, cmp.Or(s.wait(ctx), err)
}

func (s slowStore) Revoke(ctx context.Context, id int64) error {
	return cmp.Or(s.Store.Revoke(ctx, id), s.wait(ctx))
}

func TestRegistrationAtASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 { // the second has an earlier one to end
			require.NoError(t, newSession(t, slowStore{store.Session(), time.Second}).Register(ctx))
		}
	})
}

// TestRestartKeepsThatABrokerLeaves: the mark of a leaving broker stays in the key that a
// start writes again, also when another write comes in between.
func TestRestartKeepsThatABrokerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		seen := &overtaken{Store: store}
		s := newSession(t, seen)
		require.NoError(t, s.Announce(ctx))
		seen.before = func() { // the operator comes first
			n, _, err := s.known(ctx)
			require.NoError(t, err)
			n.Leaving = true
			ok, _, err := store.Txn(ctx, nil, []metadata.Put{{Key: s.o.Keys.Node("n1"), Value: metadata.Encode(n)}})
			require.NoError(t, err)
			require.True(t, ok)
		}
		for range 2 {
			require.NoError(t, s.Announce(ctx))
			n, _, err := s.known(ctx)
			require.NoError(t, err)
			require.True(t, n.Leaving)
			require.Equal(t, s.boot(), n.Boot, "it was not written")
		}
	})
}

// TestRecountKnowsNoForgottenBroker: one that was decommissioned and runs still does not
// come back into the cluster by counting.
func TestRecountKnowsNoForgottenBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		s := newSession(t, store)
		require.NoError(t, s.Announce(ctx))
		_, _, err := store.Txn(ctx, nil, []metadata.Put{{Key: s.o.Keys.Node("n1"), Delete: true}})
		require.NoError(t, err)
		require.NoError(t, s.recount(ctx))
		_, revision, err := s.known(ctx)
		require.NoError(t, err)
		require.Zero(t, revision)
	})
}

// TestRegistrationInVainLeavesNoLease: it would be renewed forever.
func TestRegistrationInVainLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		seen := &leased{overtaken: overtaken{Store: store}}
		s, other := newSession(t, seen), newSession(t, store)
		seen.before = func() { require.NoError(t, other.register(ctx)) }
		require.ErrorIs(t, s.register(ctx), txn.ErrCompare)
		require.Len(t, seen.lost, 1)
		<-seen.lost[0]
		require.Zero(t, s.Incarnation())
	})
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
		return metadata.ErrUnavailable
	}
	return l.Store.Revoke(ctx, id)
}

// TestRegistrationIsNotBesideAnEarlierOne: while that cannot be ended there is no other.
func TestRegistrationIsNotBesideAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		seen := &leased{overtaken: overtaken{Store: store}}
		s := newSession(t, seen)
		require.NoError(t, s.register(t.Context()))
		seen.stuck = true
		require.ErrorIs(t, s.register(t.Context()), metadata.ErrUnavailable)
		require.Len(t, seen.lost, 1, "and no lease is taken")
	})
}

// TestNoticesStandBesideEachOther: that a broker stops, and which brokers it cannot reach.
func TestNoticesStandBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		s := newSession(t, store)
		require.NoError(t, s.register(t.Context()))
		published := func() metadata.NodeState {
			e, err := store.Get(t.Context(), s.o.Keys.Live("n1"))
			require.NoError(t, err)
			n, err := metadata.DecodeNode(e)
			require.NoError(t, err)
			return n
		}
		require.NoError(t, s.PublishUnreachable(t.Context(), []ident.Node{"n2"}))
		require.NoError(t, s.PublishHandingOver(t.Context()))
		require.True(t, published().Transferring)
		require.Equal(t, []ident.Node{"n2"}, published().Unreachable)
		require.NoError(t, s.PublishUnreachable(t.Context(), nil))
		require.True(t, published().Transferring)
		require.Empty(t, published().Unreachable)
	})
}

// TestPublicationEndsWithItsRegistration: a broker publishes under its lease, and never overwrites
// another registration.
func TestPublicationEndsWithItsRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		ctx := t.Context()
		first, second := newSession(t, store), newSession(t, store)
		require.NoError(t, first.register(ctx))
		require.NoError(t, first.PublishHandingOver(ctx))
		store.Expire(first.LeaseID())
		_, err := store.Get(ctx, first.o.Keys.Live("n1"))
		require.ErrorIs(t, err, metadata.ErrNotFound)

		require.NoError(t, second.register(ctx))
		require.NoError(t, first.PublishHandingOver(ctx))
		e, err := store.Get(ctx, first.o.Keys.Live("n1"))
		require.NoError(t, err)
		n, err := metadata.DecodeNode(e)
		require.NoError(t, err)
		require.False(t, n.Transferring, "another process said so")

		require.NoError(t, second.Leave(ctx))
		require.Zero(t, second.Incarnation())
	})
}

// TestRegistrationEndsWithAClusterThatWentBack: there is no other cluster to be in.
func TestRegistrationEndsWithAClusterThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		defer store.Close()
		require.ErrorIs(t, newSession(t, wentBack{store}).Register(t.Context()), metadata.ErrWentBack)
	})
}

type wentBack struct{ metadata.Store }

func (wentBack) Lease(context.Context, int64) (int64, <-chan struct{}, error) {
	return 0, nil, metadata.ErrWentBack
}

func (s *Session) boot() int64 { return s.o.File.Record().Boot }
