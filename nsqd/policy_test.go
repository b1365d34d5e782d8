package nsqd

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestDeadMessageIsOffered(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, r *rig, c *Channel, s *Subscriber, seq ident.Sequence){
		"requeue": func(t *testing.T, _ *rig, c *Channel, s *Subscriber, seq ident.Sequence) {
			require.NoError(t, c.Requeue(s, c.of(seq, 0), 0))
		},
		"delayed": func(t *testing.T, _ *rig, c *Channel, s *Subscriber, seq ident.Sequence) {
			require.NoError(t, c.Requeue(s, c.of(seq, 0), 500))
		},
		"timeout":       func(t *testing.T, r *rig, _ *Channel, _ *Subscriber, _ ident.Sequence) { r.tick(60_000) },
		"disconnection": func(t *testing.T, _ *rig, c *Channel, s *Subscriber, _ ident.Sequence) { c.Detach(s, true) },
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := newRig(Options{})
				c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest, Ordered: ordered})
				c.SetPolicy(Policy{MaxAttempts: 3})
				r.publish("poison", "good")
				for range 3 {
					s := subscribe(t, c)
					got := c.Pull(s, 1, nil)
					if len(got) == 0 { // the message is delayed
						r.tick(500)
						got = c.Pull(s, 1, nil)
					}
					for string(got[0].Message.Body) != "poison" {
						require.NoError(t, c.Finish(s, c.of(got[0].Message.Seq, 1)))
						r.tick(500)
						got = c.Pull(s, 1, nil)
					}
					requireExact(t, r.Partition, c)
					fail(t, r, c, s, got[0].Message.Seq)
					requireExact(t, r.Partition, c)
				}
				require.True(t, r.DeadPending())
				require.False(t, r.DeadPending())
				dead := c.DeadLetters()
				require.Len(t, dead, 1)
				require.Equal(t, "poison", string(dead[0].Message.Body))
				require.EqualValues(t, 3, dead[0].Message.Attempts)
				s := subscribe(t, c)
				if ordered {
					require.Empty(t, c.Pull(s, 1, nil), "it still blocks the channel")
				}
				require.NoError(t, c.DeadMoved(c.of(0, 1)))
				if ordered {
					require.Equal(t, []string{"good"}, bodies(c.Pull(s, 1, nil)))
				}
				r.tick(100_000)
				require.NotContains(t, bodies(c.Pull(s, 2, nil)), "poison")
				requireExact(t, r.Partition, c)
			})
		}
	}
}

func TestUnmovedDeadMessageIsOfferedAgain(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	c.SetPolicy(Policy{MaxAttempts: 1})
	r.publish("poison")
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	require.Len(t, c.DeadLetters(), 1)
	c.ReleaseDead(c.of(0, 0))
	require.Equal(t, r.clock.now()+1000*nsPerMS, r.Due())
	requireExact(t, r.Partition, c)
	r.DeadPending()
	r.tick(1000)
	require.True(t, r.DeadPending())
	r.log.fail = errors.New("bad sector")
	require.Empty(t, c.DeadLetters())
	r.log.fail = nil
	r.tick(1000)
	require.True(t, r.DeadPending())
	require.Len(t, c.DeadLetters(), 1)
	r.tick(deadMoveTimeout / nsPerMS) // there is no report about the move
	require.True(t, r.DeadPending())
	require.Len(t, c.DeadLetters(), 1)

	n := r.failover() // with the replicated attempts only
	c, _ = n.Channel("c")
	c.SetPolicy(Policy{MaxAttempts: 1})
	s = subscribe(t, c)
	require.Empty(t, c.Pull(s, 1, nil), "dead is dead")
	require.True(t, n.DeadPending())
	require.Len(t, c.DeadLetters(), 1)
	require.NoError(t, c.DeadMoved(c.of(0, 2)))
	require.EqualValues(t, 1, c.Finished())
	requireExact(t, n.Partition, c)
}

// TestDeadMessageIsMovedByOneAtATime: a fetched message is not offered again for a minute. A mover
// that reports later, when the message was offered again, moves nothing twice.
func TestDeadMessageIsMovedByOneAtATime(t *testing.T) {
	var woken []int64
	r := newRig(Options{Wake: func(at int64) { woken = append(woken, at) }})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	c.SetPolicy(Policy{MaxAttempts: 1})
	r.publish("poison")
	s := &Subscriber{Direct: true, MsgTimeoutMS: 5 * deadMoveTimeout / nsPerMS}
	require.NoError(t, c.Attach(s))
	require.Len(t, c.Pull(s, 1, nil), 1)
	woken = nil
	require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
	require.Contains(t, woken, int64(0), "the broker is woken at once")
	require.Equal(t, r.clock.now()+deadMoveTimeout, r.Due())
	require.True(t, r.DeadPending())

	woken = nil
	r.tick(deadMoveTimeout / nsPerMS) // the broker has not fetched it
	require.Contains(t, woken, int64(0), "the broker is woken at once")
	require.Len(t, c.dead.pending, 1, "it stays in the hold")
	require.True(t, r.DeadPending())
	r.tick(deadMoveTimeout / nsPerMS / 2)
	require.Len(t, c.DeadLetters(), 1)
	r.tick(deadMoveTimeout / nsPerMS / 2)
	require.False(t, r.DeadPending())
	require.Empty(t, c.DeadLetters(), "it has time until")
	r.tick(deadMoveTimeout / nsPerMS / 2)
	require.True(t, r.DeadPending())

	c.ReleaseDead(c.of(0, 0)) // the late report of the first mover
	r.tick(1000)
	require.Len(t, c.DeadLetters(), 1)
	r.tick(deadMoveTimeout / nsPerMS)
	c.ReleaseDead(c.of(0, 0))
	c.SetPolicy(Policy{})
	r.tick(1000)
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.Empty(t, c.DeadLetters(), "a client has it")
	c.ReleaseDead(c.of(0, 0))
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	requireExact(t, r.Partition, c)
}

// Clients that hold thousands of messages leave at the same time.
func TestManyDeadMessagesComeInParts(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	c.SetPolicy(Policy{MaxAttempts: 1})
	const n = 3 * maxRevoked
	r.publishN(n)
	s := subscribe(t, c)
	for got := 0; got < n; {
		got += len(c.Pull(s, n-got, nil))
	}
	c.Detach(s, true)
	r.tick(deadMoveTimeout / nsPerMS) // the broker has not fetched them
	requireExact(t, r.Partition, c)
	seen := map[ident.Sequence]int{}
	for dead := c.DeadLetters(); len(dead) > 0; dead = c.DeadLetters() {
		for _, d := range dead {
			seen[d.Message.Seq]++
			require.NoError(t, c.DeadMoved(c.of(d.Message.Seq, 1)))
		}
	}
	require.Equal(t, n, len(seen))
	require.EqualValues(t, n, c.Finished())
	requireExact(t, r.Partition, c)

	for range 10 {
		r.publish(strings.Repeat("x", pullBytes/4+1))
	}
	s = subscribe(t, c)
	for range 3 {
		c.Pull(s, 10, nil)
	}
	c.Detach(s, true)
	for _, want := range []int{4, 4, 2, 0} { // about pullBytes in memory
		require.Len(t, c.DeadLetters(), want)
	}
}

func TestBackoffDelaysRedelivery(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	c.SetPolicy(Policy{Backoff: option.Backoff{BaseMS: 100, Factor: 3, MaxMS: 500}})
	r.publish("m")
	s := subscribe(t, c)
	for _, wait := range []int64{100, 300, 500, 500} {
		require.Len(t, c.Pull(s, 1, nil), 1)
		require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
		r.tick(wait - 1)
		require.Empty(t, c.Pull(s, 1, nil))
		r.tick(1)
	}
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, c.of(0, 0), 10_000))
	r.tick(9_999)
	require.Empty(t, c.Pull(s, 1, nil), "the consumer asked for more")
	for range 100 {
		d := option.Backoff{BaseMS: 1000, Jitter: 0.5}.DelayMS(1)
		require.True(t, d >= 500 && d <= 1000, "%d", d)
	}
}

func TestMessageForOneChannelOnly(t *testing.T) {
	r := newRig(Options{})
	one := r.channel(t, "one", ChannelOptions{Origin: FromEarliest})
	two := r.channel(t, "two", ChannelOptions{Origin: FromEarliest})
	r.log.publish(queue.Message{Header: []byte(`{"##only_channel":"two"}`), Body: []byte("x")})
	r.publish("y")
	require.Equal(t, []string{"y"}, bodies(one.Pull(subscribe(t, one), 5, nil)))
	require.Equal(t, []string{"x", "y"}, bodies(two.Pull(subscribe(t, two), 5, nil)))
	requireExact(t, r.Partition, one)
	requireExact(t, r.Partition, two)
}

// TestAnOlderPolicyReplacesNoNewerOne: the watch and an operator's request bring policies, in any
// order.
func TestAnOlderPolicyReplacesNoNewerOne(t *testing.T) {
	r := newRig(Options{Policy: func(string) Policy { return Policy{MaxAttempts: 2, Revision: 2} }})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{MaxAttempts: 4, Revision: 4})
	c.SetPolicy(Policy{MaxAttempts: 3, Revision: 3})
	require.EqualValues(t, 4, c.Policy().MaxAttempts)
	c.SetPolicy(Policy{MaxAttempts: 5, Revision: 4})
	require.EqualValues(t, 5, c.Policy().MaxAttempts)
}
