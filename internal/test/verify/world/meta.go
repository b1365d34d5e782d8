package world

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// store is the metadata as one process sees it: requests take time, fail while it is cut off, and lose their answer occasionally.
// The store owns the session below it. A lease lives as long as its process reaches the metadata, and the session's TTL longer.
type store struct {
	session *metadatatest.Memory
	random  *rand.Rand
	mu      sync.Mutex
	lossy   bool // answers of transactions get lost
	slow    time.Duration
	cut     bool
	leases  []int64
}

var _ metadata.Store = (*store)(nil)

// before waits as a request does on its way. lost: its answer gets lost.
func (s *store) before(ctx context.Context) (lost bool) {
	s.mu.Lock()
	d := time.Duration(200+s.random.IntN(1800))*time.Microsecond + s.slow
	lost = s.lossy && s.random.IntN(4) == 0
	s.mu.Unlock()
	concurrency.Sleep(ctx, d) // the session reports a context that ended
	return lost
}

// silence waits as a client does that has no connection, until its context ends or the metadata is back.
func (s *store) silence(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		cut := s.cut
		s.mu.Unlock()
		if !cut || !concurrency.Sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// Get implements metadata.Store.
func (s *store) Get(ctx context.Context, key string) (metadata.Entry, error) {
	s.before(ctx)
	s.silence(ctx)
	return s.session.Get(ctx, key)
}

// GetAll implements metadata.Store.
func (s *store) GetAll(ctx context.Context, keys []string) ([]metadata.Entry, error) {
	s.before(ctx)
	s.silence(ctx)
	return s.session.GetAll(ctx, keys)
}

// List implements metadata.Store.
func (s *store) List(ctx context.Context, prefix string) ([]metadata.Entry, int64, error) {
	s.before(ctx)
	s.silence(ctx)
	return s.session.List(ctx, prefix)
}

// Txn implements metadata.Store.
func (s *store) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	lost := s.before(ctx)
	s.silence(ctx)
	ok, rev, err := s.session.Txn(ctx, cmp, puts)
	if lost && err == nil {
		concurrency.Sleep(ctx, time.Second)
		return false, 0, metadata.ErrUnknown
	}
	return ok, rev, err
}

// Watch implements metadata.Store. Each change arrives later than it happened, in order.
func (s *store) Watch(ctx context.Context, prefix string) <-chan metadata.Change {
	in, out := s.session.Watch(ctx, prefix), make(chan metadata.Change)
	go func() { // ends with the watch below
		defer close(out)
		for c := range in {
			s.before(ctx)
			select {
			case out <- c:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// Lease implements metadata.Store.
func (s *store) Lease(ctx context.Context, ttl int64) (int64, <-chan struct{}, error) {
	s.before(ctx)
	s.silence(ctx)
	id, lost, err := s.session.Lease(ctx, ttl)
	if err == nil {
		s.mu.Lock()
		s.leases = append(s.leases, id)
		s.mu.Unlock()
	}
	return id, lost, err
}

// Revoke implements metadata.Store.
func (s *store) Revoke(ctx context.Context, id int64) error {
	s.before(ctx)
	s.silence(ctx)
	return s.session.Revoke(ctx, id)
}

// Close implements metadata.Store.
func (s *store) Close() error { return s.session.Close() }

// setCut cuts the process off from the metadata, or connects it again.
func (s *store) setCut(cut bool) {
	s.mu.Lock()
	s.cut = cut
	s.mu.Unlock()
	if cut {
		s.session.Cut()
	} else {
		s.session.Heal()
	}
}

// expire ends the leases of the process, as the metadata does when they were not renewed.
func (s *store) expire() {
	s.mu.Lock()
	ids := s.leases
	s.leases = nil
	s.mu.Unlock()
	for _, id := range ids {
		s.session.Expire(id)
	}
}

// disturb lets answers get lost and requests take longer.
func (s *store) disturb(lossy bool, slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossy, s.slow = lossy, slow
}
