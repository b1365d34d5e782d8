package metadata_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// backend is one kind of Store under test.
type backend interface {
	open(t testing.TB) metadata.Store
	lapse(t *testing.T, s metadata.Store, lease int64) // s dies without Revoke, and the lease's time passes
	compact(t *testing.T)                              // forget all history
	interrupt(t *testing.T, s metadata.Store)          // the connection breaks and comes back
}

// leaseTTL is the time of a lease, in seconds, that is renewed although the test stands still for a while.
const leaseTTL = 10

// conformance proves a Store.
func conformance(t *testing.T, b backend) {
	for name, test := range map[string]func(*testing.T, backend, string){
		"compare and swap":            testCompareAndSwap,
		"transactions are atomic":     testAtomic,
		"refused transactions":        testRefused,
		"list is one revision":        testList,
		"list of many keys":           testListMany,
		"get all is one revision":     testGetAll,
		"watch has no gap":            testWatchNoGap,
		"watch keeps one revision":    testWatchRevision,
		"compaction during a watch":   testCompaction,
		"watch survives a break":      testReconnect,
		"a lease runs out":            testLapse,
		"a lease is revoked":          testRevoke,
		"close ends what is running":  testClose,
		"an ended context sends none": testEndedContext,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a lease runs out" { // it only waits; the others compact the history, or stop the store
				t.Parallel()
			}
			test(t, b, "/"+t.Name()+"/")
		})
	}
}

// put writes a key, as soon as the store takes it, and returns the revision.
func put(t *testing.T, s metadata.Store, key, value string, lease int64) (rev int64) {
	t.Helper()
	wait.Until(t, func() bool {
		ok, at, err := s.Txn(wait.Context(t), nil, []metadata.Put{{Key: key, Value: []byte(value), Lease: lease}})
		require.NotErrorIs(t, err, metadata.ErrNoLease)
		rev = at
		return err == nil && ok
	}, "%s is written", key)
	return rev
}

// list reads all keys of a directory. A page that takes etcd some seconds is read again.
func list(t *testing.T, s metadata.Store, dir string) (entries []metadata.Entry, rev int64) {
	t.Helper()
	wait.Until(t, func() (ok bool) {
		var err error
		if entries, rev, err = s.List(wait.Context(t), dir); !errors.Is(err, metadata.ErrUnavailable) {
			require.NoError(t, err)
			return true
		}
		return false
	}, "%s is listed", dir)
	return entries, rev
}

func testCompareAndSwap(t *testing.T, b backend, dir string) {
	s, ctx, key := b.open(t), wait.Context(t), dir+"k"
	absent := []metadata.Compare{{Key: key}}
	ok, created, err := s.Txn(ctx, absent, []metadata.Put{{Key: key, Value: []byte("1")}})
	require.NoError(t, err)
	require.True(t, ok)
	ok, _, err = s.Txn(ctx, absent, []metadata.Put{{Key: key, Value: []byte("2")}})
	require.NoError(t, err)
	require.False(t, ok, "the key exists")

	ok, second, err := s.Txn(ctx, []metadata.Compare{{Key: key, Create: -1, Mod: created}}, []metadata.Put{{Key: key, Value: []byte("2")}})
	require.NoError(t, err)
	require.True(t, ok)
	require.Greater(t, second, created)
	ok, _, err = s.Txn(ctx, []metadata.Compare{{Key: key, Create: -1, Mod: created}}, []metadata.Put{{Key: key, Value: []byte("3")}})
	require.NoError(t, err)
	require.False(t, ok, "the revision moved")

	e, err := s.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, metadata.Entry{Key: key, Value: []byte("2"), Create: created, Mod: second}, e)
	ok, _, err = s.Txn(ctx, []metadata.Compare{{Key: key, Create: created, Mod: -1}}, []metadata.Put{{Key: key, Delete: true}})
	require.NoError(t, err)
	require.True(t, ok)
	_, err = s.Get(ctx, key)
	require.ErrorIs(t, err, metadata.ErrNotFound)
}

func testAtomic(t *testing.T, b backend, dir string) {
	s, ctx := b.open(t), wait.Context(t)
	put(t, s, dir+"guard", "x", 0)
	puts := []metadata.Put{{Key: dir + "a", Value: []byte("1")}, {Key: dir + "b", Value: []byte("1")}}
	ok, _, err := s.Txn(ctx, []metadata.Compare{{Key: dir + "a"}, {Key: dir + "guard"}}, puts)
	require.NoError(t, err)
	require.False(t, ok)
	entries, _ := list(t, s, dir)
	require.Len(t, entries, 1)
	ok, rev, err := s.Txn(ctx, []metadata.Compare{{Key: dir + "a"}}, puts)
	require.NoError(t, err)
	require.True(t, ok)
	for _, p := range puts {
		e, err := s.Get(ctx, p.Key)
		require.NoError(t, err)
		require.Equal(t, rev, e.Mod)
	}
}

func testRefused(t *testing.T, b backend, dir string) {
	s, ctx := b.open(t), wait.Context(t)
	_, _, err := s.Txn(ctx, nil, []metadata.Put{{Key: dir + "a"}, {Key: dir + "a"}})
	require.ErrorIs(t, err, metadata.ErrInvalid)
	many := make([]metadata.Put, metadata.EmbeddedMaxTxn+1)
	for i := range many {
		many[i].Key = fmt.Sprint(dir, i)
	}
	_, _, err = s.Txn(ctx, nil, many)
	require.ErrorIs(t, err, metadata.ErrInvalid)
	_, _, err = s.Txn(ctx, nil, []metadata.Put{{Key: dir + "a"}, {Key: dir + "b", Lease: 987654321}})
	require.ErrorIs(t, err, metadata.ErrNoLease)
	entries, _ := list(t, s, dir)
	require.Empty(t, entries)
}

// testListMany reads more keys than a store gives in one answer, while one that
// comes late in their order changes.
func testListMany(t *testing.T, b backend, dir string) {
	const many, last = 5_000, "99999"
	s, ctx := b.open(t), wait.Context(t)
	for first := 0; first < many; first += metadata.MaxTxn {
		var puts []metadata.Put
		for i := first; i < min(first+metadata.MaxTxn, many); i++ {
			puts = append(puts, metadata.Put{Key: fmt.Sprintf("%s%05d", dir, i), Value: []byte("x")})
		}
		ok, _, err := s.Txn(ctx, nil, puts)
		require.NoError(t, err)
		require.True(t, ok)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _, _ = s.Txn(ctx, nil, []metadata.Put{{Key: dir + last, Value: []byte("y")}})
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	entries, rev := list(t, s, dir)
	require.GreaterOrEqual(t, len(entries), many)
	require.True(t, slices.IsSortedFunc(entries, func(a, b metadata.Entry) int { return cmp.Compare(a.Key, b.Key) }))
	for _, e := range entries {
		require.LessOrEqual(t, e.Mod, rev, "nothing newer than the revision of the whole")
	}
}

func testList(t *testing.T, b backend, dir string) {
	s := b.open(t)
	put(t, s, dir+"b", "2", 0)
	put(t, s, dir+"a", "1", 0)
	last := put(t, s, dir+"c/d", "3", 0)
	entries, rev := list(t, s, dir)
	require.GreaterOrEqual(t, rev, last)
	require.Equal(t, []string{dir + "a", dir + "b", dir + "c/d"}, keysOf(entries))
	entries, _ = list(t, s, dir+"nothing")
	require.Empty(t, entries)
}

func testGetAll(t *testing.T, b backend, dir string) {
	s, ctx := b.open(t), wait.Context(t)
	put(t, s, dir+"a", "1", 0)
	last := put(t, s, dir+"c", "3", 0)
	entries, err := s.GetAll(ctx, []string{dir + "c", dir + "b", dir + "a"})
	require.NoError(t, err)
	require.Equal(t, []string{dir + "c", dir + "a"}, keysOf(entries))
	require.Equal(t, last, entries[0].Mod)
	require.Equal(t, []byte("1"), entries[1].Value)
	entries, err = s.GetAll(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func keysOf(entries []metadata.Entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Key
	}
	return out
}

func testLapse(t *testing.T, b backend, dir string) {
	dying, watching := b.open(t), b.open(t)
	id, _, err := dying.Lease(wait.Context(t), leaseTTL)
	require.NoError(t, err)
	put(t, dying, dir+"live", "n1", id)
	f := follow(t, watching, dir)
	f.until(func(state map[string]string) bool { return state[dir+"live"] == "n1" })
	b.lapse(t, dying, id)
	f.until(func(state map[string]string) bool { return len(state) == 0 })
}

func testRevoke(t *testing.T, b backend, dir string) {
	owner, other := b.open(t), b.open(t)
	id, lost, err := owner.Lease(wait.Context(t), 60)
	require.NoError(t, err)
	put(t, owner, dir+"live", "n1", id)
	select {
	case <-lost:
		require.Fail(t, "lost too early")
	default:
	}
	require.NoError(t, other.Revoke(wait.Context(t), id))
	_, err = owner.Get(wait.Context(t), dir+"live")
	require.ErrorIs(t, err, metadata.ErrNotFound)
	require.NoError(t, other.Revoke(wait.Context(t), id), "revoking again is no error")

	short, lost, err := owner.Lease(wait.Context(t), 1)
	require.NoError(t, err)
	require.NoError(t, other.Revoke(wait.Context(t), short))
	wait.For(t, lost, "the end of the lease")
}

func testClose(t *testing.T, b backend, dir string) {
	s := b.open(t)
	watch := s.Watch(context.Background(), dir)
	require.True(t, (<-watch).Reset)
	_, _, err := s.Lease(wait.Context(t), 60)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, open := <-watch
	require.False(t, open)
	require.NoError(t, s.Close(), "closing again is no error")
	_, open = <-s.Watch(context.Background(), dir)
	require.False(t, open)
	_, _, err = s.Txn(wait.Context(t), nil, nil)
	require.Error(t, err)
}

func testEndedContext(t *testing.T, b backend, dir string) {
	s := b.open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := s.Txn(ctx, nil, []metadata.Put{{Key: dir + "a"}})
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	_, err = s.Get(ctx, dir+"a")
	require.ErrorIs(t, err, metadata.ErrUnavailable)
}
