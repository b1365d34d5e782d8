package coordinator

import (
	"context"
	"maps"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// marks is what the controller knows of the marks of deleted topics (tombstoneKey).
// They are there for brokers that were away. Its goroutine alone has it.
type marks struct {
	present  map[ident.Node]ident.Incarnation // since then
	since    time.Time
	revision int64 // of the metadata then; 0 = not known
}

// dropMarks removes the marks that nobody needs: all brokers have been here, without
// a break, for a while since the topics were deleted.
func (b *Broker) dropMarks(ctx context.Context, fence meta.Compare) error {
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
	if present == nil || !maps.Equal(present, b.marks.present) {
		b.marks = marks{present: present, since: time.Now()}
	}
	if present == nil || time.Since(b.marks.since) < b.o.MarkGrace {
		return nil
	}
	entries, revision, err := b.meta.List(ctx, b.keys.Audit(deletedTopics))
	if err != nil {
		return err
	}
	var puts []meta.Put
	for _, e := range entries {
		if e.Mod <= b.marks.revision {
			puts = append(puts, meta.Put{Key: e.Key, Delete: true})
		}
	}
	for len(puts) > 0 {
		n := min(len(puts), meta.MaxTxn)
		if ok, _, err := b.meta.Txn(ctx, []meta.Compare{fence}, puts[:n]); err != nil || !ok {
			return err
		}
		puts = puts[n:]
	}
	b.marks.since, b.marks.revision = time.Now(), revision
	return nil
}
