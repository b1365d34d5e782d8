package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// delays is a log of messages delayed by 1 ms, 2 ms, …
type delays struct{ from time.Time }

const delayed = 100

func (delays) Committed() ident.Position { return ident.Position{Offset: 1, Sequence: delayed} }
func (delays) Start() ident.Position     { return ident.Position{} }

func (d delays) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	for seq := from; seq < delayed && most > 0; seq, most = seq+1, most-1 {
		due := d.from.Add(time.Duration(seq+1) * time.Millisecond)
		dst = append(dst, queue.Message{Seq: seq, Time: d.from.UnixNano(), DeliverAt: due.UnixNano()})
	}
	return dst, nil
}

func (delays) ReadRelocated(ident.Offset, ident.Sequence) (queue.Message, bool, error) {
	return queue.Message{}, false, nil
}

func (delays) Submit(c nsqd.Change) { commitChange(c) }

// TestDelayedMessagesAreReadyWhenTheyAreDue: not at the tick after.
func TestDelayedMessagesAreReadyWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := delays{from: time.Now()}
		h := &Partition{queue: nsqd.NewPartition("alarms", ident.Partition{}, log, log, nsqd.Options{})}
		h.view.Store(&replica.View{Role: replica.Leader})
		h.queue.Lead(1)
		c, err := h.queue.CreateChannel(t.Context(), "clock", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true}
		require.NoError(t, c.Attach(s))

		near := newNearTimer()
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { near.run(ctx) })
		got, late := 0, time.Duration(0)
		for tick := time.Now(); got < delayed; {
			for _, d := range c.Pull(s, 10, nil) {
				got++
				late = max(late, time.Since(time.Unix(0, d.Message.DeliverAt)))
				require.NoError(t, c.Finish(s, nsqd.ReceiptOf(&d)))
			}
			if time.Since(tick) >= 0 { // as the clock does, once the first were read
				near.add(h)
				tick = tick.Add(tickEvery)
			}
			select {
			case <-s.Wake:
			case <-time.After(time.Until(tick)):
			}
		}
		require.LessOrEqual(t, late, nearEvery)
		cancel()
		done.Wait()
	})
}
