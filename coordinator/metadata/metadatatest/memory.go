// Package metadatatest has a metadata.Store in memory, for tests.
//
// # Goroutines
//
// One for each watch, as in metadata.Etcd.
package metadatatest

import (
	"context"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// Memory is a metadata.Store in this process. Several sessions share one state, as several brokers share one etcd.
// Leases never run out by themselves: a test calls Expire in place of time.
type Memory struct {
	shared *shared
	wg     sync.WaitGroup // watches of this session
	mu     struct {
		sync.Mutex
		closed bool
		cuts   int // how often Cut was called: watches then start again with a Reset
		cut    bool
	}
	done chan struct{} // closed by Close
}

// shared is the state of all sessions. Lock order: Memory.mu, then shared.mu.
type shared struct {
	mu struct {
		sync.Mutex
		model   *Model
		lost    map[int64]chan struct{}
		changed chan struct{} // closed and replaced with each change
	}
}

var _ metadata.Store = (*Memory)(nil)

// NewMemory returns an empty store with one session.
func NewMemory() *Memory {
	s := &shared{}
	s.mu.model = NewModel()
	s.mu.lost = map[int64]chan struct{}{}
	s.mu.changed = make(chan struct{})
	return s.session()
}

// Session opens another session on the same state; each session is closed separately.
func (m *Memory) Session() *Memory { return m.shared.session() }

func (s *shared) session() *Memory {
	m := &Memory{shared: s, done: make(chan struct{})}
	return m
}

// Expire ends a lease as if its time had run out.
func (m *Memory) Expire(lease int64) { m.shared.revoke(lease) }

// Compact forgets the history up to now: watches that lag behind get a Reset.
func (m *Memory) Compact() {
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.model.Compact(s.mu.model.Revision())
}

// Cut makes this session's requests fail with metadata.ErrUnavailable and its watches
// silent until Heal. Its leases live until Expire.
func (m *Memory) Cut() { m.setCut(true) }

// Heal ends a Cut; watches begin again with a Reset.
func (m *Memory) Heal() { m.setCut(false) }

func (m *Memory) setCut(cut bool) {
	m.mu.Lock()
	if cut && !m.mu.cut {
		m.mu.cuts++
	}
	m.mu.cut = cut
	m.mu.Unlock()
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.shared.movedLocked()
}

// Get implements metadata.Store.
func (m *Memory) Get(ctx context.Context, key string) (e metadata.Entry, err error) {
	err = m.do(ctx, func(model *Model) error {
		var ok bool
		if e, ok = model.Get(key); !ok {
			return metadata.ErrNotFound
		}
		return nil
	})
	return e, err
}

// GetAll implements metadata.Store.
func (m *Memory) GetAll(ctx context.Context, keys []string) (out []metadata.Entry, err error) {
	err = m.do(ctx, func(model *Model) error {
		for _, key := range keys {
			if e, ok := model.Get(key); ok {
				out = append(out, e)
			}
		}
		return nil
	})
	return out, err
}

// List implements metadata.Store.
func (m *Memory) List(ctx context.Context, prefix string) (out []metadata.Entry, rev int64, err error) {
	err = m.do(ctx, func(model *Model) error {
		out, rev = model.List(prefix), model.Revision()
		return nil
	})
	return out, rev, err
}

// Txn implements metadata.Store.
func (m *Memory) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (ok bool, rev int64, err error) {
	err = m.do(ctx, func(model *Model) error {
		ok, rev, err = model.Txn(cmp, puts)
		return err
	})
	return ok, rev, err
}

// Lease implements metadata.Store.
func (m *Memory) Lease(ctx context.Context, _ int64) (id int64, lost <-chan struct{}, err error) {
	err = m.do(ctx, func(model *Model) error {
		id = model.Grant()
		gone := make(chan struct{})
		m.shared.mu.lost[id] = gone
		lost = gone
		return nil
	})
	return id, lost, err
}

// Revoke implements metadata.Store.
func (m *Memory) Revoke(ctx context.Context, id int64) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	m.shared.revoke(id)
	return nil
}

// Close implements metadata.Store. Other sessions continue.
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.closed = true
		close(m.done)
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// do runs one request on the model if this session is usable.
func (m *Memory) do(ctx context.Context, request func(*Model) error) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.mu.model.Revision()
	err := request(s.mu.model)
	if s.mu.model.Revision() != before {
		s.movedLocked()
	}
	return err
}

func (m *Memory) usable(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.closed:
		return metadata.ErrClosed
	case m.mu.cut, ctx.Err() != nil:
		return metadata.ErrUnavailable
	}
	return nil
}

func (s *shared) revoke(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.model.Revoke(id) {
		close(s.mu.lost[id])
		delete(s.mu.lost, id)
		s.movedLocked()
	}
}

// movedLocked wakes all watches.
func (s *shared) movedLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}
