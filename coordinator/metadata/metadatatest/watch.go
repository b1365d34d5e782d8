package metadatatest

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// Watch implements metadata.Store.
func (m *Memory) Watch(ctx context.Context, prefix string) <-chan metadata.Change {
	out := make(chan metadata.Change)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		close(out)
		return out
	}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		defer close(out)
		w := memoryWatch{m: m, prefix: prefix, out: out, cuts: -1}
		w.run(ctx)
	}()
	return out
}

// memoryWatch is one watch. Started by Memory.Watch, ends with its context or
// its session; owns the channel it sends on.
type memoryWatch struct {
	m      *Memory
	prefix string
	out    chan<- metadata.Change
	rev    int64 // everything up to here was sent
	cuts   int   // session cuts seen; another number means "start again"
}

func (w *memoryWatch) run(ctx context.Context) {
	for {
		changes, wait := w.next()
		for _, c := range changes {
			select {
			case w.out <- c:
			case <-ctx.Done():
				return
			case <-w.m.done:
				return
			}
		}
		if len(changes) > 0 {
			continue // more may have come
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return
		case <-w.m.done:
			return
		}
	}
}

// next returns the changes since the last call, and a channel that closes at the next change.
func (w *memoryWatch) next() ([]metadata.Change, <-chan struct{}) {
	w.m.mu.Lock()
	cut, cuts := w.m.mu.cut, w.m.mu.cuts
	s := w.m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	w.m.mu.Unlock()
	if cut {
		return nil, s.mu.changed
	}
	changes, ok := s.mu.model.Since(w.prefix, w.rev)
	if !ok || cuts != w.cuts {
		w.cuts = cuts
		changes = []metadata.Change{{Revision: s.mu.model.Revision(), Puts: s.mu.model.List(w.prefix), Reset: true}}
	}
	w.rev = s.mu.model.Revision()
	return changes, s.mu.changed
}
