package coordinator

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// marks is what the controller knows of the marks of deleted topics (tombstoneKey).
// They are there for brokers that were away.
type marks struct {
	present  map[ident.Node]ident.Incarnation // since then
	since    time.Time
	revision atomic.Int64 // of the metadata then; 0 = not known
	busy     atomic.Bool  // some are being removed
}

// dropMarks removes the marks that nobody needs: all brokers have been here, without
// a break, for a while since the topics were deleted. It does not wait: there may be a
// million of them.
func (b *Broker) dropMarks(fence meta.Compare) {
	present := map[ident.Node]ident.Incarnation{}
	for _, r := range b.catalog.lives() {
		present[r.Name] = r.Incarnation
	}
	for _, n := range b.catalog.nodes() {
		if _, ok := present[n.Name]; !ok {
			present = nil
			break
		}
	}
	m := b.marks
	if m == nil || present == nil || !maps.Equal(present, m.present) {
		m = &marks{present: present, since: time.Now()}
		b.marks = m
	}
	if present == nil || time.Since(m.since) < b.o.MarkGrace || m.busy.Swap(true) {
		return
	}
	m.since = time.Now()
	b.background(func(ctx context.Context) {
		defer m.busy.Store(false)
		if err := b.dropOld(ctx, fence, m); err != nil && ctx.Err() == nil {
			b.log.WithError(err).Info("CONTROLLER could not remove the marks of deleted topics")
		}
	})
}

// dropOld removes the marks that were there the last time already, while this broker is
// the controller.
func (b *Broker) dropOld(ctx context.Context, fence meta.Compare, m *marks) error {
	entries, revision, err := b.meta.List(ctx, b.keys.Audit(deletedTopics))
	if err != nil {
		return err
	}
	var puts []meta.Put
	for _, e := range entries {
		if e.Mod <= m.revision.Load() {
			puts = append(puts, meta.Put{Key: e.Key, Delete: true})
		}
	}
	for some := range slices.Chunk(puts, meta.MaxTxn) {
		try, cancel := context.WithTimeout(ctx, metaTimeout)
		ok, _, err := b.meta.Txn(try, []meta.Compare{fence}, some)
		cancel()
		if err != nil || !ok {
			return err
		}
	}
	m.revision.Store(revision)
	return nil
}
