package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/hosting"
	"github.com/lockstepmq/lockstep/internal/store"
)

// errRestored is why the replicas of a restored data path are new members.
var errRestored = errors.New("coordinator: this data path is older than what the cluster knows of this broker")

func (b *Broker) openStore(restored bool) error {
	var doubt error // the reason why the store must not trust what it has
	if restored {
		doubt = errRestored
	}
	s, err := store.Open(store.Options{
		FS: b.o.FS, Dir: b.o.Dir, BootID: b.o.BootID, Mixed: b.o.NoSync,
		SegmentBytes: b.o.SegmentBytes, JournalBytes: b.o.JournalBytes, OpenFiles: b.o.OpenFiles, RepeatFor: time.Duration(b.o.Replica.RepeatMS) * time.Millisecond, Log: b.log, Compact: hosting.Compact, Doubt: doubt,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	b.store = s
	b.o.Metrics.Counter("journal_syncs_total", "Groups of puts made durable by one fdatasync each.", func() float64 {
		syncs, _ := s.Journalled()
		return float64(syncs)
	})
	b.o.Metrics.Counter("journal_bytes_total", "Bytes written to the journal.", func() float64 {
		_, bytes := s.Journalled()
		return float64(bytes)
	})
	b.o.Metrics.Gauge("journal_busy_seconds", "For how long the present write or sync of the journal has been under way; 0 if none is.", func() float64 {
		return s.Busy().Seconds()
	})
	b.o.Metrics.Gauge("damaged_places", "Damaged places of the replicas here that are not repaired yet.", func() float64 {
		places := 0
		for _, p := range s.Partitions() {
			places += len(p.Damaged())
		}
		return float64(places)
	})
	return nil
}
