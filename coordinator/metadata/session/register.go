package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// errReplaced means that another process was started as this broker while this one was not registered.
var errReplaced = errors.New("session: another process was started under this broker's name")

// Register retries until this broker is registered, until it cannot be (a later run was started, or the metadata was
// restored from a backup), or until ctx ends.
func (s *Session) Register(ctx context.Context) error {
	retry := time.NewTicker(registerRetry)
	defer retry.Stop()
	for {
		err := s.register(ctx)
		if err == nil || errors.Is(err, errReplaced) || errors.Is(err, metadata.ErrWentBack) {
			return err
		}
		s.o.Log.WithError(err).Warn("cannot register, trying again")
		select {
		case <-ctx.Done():
			return fmt.Errorf("register: %w", err)
		case <-retry.C:
		}
	}
}

// register takes a lease and writes the live key under it. It first revokes the registration of an earlier run, whose
// process is gone: this one has locked the data path, and AwaitName has excluded others. It does not touch the
// registration of a later run (errReplaced).
func (s *Session) register(ctx context.Context) error {
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
	state.V, state.Lease, state.Boot, state.Starts = metadata.Version, lease, 0, nil
	key := s.o.Keys.Live(state.Name)
	try, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
	defer cancel()
	rev, err := txn.Write(try, s.o.Store, []metadata.Compare{{Key: key}}, metadata.Put{Key: key, Value: metadata.Encode(state), Lease: lease})
	if err != nil {
		undo, cancel := context.WithTimeout(ctx, txn.RequestTimeout) // otherwise the lease would be renewed forever
		defer cancel()
		_ = s.o.Store.Revoke(undo, lease)
		return fmt.Errorf("write %s: %w", key, err)
	}
	s.mu.Lock()
	s.mu.lease, s.mu.lost = lease, lost
	s.mu.Unlock()
	s.current.Store(rev)
	s.newest.Store(rev)
	return nil
}

// checkReplaced returns errReplaced if a later run of this broker was started.
func (s *Session) checkReplaced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
	defer cancel()
	known, _, err := s.known(ctx)
	if err == nil && s.ownState(known).LaterThan(s.o.File.Record().State()) {
		err = fmt.Errorf("%w: %s", errReplaced, s.node.Name)
	}
	return err
}

// revokeOld ends the registration of an earlier run.
func (s *Session) revokeOld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
	defer cancel()
	e, err := s.o.Store.Get(ctx, s.o.Keys.Live(s.node.Name))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read own registration: %w", err)
	}
	if err := s.o.Store.Revoke(ctx, e.Lease); err != nil {
		return fmt.Errorf("revoke the lease of an earlier run: %w", err)
	}
	return nil
}

func (s *Session) lease(ctx context.Context) (int64, <-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
	defer cancel()
	return s.o.Store.Lease(ctx, s.ttl)
}

// PublishHandingOver notifies the other brokers that this broker transfers its leaderships.
func (s *Session) PublishHandingOver(ctx context.Context) error {
	return s.publish(ctx, func(n *notice) { n.transferring = true })
}

// PublishUnreachable tells the other brokers which brokers this one cannot reach.
func (s *Session) PublishUnreachable(ctx context.Context, nodes []ident.Node) error {
	return s.publish(ctx, func(n *notice) { n.unreachable = nodes })
}

// notice is the part of a registration that changes while it lasts.
type notice struct {
	transferring bool
	unreachable  []ident.Node
}

// publish changes the notice and rewrites the registration with it; its incarnation stays. Concurrent changes would overwrite
// each other, so the lock is held until the write is answered.
func (s *Session) publish(ctx context.Context, change func(*notice)) error {
	s.notice.Lock()
	defer s.notice.Unlock()
	change(&s.notice.notice)
	state := s.node
	state.Transferring, state.Unreachable = s.notice.transferring, s.notice.unreachable
	state.V, state.Lease, state.Boot, state.Starts = metadata.Version, s.LeaseID(), 0, nil
	key := s.o.Keys.Live(state.Name)
	_, _, err := s.o.Store.Txn(ctx, []metadata.Compare{{Key: key, Create: s.current.Load(), Mod: -1}},
		[]metadata.Put{{Key: key, Value: metadata.Encode(state), Lease: state.Lease}})
	return err
}

// Leave ends the registration.
func (s *Session) Leave(ctx context.Context) error {
	s.Drop()
	return s.o.Store.Revoke(ctx, s.LeaseID())
}

const (
	// nameGrace is how long after its lease a registration of another process may still be visible.
	nameGrace = 2 * time.Second
	// slowMetadata is the duration of a request from which on leases may have been suspended.
	slowMetadata = time.Second
)

// errNameTaken means that a running broker already uses this broker's name.
var errNameTaken = errors.New("session: another broker of this name runs")

// AwaitName waits until no running broker uses this broker's name, and returns errNameTaken if such a broker renews its
// lease. The registration of an earlier run on this data path does not count.
func (s *Session) AwaitName(ctx context.Context) error {
	most := 2*time.Duration(s.ttl)*time.Second + nameGrace // twice the TTL, because a new leader of the metadata restarts the lease
	since := time.Now()
	for said := false; ; said = true {
		asked := time.Now()
		try, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
		other, err := s.otherRun(try)
		cancel()
		if time.Since(asked) >= slowMetadata {
			since = time.Now()
		}
		switch {
		case err != nil:
			return err
		case other == nil:
			return nil
		case time.Since(since) > most:
			return fmt.Errorf("%w: %s at %s; this process needs a --node-name of its own", errNameTaken, s.node.Name, other.RPCAddress)
		case !said:
			s.o.Log.WithField("address", other.RPCAddress).Warnf("%s is registered by another process: waiting for the end of its registration", s.node.Name)
		}
		select {
		case <-time.After(registerRetry):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNameTaken, ctx.Err())
		}
	}
}

// otherRun returns the registration under this name by a process with another data path; nil if none exists.
func (s *Session) otherRun(ctx context.Context) (*metadata.NodeState, error) {
	e, err := s.o.Store.Get(ctx, s.o.Keys.Live(s.node.Name))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read own registration: %w", err)
	}
	n, err := metadata.DecodeNode(e)
	if err != nil {
		return nil, err
	}
	r := s.o.File.Record()
	if n.Disk == string(r.Disk) && !r.Doubted {
		return nil, nil
	}
	return &n, nil
}

// ErrTooOld means that the cluster uses features that this build does not have, because at some time all its brokers
// were newer.
var ErrTooOld = errors.New("session: this build is too old for the cluster")

// CheckLevel returns ErrTooOld if the cluster's feature level is above this build's.
func (s *Session) CheckLevel(ctx context.Context) error {
	e, err := s.o.Store.Get(ctx, s.o.Keys.Config())
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the feature level: %w", err)
	}
	c, err := metadata.DecodeCluster(e)
	if err == nil && c.Level > s.node.Level {
		err = fmt.Errorf("%w: it has feature level %d, the cluster %d", ErrTooOld, s.node.Level, c.Level)
	}
	return err
}
