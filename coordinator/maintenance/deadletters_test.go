package maintenance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/testkit/enginetest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// topics makes no dead-letter topic, or any.
type topics struct {
	admin
	err        error
	puts       atomic.Int64
	identities []queue.Identity
}

func (t *topics) EnsureDeadLetters(context.Context, string) error { return t.err }

func (t *topics) PublishAll(_ context.Context, _ string, _ []int, messages []queue.Message) []error {
	t.puts.Add(int64(len(messages)))
	for _, m := range messages {
		t.identities = append(t.identities, m.Identity)
	}
	return slices.Repeat([]error{nil}, len(messages))
}

// TestDeadMessageThatCannotGoIsTriedAgain: a dead letter that could not be moved is offered again after about a second.
func TestDeadMessageThatCannotGoIsTriedAgain(t *testing.T) {
	var now atomic.Int64
	now.Store(1e9)
	r := enginetest.New(t, nsqd.Options{Now: now.Load, Policy: func(string) nsqd.Policy { return nsqd.Policy{MaxAttempts: 1} }})
	c, s := r.Channel("ch")
	to := &topics{err: errors.New("nowhere")}
	d := newDeadLetters(&Broker{Catalog: catalog.New(metadata.Keys{}, r.Log), Admin: to, Publisher: to, Log: r.Log})
	r.Publish("m0")
	got := c.Pull(s, 1, nil)
	require.Len(t, got, 1)
	require.NoError(t, c.Requeue(s, nsqd.ReceiptOf(&got[0]), 0))
	for range 2 {
		dead := c.DeadLetters()
		require.Len(t, dead, 1)
		require.False(t, d.move(t.Context(), r.Partition, c, dead), "it has nowhere to go")
		require.Empty(t, c.DeadLetters())
		r.Partition.Queue().Expire(now.Add(1100 * int64(time.Millisecond)))
	}
	to.err = nil
	require.True(t, d.move(t.Context(), r.Partition, c, c.DeadLetters()))
	require.EqualValues(t, 1, to.puts.Load())
}

// TestALetterOfAReusedSequenceIsNoRepeat: after an unclean recovery a message has the sequence of a lost one, whose dead letter is
// in its topic. The letter of the newer message is another one.
func TestALetterOfAReusedSequenceIsNoRepeat(t *testing.T) {
	r := enginetest.New(t, nsqd.Options{})
	c, _ := r.Channel("ch")
	to := &topics{}
	keys := metadata.Keys{}
	channels := catalog.New(keys, r.Log)
	channels.Apply(metadata.Change{Puts: []metadata.Entry{{
		Key: keys.Channel(enginetest.ID.Topic, "ch"), Value: metadata.Encode(metadata.ChannelState{V: metadata.Version, ID: c.ID()}),
	}}})
	d := newDeadLetters(&Broker{Catalog: channels, Admin: to, Publisher: to, Log: r.Log})
	for _, at := range []int64{5, 5, 6} {
		d.publish(t.Context(), r.Partition, c, []api.Delivery{{Message: queue.Message{Seq: 3, Time: at}}})
	}
	require.Len(t, to.identities, 3)
	require.Equal(t, to.identities[0], to.identities[1], "a repeat")
	require.NotEqual(t, to.identities[1], to.identities[2])
}

// TestPartitionsAreMovedOneAtATime: dead letters that are noted while messages of the partition are being moved wait
// for the next pass. A partition that does not lead is left to its leader.
func TestPartitionsAreMovedOneAtATime(t *testing.T) {
	r := enginetest.New(t, nsqd.Options{})
	d := newDeadLetters(&Broker{Log: r.Log})
	p := r.Partition
	require.Empty(t, d.take())
	d.Note(p)
	d.Note(p)
	require.Len(t, d.take(), 1)
	require.Empty(t, d.take())
	d.Note(p)
	require.Empty(t, d.take(), "they are being moved")
	d.moved(p)
	require.Len(t, d.take(), 1)
	d.moved(p)
	r.Show(func(v *replica.View) { v.Role = replica.Follower })
	d.Note(p)
	require.Empty(t, d.take())
	r.Show(func(v *replica.View) { v.Role, v.Epoch = replica.Leader, 2 })
	require.Empty(t, d.take(), "its channels say so again")
}

// TestWorkIsDoneInItsTime: at the period, when woken, and not after the group's end.
func TestWorkIsDoneInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, wake := concurrency.NewGroup(), make(chan struct{})
		var looks atomic.Int64
		g.Go(func(ctx context.Context) {
			every(ctx, time.Second, wake, func(context.Context) { looks.Add(1) })
		})
		time.Sleep(3*time.Second + time.Millisecond)
		require.EqualValues(t, 3, looks.Load())
		wake <- struct{}{}
		synctest.Wait()
		require.EqualValues(t, 4, looks.Load())
		g.Close()
		g.Wait()
	})
}
