package nsqd

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

func BenchmarkPullFinish(b *testing.B) {
	for _, credit := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("credit%d", credit), func(b *testing.B) {
			r := newRig(Options{})
			r.o.Now = func() int64 { return time.Now().UnixNano() }
			c := r.channel(b, "c", ChannelOptions{})
			s := subscribe(b, c)
			const ring = 1 << 20
			r.publishN(min(b.N, ring))
			var buffer []api.Delivery
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				buffer = c.Pull(s, min(credit, b.N-done), buffer[:0])
				if len(buffer) == 0 {
					b.StopTimer()
					_, _ = r.SeekChannel(b.Context(), "c", seekTo(0))
					b.StartTimer()
				}
				for i := range buffer {
					_ = c.Finish(s, c.of(buffer[i].Message.Seq, 1))
				}
				done += len(buffer)
			}
		})
	}
}

func BenchmarkDeferredMillion(b *testing.B) {
	const n = 1 << 20
	r := newRig(Options{})
	c := r.channel(b, "c", ChannelOptions{})
	for i := range n {
		c.cursor.DeferUntil(cursor.NewEntry(ident.Sequence(i), int64(rand.N(1<<40)), 0))
	}
	c.cursor.ClearDelta()
	full := r.Snapshot()
	b.Run("snapshot", func(b *testing.B) {
		for range b.N {
			_ = r.Snapshot()
		}
	})
	b.Run("replace", func(b *testing.B) {
		p := NewPartition("orders", testID, r.log, nil, Options{})
		for range b.N {
			p.Replace(full)
		}
	})
	b.Run("lowwater", func(b *testing.B) {
		for range b.N {
			_ = r.lowWater()
		}
	})
}
