package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	metaTimeout   = 2 * time.Second // of one request
	registerRetry = 100 * time.Millisecond
)

// errReplaced means that another process was started as this broker, later than
// this one: on a copy of its data path, or with a name that is taken.
var errReplaced = errors.New("coordinator: another process was started under this broker's name")

// session is this broker's registration: the lease, the live key under it, and
// the incarnation, which is the key's CreateRevision.
type session struct {
	store meta.Store
	keys  meta.Keys
	node  meta.NodeState // as registered; Lease and Boot are filled in here
	ttl   int64          // seconds
	log   logrus.FieldLogger

	inc  atomic.Int64 // 0 while there is no registration
	last atomic.Int64 // of the newest registration, gone or not
	boot atomic.Int64 // the boot counter, as the data path has it
	mu   struct {
		sync.Mutex
		lease int64
		lost  <-chan struct{}
	}
}

// incarnation is that of the present registration, 0 while there is none.
func (s *session) incarnation() ident.Incarnation { return ident.Incarnation(s.inc.Load()) }

// restored reports whether a data path, whose boot counter is local, is older than
// what the cluster knows of this broker: it was restored from a copy.
func (s *session) restored(ctx context.Context, local int64) (bool, error) {
	known, _, err := s.known(ctx)
	return local < known.Boot, err
}

// known reads this broker's permanent key; the zero value if there is none.
func (s *session) known(ctx context.Context) (n meta.NodeState, revision int64, err error) {
	key := s.keys.Node(s.node.Name)
	e, err := s.store.Get(ctx, key)
	if errors.Is(err, meta.ErrNotFound) {
		return n, 0, nil
	}
	if err == nil {
		n, err = meta.DecodeNode(e)
	}
	if err != nil {
		return n, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return n, e.Mod, nil
}

// announce writes the permanent key and raises the boot counter in it. local is
// the counter in the data path, raised and synced by save before the key is:
// a crash in between leaves the path ahead, which is harmless.
func (s *session) announce(ctx context.Context, local int64, save func(boot int64) error) error {
	key := s.keys.Node(s.node.Name)
	for {
		known, revision, err := s.known(ctx)
		if err != nil {
			return err
		}
		s.node.V, s.node.Boot, s.node.Leaving = meta.Version, max(local, known.Boot)+1, known.Leaving
		if err := save(s.node.Boot); err != nil {
			return err
		}
		s.boot.Store(s.node.Boot)
		put := []meta.Put{{Key: key, Value: meta.Encode(s.node)}}
		ok, _, err := s.store.Txn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: revision}}, put)
		if err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
		if ok {
			return nil
		}
	}
}

// recount raises the boot counter of a broker that runs, so that a copy of its data
// path that was taken meanwhile, such as a snapshot of its disk, is known as one.
func (s *session) recount(ctx context.Context, save func(boot int64) error) error {
	known, revision, err := s.known(ctx)
	if err != nil || revision == 0 || known.Boot > s.boot.Load() {
		return err // forgotten, or replaced: register finds out
	}
	known.V, known.Boot = meta.Version, s.boot.Load()+1
	if err := save(known.Boot); err != nil {
		return err
	}
	s.boot.Store(known.Boot)
	key := s.keys.Node(s.node.Name)
	ok, _, err := s.store.Txn(ctx, []meta.Compare{{Key: key, Create: -1, Mod: revision}}, []meta.Put{{Key: key, Value: meta.Encode(known)}})
	if err == nil && !ok {
		s.boot.Store(known.Boot - 1) // or it would be that of a later run, too
	}
	return err
}

// register takes a lease and writes the live key under it. A registration of an
// earlier run of this broker is revoked first: its process is gone, this one
// holds the data path. That of a later run is left alone (errReplaced).
func (s *session) register(ctx context.Context) error {
	if err := s.checkReplaced(ctx); err != nil {
		return err
	}
	if err := s.revokeOld(ctx); err != nil {
		return err
	}
	lease, lost, err := s.lease(ctx)
	if err != nil {
		return fmt.Errorf("take a lease: %w", err)
	}
	state := s.node
	state.V, state.Lease, state.Boot = meta.Version, lease, 0
	key := s.keys.Live(state.Name)
	try, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	ok, rev, err := s.store.Txn(try, []meta.Compare{{Key: key}}, []meta.Put{{Key: key, Value: meta.Encode(state), Lease: lease}})
	if err == nil && !ok {
		err = errCompare
	}
	if err != nil {
		undo, cancel := context.WithTimeout(ctx, metaTimeout) // it would be renewed for ever
		defer cancel()
		_ = s.store.Revoke(undo, lease)
		return fmt.Errorf("write %s: %w", key, err)
	}
	s.mu.Lock()
	s.mu.lease, s.mu.lost = lease, lost
	s.mu.Unlock()
	s.inc.Store(rev)
	s.last.Store(rev)
	return nil
}

// checkReplaced asks whether a later run of this broker was started.
func (s *session) checkReplaced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	known, _, err := s.known(ctx)
	if err == nil && known.Boot > s.boot.Load() {
		err = fmt.Errorf("%w: %s", errReplaced, s.node.Name)
	}
	return err
}

func (s *session) lease(ctx context.Context) (int64, <-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	return s.store.Lease(ctx, s.ttl)
}

// leaseID is the lease of the present registration.
func (s *session) leaseID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.lease
}

// gone is closed when the store says that the lease is gone.
func (s *session) gone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.lost
}

// revokeOld ends the registration of an earlier run.
func (s *session) revokeOld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	e, err := s.store.Get(ctx, s.keys.Live(s.node.Name))
	if errors.Is(err, meta.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read own registration: %w", err)
	}
	if err := s.store.Revoke(ctx, e.Lease); err != nil {
		return fmt.Errorf("revoke the lease of an earlier run: %w", err)
	}
	return nil
}

// registerUntil retries register until it works, cannot work, or ctx ends.
func (s *session) registerUntil(ctx context.Context) error {
	retry := time.NewTicker(registerRetry)
	defer retry.Stop()
	for {
		err := s.register(ctx)
		if err == nil || errors.Is(err, errReplaced) || errors.Is(err, meta.ErrWentBack) {
			return err
		}
		s.log.WithError(err).Warn("cannot register, trying again")
		select {
		case <-ctx.Done():
			return fmt.Errorf("register: %w", err)
		case <-retry.C:
		}
	}
}

// handingOver tells the others that this broker wants its leaderships taken.
func (s *session) handingOver(ctx context.Context) error {
	state := s.node
	state.HandingOver = true
	return s.tell(ctx, state)
}

// unreached tells the others which brokers this one cannot reach.
func (s *session) unreached(ctx context.Context, nodes []ident.Node) error {
	state := s.node
	state.Unreached = nodes
	return s.tell(ctx, state)
}

// tell rewrites the registration; its incarnation stays.
func (s *session) tell(ctx context.Context, state meta.NodeState) error {
	state.V, state.Lease, state.Boot = meta.Version, s.leaseID(), 0
	key := s.keys.Live(state.Name)
	_, _, err := s.store.Txn(ctx, []meta.Compare{{Key: key, Create: s.inc.Load(), Mod: -1}},
		[]meta.Put{{Key: key, Value: meta.Encode(state), Lease: state.Lease}})
	return err
}

// leave ends the registration.
func (s *session) leave(ctx context.Context) error {
	s.inc.Store(0)
	return s.store.Revoke(ctx, s.leaseID())
}
