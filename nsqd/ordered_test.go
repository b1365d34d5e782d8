package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// An ordered channel has at most one message in flight, deliveries of an earlier leader included.
func TestOrderedChannelReclaimsOneMessage(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s, late := subscribe(t, c), subscribe(t, c)
	r.publishN(3)
	require.Empty(t, c.Reclaim(s, []Receipt{{Sequence: 0, Epoch: 1, Number: 1, Attempts: 1}}))
	require.Equal(t, []ident.Sequence{1}, c.Reclaim(late, []Receipt{{Sequence: 1, Attempts: 1}}))
	r.rep.hold = true
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.Equal(t, []ident.Sequence{1}, c.Reclaim(late, []Receipt{{Sequence: 1, Attempts: 1}}), "not all replicas have the finish")
	r.rep.answer(true)
	require.Empty(t, c.Reclaim(late, []Receipt{{Sequence: 1, Attempts: 1}}))
}

// A message whose finish is not on all replicas is delivered again, unless the channel was moved.
func TestFinishThatFailsAfterASeek(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(3)
	r.rep.hold = true
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	c.seek(2)
	r.rep.answer(false)
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(2), d[0].Message.Seq)
}

// A finish that failed is withdrawn at the replicas, too.
func TestFinishThatFailsIsWithdrawn(t *testing.T) {
	r, c, s := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	r.rep.hold = true
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	r.Flush()
	require.False(t, r.Dirty())
	r.rep.answer(false)
	require.True(t, r.Dirty())
	d := c.Pull(s, 1, nil)
	require.Len(t, d, 1)
	require.Zero(t, d[0].Message.Seq)
}

// A leader that was deposed and leads again does not wait for a finish of the earlier epoch.
func TestOrderedChannelOfTheSameLeader(t *testing.T) {
	r, c, s := delivered(t, Options{}, "strict", ChannelOptions{Ordered: true}, 2, 1)
	r.rep.hold = true
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	r.Unlead()
	r.rep.held, r.rep.hold = nil, false
	r.Lead(2)
	d := c.Pull(subscribe(t, c), 1, nil)
	require.Len(t, d, 1)
	require.Equal(t, ident.Sequence(1), d[0].Message.Seq)
}

// A new leader may have a finish that not all in-sync replicas have. An ordered channel stays closed
// until they have the state of the leader. Otherwise a later leader without that finish would
// deliver the message again after the next one.
func TestOrderedChannelWaitsForInheritedState(t *testing.T) {
	r := newRig(Options{})
	r.channel(t, "plain", ChannelOptions{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	r.rep.hold = true // only this leader has the finish
	require.NoError(t, c.Finish(s, c.of(c.Pull(s, 1, nil)[0].Message.Seq, 1)))

	n := &rig{log: r.log, rep: &replicas{hold: true}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, n.log, n.rep, r.o)
	n.Replace(r.Snapshot())
	n.Lead(2)
	plain, _ := n.Channel("plain")
	require.Len(t, plain.Pull(subscribe(t, plain), 1, nil), 1)
	strict, _ := n.Channel("strict")
	s = subscribe(t, strict)
	<-s.Wake
	require.Empty(t, strict.Pull(s, 1, nil))
	n.rep.answer(true)
	<-s.Wake
	require.Len(t, strict.Pull(s, 1, nil), 1)
}

// REQ with a delay, and the back-off of a policy: an ordered channel waits, and then delivers the
// same message again. The next leader waits for the rest of the delay.
func TestOrderedChannelHonoursDelays(t *testing.T) {
	for name, policy := range map[string]Policy{
		"requeue": {},
		"backoff": {Backoff: option.Backoff{BaseMS: 5000}},
	} {
		t.Run(name, func(t *testing.T) {
			delay := int64(5000)
			if policy.Backoff.BaseMS > 0 {
				delay = 0
			}
			r := newRig(Options{Policy: func(string) Policy { return policy }})
			c := r.channel(t, "strict", ChannelOptions{Ordered: true})
			r.publish("first", "second", "third")
			s := subscribe(t, c)
			for attempt := 1; attempt <= 4; attempt++ {
				d := c.Pull(s, 10, nil)
				require.Equal(t, []string{"first"}, bodies(d))
				require.EqualValues(t, attempt, d[0].Message.Attempts)
				require.NoError(t, c.Requeue(s, c.of(0, 0), delay))
				require.Empty(t, c.Pull(s, 10, nil), "it has failed and is not due")
				requireExact(t, r.Partition, c)
				r.tick(4000)
				if attempt == 2 {
					r = r.failover()
					c, _ = r.Channel("strict")
					s = subscribe(t, c)
				}
				require.Empty(t, c.Pull(s, 10, nil), "nothing overtakes it")
				require.Equal(t, r.clock.now()+1000*nsPerMS, r.Due())
				r.tick(999)
				require.Empty(t, c.Pull(s, 10, nil))
				for len(s.Wake) > 0 {
					<-s.Wake
				}
				r.tick(1)
				require.Len(t, s.Wake, 1, "its consumer waits for it")
			}
			for _, body := range []string{"first", "second", "third"} {
				d := c.Pull(s, 10, nil)
				require.Equal(t, []string{body}, bodies(d))
				require.NoError(t, c.Finish(s, c.of(d[0].Message.Seq, r.leadership.epoch)))
			}
			requireExact(t, r.Partition, c)
		})
	}
}

// A timeout without a policy causes no wait, and a message that was published with a delay does not
// keep an ordered channel waiting.
func TestOrderedChannelWaitsForRetriesAlone(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	r.postpone(10_000*nsPerMS, "later")
	r.publish("now")
	s := subscribe(t, c)
	require.Equal(t, []string{"now"}, bodies(c.Pull(s, 10, nil)))
	r.tick(60_000)
	require.Equal(t, []string{"later"}, bodies(c.Pull(s, 10, nil)), "both are due: by sequence")
	require.NoError(t, c.Requeue(s, c.of(0, 0), 5000))
	require.Empty(t, c.Pull(s, 10, nil), "it was delivered, and failed")
	r.tick(5000)
	require.Equal(t, []string{"later"}, bodies(c.Pull(s, 10, nil)))
}

// An operator cancels the message that an ordered channel waits for; a seek forgets it; a channel
// that is no longer ordered does not wait.
func TestEndsOfAnOrderedWait(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *rig){
		"cancel": func(t *testing.T, r *rig) {
			n, err := r.CancelDeferred(t.Context(), "strict", []ident.Sequence{0})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		},
		"seek":      func(t *testing.T, r *rig) { r.seekChannel(t, "strict", seekTo(1)) },
		"unordered": func(t *testing.T, r *rig) { require.NoError(t, r.OrderChannel(t.Context(), "strict", false)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Options{})
			c := r.channel(t, "strict", ChannelOptions{Ordered: true})
			s := subscribe(t, c)
			r.publish("first", "second")
			require.Len(t, c.Pull(s, 1, nil), 1)
			require.NoError(t, c.Requeue(s, c.of(0, 0), 5000))
			require.Empty(t, c.Pull(s, 1, nil))
			for len(s.Wake) > 0 {
				<-s.Wake
			}
			end(t, r)
			require.NotEmpty(t, s.Wake, "its consumer waits")
			require.Equal(t, []string{"second"}, bodies(c.Pull(s, 1, nil)))
		})
	}
}

// A channel that becomes ordered waits for messages that failed before. A clock that is set back
// does not make the wait longer.
func TestOrderedWaitByTheClock(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "strict", ChannelOptions{})
	s := subscribe(t, c)
	r.publish("first", "second")
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 5000))
	require.NoError(t, r.OrderChannel(t.Context(), "strict", true))
	require.Empty(t, c.Pull(s, 1, nil))
	r.clock.add(-500 * nsPerMS)
	r.ClockSetBack(500 * nsPerMS)
	r.tick(4999)
	require.Empty(t, c.Pull(s, 1, nil))
	r.tick(1)
	require.Equal(t, []string{"first"}, bodies(c.Pull(s, 1, nil)))
}
