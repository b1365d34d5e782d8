package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	maxUsers  = 10_000 // of a cluster: each broker keeps all of them in memory
	maxGrants = 100    // patterns of a user: a check reads all of them
)

var (
	// ErrNotReady means that the users have not been read yet.
	ErrNotReady = errors.New("access: the users have not been read yet")
	// ErrExists means that a user of this name exists.
	ErrExists = errors.New("access: a user with this name exists")
	// ErrNoUser means that no user of this name exists.
	ErrNoUser = errors.New("access: no such user")
	// ErrLastAdministrator means that the cluster would have no administrator.
	ErrLastAdministrator = errors.New("access: the cluster must have an administrator")
	// ErrConflict means that the user was changed at the same time; nothing was done.
	ErrConflict = errors.New("access: the user was changed at the same time, try again")
	// ErrUnknown means that the metadata did not answer in time: the change may have been made, or may still be made.
	ErrUnknown = errors.New("access: the metadata did not answer in time: the change may have been made, list the users before it is repeated")
	// ErrNotSeen means that the change was made, but this broker has not seen it yet.
	ErrNotSeen = errors.New("access: the change was made, this broker has not seen it yet")
)

// Options of a Registry.
type Options struct {
	Keys metadata.Keys
	// Bootstrap is the token of --bootstrap-admin-token-file, or nil. With it rights are enforced even without users.
	Bootstrap []byte
	// First is the secret that creates the first administrator, and FirstFile its file; nil if Bootstrap is used for
	// that.
	First     []byte
	FirstFile string
	// Enforce: rights are enforced even without users, because an auth service is configured.
	Enforce bool
	Log     logrus.FieldLogger
}

// Registry has the current policy, and changes it. Its methods may be called by any goroutine.
type Registry struct {
	o       Options
	policy  atomic.Pointer[Policy] // nil until the metadata has answered
	store   atomic.Pointer[metadata.Store]
	changed *concurrency.Signal // of the policy
	mu      struct {
		sync.Mutex
		entries  map[string]*User // by name, as read by the watch
		revision int64
	}
}

// NewRegistry makes a registry that has not read the users yet.
func NewRegistry(o Options) *Registry {
	r := &Registry{o: o, changed: concurrency.NewSignal()}
	r.mu.entries = map[string]*User{}
	return r
}

// Watch follows the users in the metadata until ctx ends. It is called once.
func (r *Registry) Watch(ctx context.Context, store metadata.Store) {
	r.store.Store(&store)
	for change := range store.Watch(ctx, r.o.Keys.Users()) {
		r.apply(change)
	}
}

func (r *Registry) apply(c metadata.Change) {
	var read []*User
	for _, e := range c.Puts {
		name, ok := r.o.Keys.ParseUser(e.Key)
		if !ok {
			continue
		}
		u, err := decodeUser(name, e)
		if err != nil {
			r.o.Log.WithError(err).WithField("user", name).Error("cannot read a user, it has no rights until it can be read")
		}
		read = append(read, u)
	}
	defer r.changed.Notify() // when the lock is released
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Reset {
		clear(r.mu.entries)
	}
	for _, u := range read {
		r.mu.entries[u.Name] = u
	}
	for _, key := range c.Deletes {
		if name, ok := r.o.Keys.ParseUser(key); ok {
			delete(r.mu.entries, name)
		}
	}
	r.mu.revision = max(r.mu.revision, c.Revision)
	r.publishLocked()
}

func (r *Registry) publishLocked() {
	p := &Policy{users: maps.Clone(r.mu.entries)}
	p.enforced = len(p.users) > 0 || r.Always()
	if r.o.Bootstrap != nil {
		p.users[BootstrapUser] = &User{Name: BootstrapUser, TokenID: BootstrapUser, Cluster: AdministerCluster}
	}
	r.policy.Store(p)
}

// Always reports whether rights are enforced even without users.
func (r *Registry) Always() bool { return r.o.Enforce || r.o.Bootstrap != nil }

// Policy is the current policy; nil until the metadata has answered.
func (r *Registry) Policy() *Policy { return r.policy.Load() }

// Changed is closed with the next change of the policy.
func (r *Registry) Changed() <-chan struct{} { return r.changed.Changed() }

// Verify identifies the user of a token by one fast hash: ErrBadToken or ErrNotReady.
func (r *Registry) Verify(token string) (Identity, error) {
	p := r.Policy()
	if p == nil {
		return Identity{}, ErrNotReady
	}
	if bootstrapped(r.o.Bootstrap, token) {
		return Identity{Kind: Named, Name: BootstrapUser, TokenID: BootstrapUser}, nil
	}
	return p.verify(token)
}

// Begins reports whether a token may create the first administrator: it is the secret for that, and the cluster has no
// administrator yet.
func (r *Registry) Begins(token string) bool {
	p := r.Policy()
	return p != nil && !p.Administered() && bootstrapped(r.o.First, token)
}

// FirstFile is the file with the secret that makes the first administrator, or "".
func (r *Registry) FirstFile() string { return r.o.FirstFile }

// Users lists all users by name, without the user of the bootstrap token.
func (r *Registry) Users() ([]*User, error) {
	p := r.Policy()
	if p == nil {
		return nil, ErrNotReady
	}
	users := slices.SortedFunc(maps.Values(p.users), func(a, b *User) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(users, func(u *User) bool { return u.Name == BootstrapUser }), nil
}

// NewUser has the properties of a user to create.
type NewUser struct {
	Name        string
	Admin       bool // administers the cluster
	Certificate bool // logs in with a certificate of this common name, and has no token
}

// Create makes a user and returns its token, which is stored nowhere; "" for a user that logs in with a certificate, and for
// "anonymous". The first user must be an administrator.
func (r *Registry) Create(ctx context.Context, n NewUser) (token string, err error) {
	p := r.Policy()
	if p == nil {
		return "", ErrNotReady
	}
	if err := validName(n.Name); err != nil {
		return "", err
	}
	u := &User{Name: n.Name, Certificate: n.Certificate}
	switch {
	case n.Name == AnonymousUser && (n.Admin || n.Certificate):
		return "", fmt.Errorf("%w: %s is every client without credentials", ErrInvalid, AnonymousUser)
	case p.users[n.Name] != nil:
		return "", ErrExists
	case len(p.users) >= maxUsers:
		return "", fmt.Errorf("%w: the cluster has the maximum of %d users", ErrInvalid, maxUsers)
	case !n.Admin && !p.Administered():
		return "", fmt.Errorf("%w: create an administrator first", ErrLastAdministrator)
	}
	if n.Admin {
		u.Cluster = AdministerCluster
	}
	if n.Name != AnonymousUser && !n.Certificate {
		token, u.TokenID, u.Hash = issue(n.Name)
	}
	key := r.o.Keys.User(u.Name)
	return token, r.commit(ctx, []metadata.Compare{{Key: key}}, metadata.Put{Key: key, Value: u.encode()}, ErrExists)
}

// Rotate issues a new token for a user; the old one is invalid from now on.
func (r *Registry) Rotate(ctx context.Context, name string) (token string, err error) {
	err = r.change(ctx, name, func(u *User) error {
		if u.TokenID == "" {
			return fmt.Errorf("%w: %s has no token", ErrInvalid, name)
		}
		token, u.TokenID, u.Hash = issue(name)
		return nil
	})
	return token, err
}

// Delete removes a user. The last administrator cannot be removed.
func (r *Registry) Delete(ctx context.Context, name string) error {
	u, err := r.find(name)
	if err != nil {
		return err
	}
	return r.replace(ctx, u, 0, metadata.Put{Key: r.o.Keys.User(name), Delete: true})
}

// Grant adds rights on the topics of a pattern, or on the cluster if topic is "".
func (r *Registry) Grant(ctx context.Context, name string, topic Pattern, rights Right) error {
	switch {
	case topic == "" && rights&^clusterRights != 0, topic != "" && !topic.Valid():
		return fmt.Errorf("%w: pattern %q", ErrInvalid, topic)
	case name == AnonymousUser && rights&AdministerCluster != 0:
		return fmt.Errorf("%w: %s is every client without credentials", ErrInvalid, name)
	}
	return r.change(ctx, name, func(u *User) error {
		if topic == "" {
			u.Cluster |= rights
		} else if u.Grants = u.granted(topic, rights); len(u.Grants) > maxGrants {
			return fmt.Errorf("%w: %s has the maximum of %d patterns", ErrInvalid, name, maxGrants)
		}
		return nil
	})
}

// Revoke removes rights on exactly this pattern, or on the cluster if topic is "". The last administrator keeps that
// right.
func (r *Registry) Revoke(ctx context.Context, name string, topic Pattern, rights Right) error {
	return r.change(ctx, name, func(u *User) error {
		if topic == "" {
			u.Cluster &^= rights
		} else {
			u.Grants = u.revoked(topic, rights)
		}
		return nil
	})
}

// QuotaChange changes a quota; nil = unchanged, 0 = no limit.
type QuotaChange struct {
	Topics, Partitions, Channels *int
	PutRate, PutBytesRate        *int64
}

// SetQuota changes the quota of a user, for later creations and puts.
func (r *Registry) SetQuota(ctx context.Context, name string, c QuotaChange) error {
	return r.change(ctx, name, func(u *User) error {
		q := &u.Quota
		set(&q.Topics, c.Topics, noLimit)
		set(&q.Partitions, c.Partitions, noLimit)
		set(&q.Channels, c.Channels, noLimit)
		set(&q.PutRate, c.PutRate, 0)
		set(&q.PutBytesRate, c.PutBytesRate, 0)
		return nil
	})
}

// set changes a value unless the change is nil; zero is stored for 0.
func set[T int | int64](to, value *T, zero T) {
	if value != nil {
		*to = cmp.Or(*value, zero)
	}
}

func (r *Registry) find(name string) (*User, error) {
	p := r.Policy()
	if p == nil {
		return nil, ErrNotReady
	}
	if u := p.users[name]; u != nil && name != BootstrapUser {
		return u, nil
	}
	return nil, ErrNoUser
}

func (r *Registry) change(ctx context.Context, name string, by func(*User) error) error {
	u, err := r.find(name)
	if err != nil {
		return err
	}
	next := *u
	if err := by(&next); err != nil {
		return err
	}
	return r.replace(ctx, u, next.Cluster, metadata.Put{Key: r.o.Keys.User(name), Value: next.encode()})
}

// replace writes the key of a user, unless the key has changed, or the cluster would have no administrator: the key of another
// administrator must not have changed either.
func (r *Registry) replace(ctx context.Context, u *User, rights Right, put metadata.Put) error {
	compare := []metadata.Compare{{Key: put.Key, Create: -1, Mod: u.Revision}}
	if u.Cluster&^rights&AdministerCluster != 0 {
		other := r.Policy().administrator(u.Name)
		if other == nil {
			return fmt.Errorf("%w: %s is the last one", ErrLastAdministrator, u.Name)
		}
		compare = append(compare, metadata.Compare{Key: r.o.Keys.User(other.Name), Create: -1, Mod: other.Revision})
	}
	return r.commit(ctx, compare, put, ErrConflict)
}

// commit writes one key, and returns when this broker's policy has the change.
func (r *Registry) commit(ctx context.Context, compare []metadata.Compare, put metadata.Put, failed error) error {
	store := *r.store.Load()
	ok, revision, err := store.Txn(ctx, compare, []metadata.Put{put})
	switch {
	case errors.Is(err, metadata.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return fmt.Errorf("access: write the user: %w", err)
	case !ok:
		return failed
	}
	if err := r.changed.Await(ctx, func() bool { return r.seen(revision) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSeen, err)
	}
	return nil
}

func (r *Registry) seen(revision int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.revision >= revision
}
