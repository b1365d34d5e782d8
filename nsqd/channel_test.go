package nsqd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestChannelOrigins(t *testing.T) {
	r := newRig(Options{})
	r.publishN(10)
	for name, c := range map[string]struct {
		options ChannelOptions
		depth   int
	}{
		"first":   {ChannelOptions{Origin: FromBacklog}, 10},
		"later":   {ChannelOptions{}, 0},
		"replay":  {ChannelOptions{Origin: FromEarliest}, 10},
		"at-four": {ChannelOptions{Origin: FromSequence, Sequence: 4}, 6},
		"beyond":  {ChannelOptions{Origin: FromSequence, Sequence: 400}, 0},
	} {
		ch := r.channel(t, name, c.options)
		require.Equal(t, c.depth, countsOf(r.Partition, ch).depth, name)
	}
	again, err := r.CreateChannel(t.Context(), "first", ChannelOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 10, again.stats(false, &mergedLatency{}).Depth)
	_, err = r.CreateChannel(t.Context(), "", ChannelOptions{})
	require.ErrorIs(t, err, outcome.ErrInvalid)
}

func TestBacklogSinceTheLastChannel(t *testing.T) {
	r := newRig(Options{})
	r.publishN(5)
	require.Zero(t, r.lowWater())
	r.channel(t, "c", ChannelOptions{Origin: FromBacklog})
	require.NoError(t, r.DeleteChannel(t.Context(), "c"))
	require.ErrorIs(t, r.DeleteChannel(t.Context(), "c"), outcome.ErrChannelNotFound)
	r.publishN(2)
	require.EqualValues(t, 5, r.lowWater())
	require.EqualValues(t, 2, r.Stats("", false).Depth)
	n := r.failover()
	require.EqualValues(t, 2, countsOf(n.Partition, n.channel(t, "d", ChannelOptions{Origin: FromBacklog})).depth)
	require.NoError(t, n.DeleteChannel(t.Context(), "d"))
	require.NoError(t, n.EmptyTopic(t.Context()))
	require.Zero(t, n.Stats("", false).Depth)
}

func TestRequeuedAndNewMessagesAlternate(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publish("poison", "a", "b", "c")
	var got []string
	for range 6 { // one at a time; the poison message is requeued each time
		d := c.Pull(s, 1, nil)
		require.Len(t, d, 1)
		got = append(got, fmt.Sprintf("%s/%d", d[0].Message.Body, d[0].Message.Attempts))
		if string(d[0].Message.Body) == "poison" {
			require.NoError(t, c.Requeue(s, c.of(d[0].Message.Seq, 0), 0))
		} else {
			require.NoError(t, c.Finish(s, c.of(d[0].Message.Seq, 1)))
		}
	}
	require.Equal(t, []string{"poison/1", "poison/2", "a/1", "poison/3", "b/1", "poison/4"}, got)
	require.EqualValues(t, 4, c.stats(false, &mergedLatency{}).RequeueCount)
}

func TestTimeoutRequeues(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s, other := &Subscriber{MsgTimeoutMS: 100}, subscribe(t, c)
	require.NoError(t, c.Attach(s))
	r.publish("a")
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.LessOrEqual(t, r.Due(), r.clock.now()+100*nsPerMS)
	require.ErrorIs(t, c.Finish(other, c.of(0, 1)), outcome.ErrNotOwner)
	r.tick(60)
	require.NoError(t, c.Touch(s, c.of(0, 0)))
	r.tick(60)
	require.Equal(t, 1, c.InFlight(s))
	r.tick(40)
	require.Zero(t, c.InFlight(s))
	require.Equal(t, []ident.Sequence{0}, c.Revoked(s, nil))
	require.Empty(t, c.Revoked(s, nil))
	require.ErrorIs(t, c.Finish(s, c.of(0, 1)), outcome.ErrNotInFlight)
	require.ErrorIs(t, c.Touch(s, c.of(0, 0)), outcome.ErrNotInFlight)
	d = c.Pull(other, 1, nil)
	require.EqualValues(t, 2, d[0].Message.Attempts)
	require.EqualValues(t, 1, c.stats(false, &mergedLatency{}).TimeoutCount)
}

func TestTouchIsBounded(t *testing.T) {
	r := newRig(Options{MaxMsgTimeoutMS: 150})
	c := r.channel(t, "c", ChannelOptions{})
	s := &Subscriber{MsgTimeoutMS: 100}
	require.NoError(t, c.Attach(s))
	r.publish("a")
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.tick(90)
	require.NoError(t, c.Touch(s, c.of(0, 0)))
	r.tick(59)
	require.Equal(t, 1, c.InFlight(s))
	r.tick(1)
	require.Zero(t, c.InFlight(s))
}

func TestDeferredMessages(t *testing.T) {
	r := newRig(Options{MaxReqTimeoutMS: 1000})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.postpone(500*nsPerMS, "later")
	r.publish("now")
	require.Equal(t, counts{depth: 1, deferred: 1, published: 2}, countsOf(r.Partition, c))
	require.Equal(t, []string{"now"}, bodies(c.Pull(s, 5, nil)))
	require.NoError(t, c.Requeue(s, c.of(1, 0), 3_600_000)) // clamped to one second
	require.Equal(t, r.clock.now()+500*nsPerMS, r.Due())
	list := c.Deferred(10)
	require.Len(t, list, 2)
	require.Zero(t, list[0].Seq())
	require.EqualValues(t, 1, list[1].Attempts())

	n := r.failover()
	c, _ = n.Channel("c")
	s = subscribe(t, c)
	require.Empty(t, c.Pull(s, 5, nil))
	<-s.Wake
	n.tick(500)
	<-s.Wake
	d := c.Pull(s, 5, nil)
	require.Equal(t, []string{"later"}, bodies(d))
	require.EqualValues(t, 1, d[0].Message.Attempts)
	require.EqualValues(t, 0, n.lowWater())
	cancelled, err := n.CancelDeferred(t.Context(), "c", []ident.Sequence{0, 1, 7})
	require.NoError(t, err)
	require.Equal(t, 1, cancelled)
	require.Equal(t, counts{inFlight: 1, finished: 1, published: 2}, countsOf(n.Partition, c))
	n.tick(5000)
	require.Empty(t, c.Deferred(10))
}

func TestCancelBeforePrescan(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	r.postpone(500*nsPerMS, "later")
	r.publish("now")
	n, err := r.CancelDeferred(t.Context(), "c", []ident.Sequence{0, 1})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	r.tick(1000)
	require.Equal(t, []string{"now"}, bodies(c.Pull(subscribe(t, c), 5, nil)))
	requireExact(t, r.Partition, c)
}

func TestOrderedChannelWaitsForTheReplicas(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publish("a", "b", "c")
	<-s.Wake
	require.Equal(t, []string{"a"}, bodies(c.Pull(s, 5, nil)))
	require.Empty(t, c.Pull(s, 5, nil), "one in flight")
	r.rep.hold = true
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.Empty(t, c.Pull(s, 5, nil), "the finish is not replicated")
	r.rep.answer(true)
	<-s.Wake
	require.Equal(t, []string{"b"}, bodies(c.Pull(s, 5, nil)))
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	r.rep.answer(false)
	d := c.Pull(s, 5, nil)
	require.Equal(t, []string{"b"}, bodies(d), "back to the last replicated finish")
	require.EqualValues(t, 1, d[0].Message.Attempts)
	require.NoError(t, c.Requeue(s, c.of(1, 0), 500))
	require.Empty(t, c.Pull(s, 5, nil), "c would overtake it")
	r.tick(500)
	require.Equal(t, []string{"b"}, bodies(c.Pull(s, 5, nil)))
	requireExact(t, r.Partition, c)
}

func TestEphemeralChannel(t *testing.T) {
	r := newRig(Options{EphemeralDepth: 10})
	r.rep.deltas = nil
	c := r.channel(t, "c#ephemeral", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(30)
	require.Equal(t, counts{depth: 10, finished: 20, published: 30}, countsOf(r.Partition, c))
	require.Len(t, c.Pull(s, 100, nil), 10)
	require.NoError(t, c.Finish(s, c.of(3, 1)))
	require.NoError(t, c.Requeue(s, c.of(4, 0), 10))
	r.Flush()
	require.Empty(t, r.rep.deltas, "it is not replicated")
	require.Zero(t, r.lowWater())
	require.NotContains(t, string(r.Snapshot()), "ephemeral")
	c.Detach(s, true)
	_, ok := r.Channel("c#ephemeral")
	require.False(t, ok)
	require.ErrorIs(t, c.Attach(&Subscriber{}), ErrDeleted)
}

func TestSamplingDiscardsForTheWholeChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := &Subscriber{SampleRate: 10}
	require.NoError(t, c.Attach(s))
	r.publishN(5000)
	n := len(c.Pull(s, 5000, nil))
	require.InDelta(t, 550, n, 150) // 11 of 100
	require.Equal(t, counts{inFlight: n, finished: 5000 - n, published: 5000}, countsOf(r.Partition, c))
}

func TestUnleadEndsEverything(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	r.channel(t, "gone#ephemeral", ChannelOptions{})
	s := subscribe(t, c)
	r.publish("a")
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.rep.hold = true
	failed := make(chan error, 1)
	go func() { failed <- r.PauseChannel(t.Context(), "c", true) }()
	wait.Until(t, func() bool {
		r.rep.mu.Lock()
		defer r.rep.mu.Unlock()
		return len(r.rep.held) == 1
	}, "the change of the channel is proposed")
	r.Unlead()
	require.Equal(t, []string{"c"}, r.Channels(), "an ephemeral channel exists on its leader only")
	require.ErrorIs(t, <-failed, ErrNotLeader)
	<-s.Lost
	require.ErrorIs(t, c.Err(s), ErrNotLeader)
	require.ErrorIs(t, c.Finish(s, c.of(0, 1)), ErrNotLeader)
	require.Empty(t, c.Pull(s, 1, nil))
	require.ErrorIs(t, c.Attach(&Subscriber{}), ErrNotLeader)
	require.ErrorIs(t, r.EmptyChannel(t.Context(), "c"), ErrNotLeader)
	r.rep.answer(true) // too late: it has no effect
}

// A requeued message that is delivered again is unfinished for the next leader, which may be the
// same broker.
func TestSameLeaderAgain(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publish("a", "b")
	require.Len(t, c.Pull(s, 2, nil), 2)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	require.NoError(t, c.Requeue(s, c.of(1, 0), 0))
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.Unlead()
	r.Lead(2)
	require.Len(t, c.Pull(subscribe(t, c), 2, nil), 2)
	requireExact(t, r.Partition, c)
}

func TestDeleteClosesSubscribers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	require.NoError(t, r.DeleteChannel(t.Context(), "c"))
	<-s.Lost
	require.ErrorIs(t, c.Err(s), ErrDeleted)
	c.Detach(s, true)
}

// TestSeekBeforeReclaim: a seek also forgets deliveries of an earlier leader, as if they were in
// flight here.
func TestSeekBeforeReclaim(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	r.publishN(3)
	require.Len(t, c.Pull(subscribe(t, c), 9, nil), 3)
	n := r.failover()
	n.seekChannel(t, "c", seekTo(0))
	c, _ = n.Channel("c")
	s := subscribe(t, c)
	held := []Receipt{{Sequence: 0, Attempts: 1}, {Sequence: 1, Attempts: 1}}
	require.Equal(t, []ident.Sequence{0, 1}, c.Reclaim(s, held))
	require.Len(t, c.Pull(s, 9, nil), 3)
	requireExact(t, n.Partition, c)
}

// TestALateFinishOfThisEpoch: a delivery that this leader made and that has ended cannot be finished again, or late.
func TestALateFinishOfThisEpoch(t *testing.T) {
	_, c, s := delivered(t, Options{}, "c", ChannelOptions{}, 3, 3)
	finished, requeued := c.of(1, 0), c.of(2, 0)
	require.NoError(t, c.Finish(s, finished))
	require.NoError(t, c.Requeue(s, requeued, 0))
	require.ErrorIs(t, c.FinishLate(s, finished), outcome.ErrNotInFlight)
	require.ErrorIs(t, c.FinishLate(s, requeued), outcome.ErrNotInFlight)
	require.Len(t, c.Pull(s, 9, nil), 1, "the requeued message")
}

func TestFinishesOfAnEarlierLeader(t *testing.T) {
	r, c, s := delivered(t, Options{}, "c", ChannelOptions{}, 6, 6)
	require.NoError(t, c.Requeue(s, c.of(5, 0), 60_000))
	r.Flush()
	n := r.failover()
	c, _ = n.Channel("c")
	s, other := subscribe(t, c), subscribe(t, c)
	require.NoError(t, c.FinishLate(s, c.of(3, 1)), "not delivered again")
	require.Empty(t, c.Reclaim(s, []Receipt{{Sequence: 2, Epoch: 1, Number: 3, Attempts: 1}, {Sequence: 4, Epoch: 1, Number: 5, Attempts: 3}}))
	require.Equal(t, 2, c.InFlight(s))
	d := c.Pull(other, 10, nil)
	require.Len(t, d, 2) // 0 and 1: 2 and 4 are reclaimed, 3 is finished, 5 is deferred
	require.ErrorIs(t, c.FinishLate(s, c.of(0, 1)), outcome.ErrNotOwner, "delivered again")
	require.ErrorIs(t, c.FinishLate(s, c.of(5, 1)), outcome.ErrNotInFlight, "revoked")
	require.ErrorIs(t, c.Finish(s, c.of(99, 1)), outcome.ErrNotInFlight)
	require.Equal(t, []ident.Sequence{0, 3, 5}, c.Reclaim(s, []Receipt{{Sequence: 0, Attempts: 1}, {Sequence: 3, Attempts: 1}, {Sequence: 5, Attempts: 1}}))
	require.NoError(t, c.FinishLate(s, c.of(2, 1)))
	require.NoError(t, c.FinishLate(s, c.of(2, 1)), "finished already")
	require.ErrorIs(t, c.Finish(s, c.of(2, 2)), outcome.ErrNotInFlight)
	require.NoError(t, c.Requeue(s, c.of(4, 0), 0))
	d = c.Pull(other, 10, nil)
	require.EqualValues(t, 4, d[0].Message.Attempts)
	require.Equal(t, counts{inFlight: 3, deferred: 1, finished: 2, published: 6}, countsOf(n.Partition, c))
}

func TestRetentionUnderAChannel(t *testing.T) {
	r, c, s := delivered(t, Options{}, "c", ChannelOptions{}, 10, 2)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	r.log.start = 5
	r.seekChannel(t, "c", seekTo(1))
	require.Equal(t, 5, countsOf(r.Partition, c).depth, "a seek stays within the log")
	r.log.start = 8
	require.Len(t, c.Pull(s, 10, nil), 2)
	require.EqualValues(t, 8, c.cursor.Confirmed())
	require.NoError(t, c.Requeue(s, c.of(8, 0), 0))
	r.log.start = 9
	require.Empty(t, c.Pull(s, 10, nil))
	requireExact(t, r.Partition, c)
}

func TestUnreadableLogIsRetried(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(3)
	<-s.Wake
	r.log.fail = errors.New("bad sector")
	require.Empty(t, c.Pull(s, 3, nil))
	reads := r.log.reads
	require.Empty(t, c.Pull(s, 3, nil))
	require.Equal(t, reads, r.log.reads, "not at once")
	require.Empty(t, s.Wake)
	require.Equal(t, r.clock.now()+stallNS, r.Due())
	r.log.fail = nil
	r.tick(100)
	require.Greater(t, r.Due(), r.clock.now())
	<-s.Wake
	require.Len(t, c.Pull(s, 3, nil), 3)
}

// A client with a large RDY does not make the broker read a whole backlog of large messages.
func TestPullStopsAtLargeMessages(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s, other := subscribe(t, c), subscribe(t, c)
	for range 10 {
		r.publish(strings.Repeat("x", pullBytes/4+1))
	}
	require.Len(t, c.Pull(s, 2500, nil), 4)
	<-s.Wake
	require.Len(t, c.Pull(other, 1, nil), 1, "it withholds no message from others")
	require.Len(t, c.Pull(s, 2500, nil), 4)
	<-s.Wake
	require.Len(t, c.Pull(s, 2500, nil), 1)
	require.Empty(t, s.Wake, "no message is left")
	r.publish("y")
	<-s.Wake
}

func TestFence(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	<-s.Wake
	r.publishN(3)
	r.Extend(r.clock.now() + 100)
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.clock.add(100)
	require.Empty(t, c.Pull(s, 1, nil))
	r.Extend(r.clock.now() + 100)
	<-s.Wake
	require.Len(t, c.Pull(s, 1, nil), 1)
}

// Partitions share a fence while all brokers answer.
func TestSharedFence(t *testing.T) {
	var shared atomic.Int64
	r := newRig(Options{Fence: &shared})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	<-s.Wake
	r.publishN(3)
	shared.Store(r.clock.now() + 100)
	require.Len(t, c.Pull(s, 1, nil), 1)
	r.clock.add(100)
	require.Empty(t, c.Pull(s, 1, nil), "it is closed")
	r.Extend(r.clock.now() + 100)
	<-s.Wake
	require.Len(t, c.Pull(s, 1, nil), 1)
}

func TestWakeReportsTimers(t *testing.T) {
	var woken []int64
	wakes := func() []int64 {
		out := woken
		woken = nil
		return out
	}
	r := newRig(Options{Wake: func(atNS int64) { woken = append(woken, atNS) }})
	require.Contains(t, wakes(), int64(0), "it leads, and earlier timers are due now")
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(2)
	wakes()
	require.Len(t, c.Pull(s, 2, nil), 2)
	require.Equal(t, []int64{r.Due()}, wakes(), "the deliveries time out")
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.Equal(t, []int64{0}, wakes(), "a delta")
	require.NoError(t, c.Finish(s, c.of(1, 1)))
	require.Empty(t, wakes(), "once is enough")
	r.Flush()
	r.Expire(r.clock.now())
	require.Empty(t, wakes(), "nothing is left")
}

// An ordered channel delivers only while replicas answer. For the others it is enough that the
// metadata answers.
func TestFenceOfOrderedChannels(t *testing.T) {
	r := newRig(Options{})
	plain, strict := r.channel(t, "plain", ChannelOptions{}), r.channel(t, "strict", ChannelOptions{Ordered: true})
	p, s := subscribe(t, plain), subscribe(t, strict)
	<-s.Wake
	r.publishN(3)
	r.Extend(r.clock.now() + 100)
	r.clock.add(100)
	r.ExtendUnordered(r.clock.now() + 100)
	require.Len(t, plain.Pull(p, 1, nil), 1)
	require.Empty(t, strict.Pull(s, 1, nil))
	r.Extend(r.clock.now() + 100)
	<-s.Wake
	require.Len(t, strict.Pull(s, 1, nil), 1)
}

// Messages in flight at the moment a channel becomes ordered are delivered in order afterwards,
// also by the next leader.
func TestChannelBecomesOrdered(t *testing.T) {
	for _, failover := range []bool{false, true} {
		r := newRig(Options{})
		c := r.channel(t, "c", ChannelOptions{})
		s := subscribe(t, c)
		r.publishN(9)
		got := c.Pull(s, 6, nil)
		require.NoError(t, r.OrderChannel(t.Context(), "c", true))
		for _, i := range []int{3, 0, 5, 1} {
			require.Empty(t, c.Pull(s, 9, nil), "messages are in flight")
			require.NoError(t, c.Requeue(s, c.of(got[i].Message.Seq, 0), 0))
		}
		if !failover {
			c.Detach(s, true)
		} else { // messages in flight are still in the log for the next leader
			r = r.failover()
			c, _ = r.Channel("c")
			require.True(t, c.Ordered())
		}
		s = subscribe(t, c)
		for want := range ident.Sequence(9) {
			for range 2 { // requeued once, it is delivered again first
				d := c.Pull(s, 9, nil)
				require.Len(t, d, 1)
				require.Equal(t, want, d[0].Message.Seq)
				require.NoError(t, c.Requeue(s, c.of(want, 0), 0))
			}
			require.NoError(t, c.Finish(s, c.of(c.Pull(s, 1, nil)[0].Message.Seq, r.leadership.epoch)))
		}
		requireExact(t, r.Partition, c)
	}
}

func TestTopicPauseIsABarrier(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	subscribe(t, c)
	r.publish("before")
	require.NoError(t, r.PauseTopic(t.Context(), true))
	r.publish("after")
	require.EqualValues(t, 1, r.Stats("", false).Depth)
	n := r.failover()
	c, _ = n.Channel("c")
	s := subscribe(t, c)
	require.Equal(t, []string{"before"}, bodies(c.Pull(s, 9, nil)))
	require.NoError(t, n.EmptyTopic(t.Context()))
	n.publish("last")
	require.Empty(t, c.Pull(s, 9, nil))
	require.NoError(t, n.PauseTopic(t.Context(), false))
	require.Equal(t, []string{"last"}, bodies(c.Pull(s, 9, nil)))
	requireExact(t, n.Partition, c)
}

func TestChangesEndWithTheirContext(t *testing.T) {
	r := newRig(Options{})
	r.rep.hold = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.CreateChannel(ctx, "c", ChannelOptions{})
	require.ErrorIs(t, err, context.Canceled)
	r.rep.answer(false)
	_, err = r.CreateChannel(t.Context(), "c", ChannelOptions{})
	require.ErrorIs(t, err, ErrNotReplicated)
}

// TestDefaults: of what is 0 or below.
func TestDefaults(t *testing.T) {
	for _, given := range []int64{0, -1} {
		o := Options{MsgTimeoutMS: given, MaxMsgTimeoutMS: given, MaxReqTimeoutMS: given, EphemeralDepth: given, PercentileWindowMS: given}.withDefaults()
		require.Equal(t, []int64{60_000, 900_000, 3_600_000, 10_000, 600_000},
			[]int64{o.MsgTimeoutMS, o.MaxMsgTimeoutMS, o.MaxReqTimeoutMS, o.EphemeralDepth, o.PercentileWindowMS})
	}
}

// TestUses: a channel is in use while it has a subscriber or a delivery, and each subscription and verb counts.
func TestUses(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	r.channel(t, "temporary#ephemeral", ChannelOptions{})
	require.Equal(t, []channelUse{{Channel: "c"}}, r.Uses())
	s := subscribe(t, c)
	require.Equal(t, []channelUse{{Channel: "c", Now: true, Count: 1}}, r.Uses())
	c.Detach(s, true)
	require.Equal(t, []channelUse{{Channel: "c", Count: 1}}, r.Uses())
}

func TestLatencyPercentiles(t *testing.T) {
	r := newRig(Options{Percentiles: []float64{0.5, 1}, PercentileWindowMS: 1000})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	for i := range 100 {
		r.log.publish(queue.Message{Time: r.clock.now() - int64(i)*nsPerMS})
	}
	r.Advance(r.log.Committed())
	for _, d := range c.Pull(s, 100, nil) {
		require.NoError(t, c.Finish(s, c.of(d.Message.Seq, 1)))
	}
	e := c.stats(false, &mergedLatency{}).E2E
	require.Equal(t, 100, e.Count)
	require.InDelta(t, 50*nsPerMS, e.Percentiles[0].Value, float64(3*nsPerMS))
	require.InDelta(t, 99*nsPerMS, e.Percentiles[1].Value, float64(nsPerMS))
	r.clock.add(5000 * nsPerMS)
	require.Zero(t, c.stats(false, &mergedLatency{}).E2E.Count)
}

// TestTransferDeliveries: no other subscriber receives the messages in between.
func TestTransferDeliveries(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	old, other := subscribe(t, c), subscribe(t, c)
	r.publishN(4)
	require.Len(t, c.Pull(old, 4, nil), 4)
	<-other.Wake
	require.Empty(t, c.Pull(other, 10, nil))
	r.tick(10)

	s := subscribe(t, c)
	held := []Receipt{c.of(0, 1), c.of(2, 1), {Sequence: 99, Attempts: 1}}
	require.Equal(t, []ident.Sequence{99}, c.TransferDeliveries(old, s, held))
	require.Equal(t, 2, c.InFlight(s))
	d := c.Pull(other, 10, nil)
	require.Len(t, d, 2, "the messages that the client has not seen")
	require.EqualValues(t, 1, d[0].Message.Attempts)
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.ErrorIs(t, c.Finish(old, c.of(2, 1)), outcome.ErrNotInFlight)
	require.NoError(t, c.Undo(s, c.of(2, 0)))
	again := c.Pull(other, 10, nil)
	require.Len(t, again, 1)
	require.EqualValues(t, 1, again[0].Message.Attempts, "the client did not see it")
	requireExact(t, r.Partition, c)
}

// Messages that were emptied from a paused topic are not delivered after the pause, and messages
// that were published later are.
func TestEmptyingAPausedTopic(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	require.NoError(t, r.PauseTopic(t.Context(), true))
	r.publish("discarded")
	require.NoError(t, r.EmptyTopic(t.Context()))
	r.publish("kept")
	require.NoError(t, r.EmptyTopic(t.Context()))
	late := r.channel(t, "late", ChannelOptions{})
	r.publish("last")
	require.Empty(t, c.Pull(s, 9, nil))
	requireExact(t, r.Partition, c)
	require.NoError(t, r.PauseTopic(t.Context(), false))
	for _, c := range []*Channel{c, late} {
		require.Equal(t, []string{"last"}, bodies(c.Pull(subscribe(t, c), 9, nil)))
		requireExact(t, r.Partition, c)
	}
}
