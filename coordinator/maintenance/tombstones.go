package maintenance

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// tombstones removes the tombstones of deleted topics, which exist for brokers that were not running.
type tombstones struct {
	*Broker
	seen *presence
}

// presence is a set of brokers, and since when all of them are registered.
type presence struct {
	brokers  map[ident.Node]ident.Incarnation
	since    time.Time
	revision atomic.Int64 // of the metadata at that time; 0: unknown
	busy     atomic.Bool  // some tombstones are being removed
}

// collect removes the tombstones that no broker needs: since the topics were deleted, all brokers have been registered
// without a break for the grace. It does not block, because there may be a million tombstones.
func (t *tombstones) collect(fence metadata.Compare) {
	now := t.present()
	s := t.seen
	if s == nil || now == nil || !maps.Equal(now, s.brokers) {
		s = &presence{brokers: now, since: time.Now()}
		t.seen = s
	}
	if now == nil || time.Since(s.since) < t.TombstoneGrace || s.busy.Swap(true) {
		return
	}
	s.since = time.Now()
	t.Group.Go(func(ctx context.Context) {
		defer s.busy.Store(false)
		if err := t.removeOld(ctx, fence, s); err != nil && ctx.Err() == nil {
			t.Log.WithError(err).WithField("action", "remove_tombstones").Info("controller action failed, trying again")
		}
	})
}

// present are the incarnations of all brokers; nil while one is not registered.
func (t *tombstones) present() map[ident.Node]ident.Incarnation {
	present := map[ident.Node]ident.Incarnation{}
	for _, r := range t.Catalog.LiveNodes() {
		present[r.Name] = r.Incarnation
	}
	for _, n := range t.Catalog.Nodes() {
		if _, ok := present[n.Name]; !ok {
			return nil
		}
	}
	return present
}

// removeOld removes the tombstones that the last call already found.
func (t *tombstones) removeOld(ctx context.Context, fence metadata.Compare, s *presence) error {
	entries, revision, err := t.Meta.List(ctx, t.Keys.Tombstones())
	if err != nil {
		return err
	}
	var puts []metadata.Put
	for _, e := range entries {
		if e.Mod <= s.revision.Load() {
			puts = append(puts, metadata.Put{Key: e.Key, Delete: true})
		}
	}
	for some := range slices.Chunk(puts, metadata.MaxTxn) {
		try, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
		ok, _, err := t.Meta.Txn(try, []metadata.Compare{fence}, some)
		cancel()
		if err != nil || !ok {
			return err
		}
	}
	s.revision.Store(revision)
	return nil
}
