package engine

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestDeferredMessagesCountForTheLimit: about their part of the log.
func TestDeferredMessagesCountForTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		c, err := a.p.queue.CreateChannel(t.Context(), "ch", nsqd.ChannelOptions{})
		require.NoError(t, err)
		s := &nsqd.Subscriber{Direct: true}
		require.NoError(t, c.Attach(s))
		for range 10 {
			a.say(strings.Repeat("x", 1000))
		}
		a.p.SetLimits(Limits{})
		require.False(t, a.p.Limited())
		a.p.Limit(20_000, 0)
		require.True(t, a.p.Limited())
		require.EqualValues(t, 20_000, a.p.ceiling.Load())
		got := c.Pull(s, 5, nil)
		require.Len(t, got, 5)
		for i := range got {
			require.NoError(t, c.Requeue(s, nsqd.ReceiptOf(&got[i]), 60_000))
		}
		a.p.Limit(20_000, 0)
		require.EqualValues(t, 20_000-int64(a.end.Offset)/2, a.p.ceiling.Load())
	})
}

// TestReadersSeeCommittedMessages: also of a relocation batch.
func TestReadersSeeCommittedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t)
		d := queue.NewDraft(8)
		_ = d.AddMessage(queue.Message{Body: []byte("a")})
		a.write(d.Draft(ident.RequestID{}))
		read, err := a.p.Read(0, 1, nil)
		require.NoError(t, err)
		require.Len(t, read, 1)
		carry := queue.NewRelocation()
		require.NoError(t, carry.Add(read[0]))
		at := a.write(carry.Draft())
		for _, committed := range []bool{false, true} {
			v := *a.p.View()
			if !committed {
				v.Committed = ident.Position{Offset: at, Sequence: 1}
			}
			a.p.view.Store(&v)
			_, ok, err := a.p.ReadRelocated(at, 0)
			require.NoError(t, err)
			require.Equal(t, committed, ok)
			v.Committed = a.end
			a.p.view.Store(&v)
		}
	})
}
