package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// waiter lets a benchmark keep a number of submissions in flight.
type waiter struct{ slots chan uint64 }

func (w *waiter) Synced(token uint64, err error) {
	if err != nil {
		panic(err)
	}
	w.slots <- token
}

// BenchmarkSubmit measures puts of 200 bytes on a real disk, with so many in
// flight. It reports the latency from Submit to Synced too.
func BenchmarkSubmit(b *testing.B) {
	for _, inFlight := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint(inFlight), func(b *testing.B) {
			s, err := Open(Options{FS: vfs.OS, Dir: b.TempDir(), Log: quiet()})
			require.NoError(b, err)
			defer s.Close()
			p, err := s.Create("t", ident.Partition{Topic: 1})
			require.NoError(b, err)
			w := &waiter{slots: make(chan uint64, inFlight)}
			started := make([]time.Time, inFlight)
			for n := range inFlight {
				w.slots <- uint64(n)
			}
			builder := queue.NewDraft(200)
			_ = builder.AddMessage(queue.Message{Body: make([]byte, 200)})
			draft := builder.Draft(ident.RequestID{Producer: 1, N: 1})
			size := draft.Size()
			arena := make([]byte, 0, 1<<20)
			at, crc := ident.Position{}, uint32(0)
			writes := []queue.Write{{Kind: queue.WriteAppend, Epoch: 1, Batches: make([]queue.Batch, 1)}}
			subs := []Submission{{Partition: p, Writes: writes}}
			latencies := make([]time.Duration, 0, b.N+inFlight)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				slot := <-w.slots
				if !started[slot].IsZero() {
					latencies = append(latencies, time.Since(started[slot]))
				}
				if cap(arena)-len(arena) < size {
					arena = make([]byte, 0, 1<<20) // the store keeps the old one as long as readers may use it
				}
				arena = append(arena, draft.Bytes...)
				d := draft
				d.Bytes = arena[len(arena)-size : len(arena) : len(arena)]
				batch := d.Seal(at, 1, crc, 1)
				at, crc = batch.End, batch.CRC
				writes[0].Batches[0] = batch
				p.Index().Append(batch.Record())
				started[slot] = time.Now()
				s.Submit(subs, w, slot)
			}
			for range inFlight {
				<-w.slots
			}
			b.StopTimer()
			if slices.Sort(latencies); len(latencies) > 0 {
				b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-µs")
			}
		})
	}
}
