package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

// registerRetry is the pause between two checks of a name, or two attempts to register.
const registerRetry = 100 * time.Millisecond

// Options of a session. All fields except Mark are required.
type Options struct {
	Store metadata.Store
	Keys  metadata.Keys
	// Node is the broker's registration; Lease, Boot and Disk are filled in.
	Node metadata.NodeState
	File *nodefile.File // of the data path
	TTL  time.Duration  // of the lease; rounded up to whole seconds
	// OnlyMember: this data path has the only copy of the metadata.
	OnlyMember bool
	// Mark returns the marks that distinguish the data path from a copy; nil: no marks.
	Mark func() (nodefile.Marks, error)
	Log  logrus.FieldLogger
}

// Session is this broker's registration: the lease, the live key under it, and the incarnation, which is the key's
// CreateRevision.
type Session struct {
	o    Options
	node metadata.NodeState // Options.Node, completed by Announce
	ttl  int64              // seconds

	current atomic.Int64 // incarnation; 0 while there is no registration
	newest  atomic.Int64 // incarnation of the newest registration, lost or not
	notice  struct {     // held over a write of the registration
		sync.Mutex
		notice
	}
	mu struct {
		sync.Mutex
		lease int64
		lost  <-chan struct{}
	}
}

// New makes a session that is not registered.
func New(o Options) *Session {
	return &Session{o: o, node: o.Node, ttl: max(1, int64((o.TTL+time.Second-1)/time.Second))}
}

// Incarnation is the current registration's, 0 while there is none.
func (s *Session) Incarnation() ident.Incarnation { return ident.Incarnation(s.current.Load()) }

// Newest is the incarnation of the newest registration, even if it was lost.
func (s *Session) Newest() ident.Incarnation { return ident.Incarnation(s.newest.Load()) }

// LeaseID is the lease of the current registration.
func (s *Session) LeaseID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.lease
}

// Lost is closed when the store reports that the lease is gone.
func (s *Session) Lost() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.lost
}

// Drop ends the registration for this broker: Incarnation is 0 from now on. The key stays until its lease expires.
func (s *Session) Drop() { s.current.Store(0) }

// known reads this broker's permanent key; the zero value if there is none.
func (s *Session) known(ctx context.Context) (n metadata.NodeState, revision int64, err error) {
	key := s.o.Keys.Node(s.node.Name)
	e, err := s.o.Store.Get(ctx, key)
	if errors.Is(err, metadata.ErrNotFound) {
		return n, 0, nil
	}
	if err == nil {
		n, err = metadata.DecodeNode(e)
	}
	if err != nil {
		return n, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return n, e.Mod, nil
}
