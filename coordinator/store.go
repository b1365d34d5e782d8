package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// errRestored is why the replicas of a restored data path are new members.
var errRestored = errors.New("coordinator: this data path is older than what the cluster has of this broker")

func (b *Broker) openStore(restored bool) error {
	var doubt error // the reason why the store must not trust what it has
	if restored {
		doubt = errRestored
	}
	s, err := store.Open(store.Options{
		FS: b.o.FS, Dir: b.o.Dir, BootID: b.o.BootID, Mixed: b.o.NoSync,
		SegmentBytes: b.o.SegmentBytes, JournalBytes: b.o.JournalBytes, OpenFiles: b.o.OpenFiles,
		RepeatFor: time.Duration(b.o.Replica.RepeatMS) * time.Millisecond, Log: b.log, Compact: replicas.Compact, Doubt: doubt,
		JournalSynced: b.journalSynced(), Checkpointed: func(took time.Duration) { b.o.Metrics.Took(metrics.Checkpoint, took) },
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	b.store = s
	if err := s.Doubt(); err != nil {
		b.o.Events.Add(events.Event{
			Kind: events.Alarm, Code: events.DataMissing, State: "degraded", Broker: b.self, Where: []string{string(b.self)},
			Text: fmt.Sprintf("acknowledged data may be missing on the disk of %s: its replicas count as new, and are copied from the others (%s)", b.self, err),
			Do:   "nothing, if there are other replicas; replace a disk that loses data. docs/operations/failures.md, Disk",
		})
	}
	b.o.Metrics.Source([]string{"journal_syncs_total", "journal_bytes_total", "journal_busy_seconds", "damaged_places"}, func(emit metrics.Emit) {
		syncs, bytes := s.Journalled()
		emit("journal_syncs_total", float64(syncs))
		emit("journal_bytes_total", float64(bytes))
		emit("journal_busy_seconds", s.Busy().Seconds())
		places := 0
		for _, p := range s.Partitions() {
			places += len(p.Damaged())
		}
		emit("damaged_places", float64(places))
	})
	return nil
}

// journalSynced returns the function that receives the duration of each sync: it logs at most one slow sync a second. Calls do
// not overlap.
func (b *Broker) journalSynced() func(time.Duration) {
	var last time.Time
	return func(took time.Duration) {
		b.o.Metrics.Took(metrics.JournalSync, took)
		if b.o.Slow == 0 || took < b.o.Slow || time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		b.log.WithField("stage", "sync").WithField("took", took).Info("slow disk: every put waits for a sync of the journal")
	}
}
