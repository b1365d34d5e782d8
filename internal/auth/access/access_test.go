package access_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var keys = metadata.Keys{Cluster: "c"}

// registry watches a store in memory until the test ends.
func registry(t testing.TB, o access.Options) (*access.Registry, *metadatatest.Memory) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	o.Keys, o.Log = keys, log
	store, r := metadatatest.NewMemory(), access.NewRegistry(o)
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { r.Watch(ctx, store) })
	t.Cleanup(func() {
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
	return r, store
}

func TestPattern(t *testing.T) {
	for _, row := range []struct {
		pattern access.Pattern
		name    string
		want    bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a", "ba", false}, {"a", "A", false},
		{"*", "anything#ephemeral", true}, {"*", "", true}, {"?", "", false}, {"?", "a", true}, {"?", "ab", false},
		{"logs.*", "logs.a", true}, {"logs.*", "logs.", true}, {"logs.*", "logs", false}, {"logs.*", "xlogs.a", false},
		{"logs.*", "logs.a#ephemeral", true}, {"a.b", "axb", false}, // a dot is a dot
		{"*.error", "x.error", true}, {"*.error", "x.error.y", false}, {"a*b*c", "a1b2b3c", true}, {"a*b*c", "a1c", false},
		{"", "", true}, {"", "a", false},
	} {
		require.Equal(t, row.want, row.pattern.Match(row.name), "%q %q", row.pattern, row.name)
	}
	require.False(t, access.Pattern("").Valid())
	require.False(t, access.Pattern("a b").Valid())
	require.False(t, access.Pattern(strings.Repeat("a", 129)).Valid())
	require.True(t, access.Pattern("a?.*-_#ephemeral").Valid())
}

// TestAPatternOfStarsIsFast: a hostile pattern costs the product of the lengths.
func TestAPatternOfStarsIsFast(t *testing.T) {
	matches := make(chan bool, 1)
	go func() { matches <- access.Pattern(strings.Repeat("a*", 63) + "b").Match(strings.Repeat("a", 64)) }()
	require.False(t, wait.For(t, matches, "the result of 63 stars"))
}

func TestOpenUntilThereIsAUser(t *testing.T) {
	r, _ := registry(t, access.Options{})
	require.False(t, r.Policy().Enforced())
	require.True(t, r.Policy().Allow(access.Identity{}, access.AdministerCluster, ""))
	_, err := r.Create(t.Context(), access.NewUser{Name: "writer"})
	require.ErrorIs(t, err, access.ErrLastAdministrator, "the first user must be able to make others")
	_, err = r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	require.True(t, r.Policy().Enforced())
	require.False(t, r.Policy().Allow(access.Identity{}, access.Publish, "t"))
}

func TestEnforcedFromTheStart(t *testing.T) {
	for name, o := range map[string]access.Options{"bootstrap": {Bootstrap: []byte("b.token")}, "auth service": {Enforce: true}} {
		r, _ := registry(t, o)
		require.False(t, r.Policy().Allow(access.Identity{}, access.Observe, ""), name)
	}
	r, _ := registry(t, access.Options{Bootstrap: []byte("b.token")})
	id, err := r.Verify("b.token")
	require.NoError(t, err)
	require.True(t, r.Policy().Allow(id, access.AdministerCluster, ""))
	_, err = r.Verify("b.tokem")
	require.ErrorIs(t, err, access.ErrBadToken)
}

// TestRights: each right alone allows its own operations and no other.
func TestRights(t *testing.T) {
	r, _ := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	all := []access.Right{access.Publish, access.Consume, access.Administer, access.Observe, access.AdministerCluster, access.Discover}
	for _, row := range []struct {
		name  string
		grant func(string) error
		want  access.Right // on topic t.1; of Discover the bit stands for it
	}{
		{"nothing", func(string) error { return nil }, 0},
		{"writer", func(n string) error { return r.Grant(ctx, n, "t.*", access.Publish) }, access.Publish | access.Discover},
		{"reader", func(n string) error { return r.Grant(ctx, n, "t.*", access.Consume) }, access.Consume | access.Discover},
		{"keeper", func(n string) error { return r.Grant(ctx, n, "t.*", access.Administer) }, access.Administer | access.Discover},
		{"elsewhere", func(n string) error { return r.Grant(ctx, n, "u.*", access.Consume) }, 0},
		{"watcher", func(n string) error { return r.Grant(ctx, n, "", access.Observe) }, access.Observe | access.Discover},
		{"chief", func(n string) error { return r.Grant(ctx, n, "", access.AdministerCluster) },
			access.Publish | access.Consume | access.Administer | access.Observe | access.AdministerCluster | access.Discover},
	} {
		token, err := r.Create(ctx, access.NewUser{Name: row.name})
		require.NoError(t, err)
		require.NoError(t, row.grant(row.name))
		id, err := r.Verify(token)
		require.NoError(t, err)
		for _, right := range all {
			require.Equal(t, row.want&right != 0, r.Policy().Allow(id, right, "t.1"), "%s: %s", row.name, right)
		}
	}
	require.True(t, r.Policy().Allow(access.Identity{Kind: access.Peer}, access.AdministerCluster, ""))
}

func TestAnonymousHasWhatIsGrantedToIt(t *testing.T) {
	r, _ := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	token, err := r.Create(ctx, access.NewUser{Name: access.AnonymousUser})
	require.NoError(t, err)
	require.Empty(t, token)
	require.NoError(t, r.Grant(ctx, access.AnonymousUser, "", access.Observe))
	require.True(t, r.Policy().Allow(access.Identity{}, access.Observe, ""))
	require.False(t, r.Policy().Allow(access.Identity{}, access.Publish, "t"))
	require.ErrorIs(t, r.Grant(ctx, access.AnonymousUser, "", access.AdministerCluster), access.ErrInvalid)
}

// TestTokens: a token holds until it is rotated or its user is deleted.
func TestTokens(t *testing.T) {
	r, store := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	token, err := r.Create(ctx, access.NewUser{Name: "w.1"})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(token, "w.1."))
	id, err := r.Verify(token)
	require.NoError(t, err)

	e, err := store.Get(ctx, keys.User("w.1"))
	require.NoError(t, err)
	require.NotContains(t, string(e.Value), strings.TrimPrefix(token, "w.1."), "the metadata keeps a hash alone")
	require.Contains(t, string(e.Value), `"hash":"sha256:`)

	for _, bad := range []string{"", ".", "w.1", token + "x", token[:len(token)-1], "root." + strings.TrimPrefix(token, "w.1."), strings.Repeat("x", 100_000)} {
		_, err = r.Verify(bad)
		require.ErrorIs(t, err, access.ErrBadToken, bad)
	}
	rotated, err := r.Rotate(ctx, "w.1")
	require.NoError(t, err)
	require.False(t, r.Policy().Holds(id), "sessions of the old token end")
	_, err = r.Verify(token)
	require.ErrorIs(t, err, access.ErrBadToken)
	id, err = r.Verify(rotated)
	require.NoError(t, err)
	require.NoError(t, r.Delete(ctx, "w.1"))
	require.False(t, r.Policy().Holds(id))
	_, err = r.Verify(rotated)
	require.ErrorIs(t, err, access.ErrBadToken)
}

func TestCertificates(t *testing.T) {
	r, _ := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	_, err = r.Create(ctx, access.NewUser{Name: "machine", Certificate: true})
	require.NoError(t, err)
	require.Equal(t, access.Identity{Kind: access.Named, Name: "machine"}, r.Policy().ByCertificate("machine"))
	require.Equal(t, access.Identity{}, r.Policy().ByCertificate("root"), "a user with a token does not log in with a certificate")
	require.False(t, r.Policy().Holds(access.Identity{Kind: access.Named, Name: "root"}))
	_, err = r.Rotate(ctx, "machine")
	require.ErrorIs(t, err, access.ErrInvalid)
}

func TestTheLastAdministratorStays(t *testing.T) {
	r, _ := registry(t, access.Options{Bootstrap: []byte("b")})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	require.ErrorIs(t, r.Delete(ctx, "root"), access.ErrLastAdministrator)
	require.ErrorIs(t, r.Revoke(ctx, "root", "", access.AdministerCluster), access.ErrLastAdministrator)
	require.ErrorIs(t, r.Delete(ctx, access.BootstrapUser), access.ErrNoUser)
	_, err = r.Create(ctx, access.NewUser{Name: "second", Admin: true})
	require.NoError(t, err)
	require.NoError(t, r.Delete(ctx, "root"))
	_, err = r.Create(ctx, access.NewUser{Name: "second"})
	require.ErrorIs(t, err, access.ErrExists)
}

// TestAUserThatCannotBeRead has no rights, and enforcement stays on.
func TestAUserThatCannotBeRead(t *testing.T) {
	r, store := registry(t, access.Options{})
	for _, value := range []string{"{", `{"v":99,"cluster":"administer"}`, `{"v":1,"cluster":"everything"}`} {
		changed := r.Changed()
		_, _, err := store.Txn(t.Context(), nil, []metadata.Put{{Key: keys.User("x"), Value: []byte(value)}})
		require.NoError(t, err)
		<-changed
		wait.Until(t, func() bool { return r.Policy().User("x") != nil }, "the user is read")
		require.True(t, r.Policy().Enforced())
		require.Zero(t, r.Policy().User("x").Cluster)
	}
}

func TestRevoke(t *testing.T) {
	r, _ := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	token, err := r.Create(ctx, access.NewUser{Name: "w"})
	require.NoError(t, err)
	id, err := r.Verify(token)
	require.NoError(t, err)
	require.NoError(t, r.Grant(ctx, "w", "t", access.Publish|access.Consume))
	require.NoError(t, r.Revoke(ctx, "w", "t", access.Publish))
	require.False(t, r.Policy().Allow(id, access.Publish, "t"))
	require.True(t, r.Policy().Allow(id, access.Consume, "t"))
	require.ErrorIs(t, r.Grant(ctx, "w", "a b", access.Publish), access.ErrInvalid)
	require.ErrorIs(t, r.Grant(ctx, "nobody", "t", access.Publish), access.ErrNoUser)
}

// TestACheckAllocatesNothing is invariant of the way of a put.
func TestACheckAllocatesNothing(t *testing.T) {
	r, id := checked(t)
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.Policy().Allow(id, access.Publish, "orders.eu.1") }))
}

func checked(t testing.TB) (*access.Registry, access.Identity) {
	r, _ := registry(t, access.Options{})
	_, err := r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	token, err := r.Create(t.Context(), access.NewUser{Name: "w"})
	require.NoError(t, err)
	require.NoError(t, r.Grant(t.Context(), "w", "logs.*", access.Publish))
	require.NoError(t, r.Grant(t.Context(), "w", "orders.*", access.Publish))
	id, err := r.Verify(token)
	require.NoError(t, err)
	require.True(t, r.Policy().Allow(id, access.Publish, "orders.eu.1"))
	return r, id
}

func BenchmarkAllow(b *testing.B) {
	r, id := checked(b)
	b.ReportAllocs()
	for b.Loop() {
		r.Policy().Allow(id, access.Publish, "orders.eu.1")
	}
}

// TestQuotaOfAUser: a change sets the numbers that it names, survives the metadata, and holds for the user alone.
func TestQuotaOfAUser(t *testing.T) {
	r, store := registry(t, access.Options{})
	ctx := t.Context()
	_, err := r.Create(ctx, access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	token, err := r.Create(ctx, access.NewUser{Name: "shop"})
	require.NoError(t, err)
	_, err = r.Create(ctx, access.NewUser{Name: access.AnonymousUser})
	require.NoError(t, err)
	topics, channels, rate := 3, 5, int64(700)
	require.ErrorIs(t, r.SetQuota(ctx, "nobody", access.QuotaChange{Topics: &topics}), access.ErrNoUser)
	require.NoError(t, r.SetQuota(ctx, "shop", access.QuotaChange{Topics: &topics, PutRate: &rate}))
	require.NoError(t, r.SetQuota(ctx, "shop", access.QuotaChange{Channels: &channels}))
	require.NoError(t, r.SetQuota(ctx, access.AnonymousUser, access.QuotaChange{Topics: &channels}))
	require.NoError(t, r.Grant(ctx, "shop", "t", access.Publish), "another change keeps it")
	id, err := r.Verify(token)
	require.NoError(t, err)
	want := access.Quota{Topics: 3, Partitions: 10_000, Channels: 5, PutRate: 700} // with the default of what is not set
	require.Equal(t, want, r.Policy().Quota(id))
	require.Equal(t, access.Quota{Topics: 5, Partitions: 10_000, Channels: 10_000}, r.Policy().Quota(access.Identity{}))
	require.Zero(t, r.Policy().Quota(access.Identity{Kind: access.Named, Name: "root"}))
	e, err := store.Get(ctx, keys.User("shop"))
	require.NoError(t, err)
	require.Contains(t, string(e.Value), `"quota":{"topics":3,"channels":5,"put_rate":700}`)
	none := 0
	require.NoError(t, r.SetQuota(ctx, "shop", access.QuotaChange{Topics: &none}))
	require.Equal(t, access.Quota{Partitions: 10_000, Channels: 5, PutRate: 700}, r.Policy().Quota(id))
	again := access.NewRegistry(access.Options{Keys: keys})
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { again.Watch(watched, store) })
	wait.Until(t, func() bool { return again.Policy() != nil }, "the users are read")
	stop()
	watch.Wait()
	require.Equal(t, access.Quota{Partitions: 10_000, Channels: 5, PutRate: 700}, again.Policy().Quota(id))
}
