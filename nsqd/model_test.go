package nsqd

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

func runModel(t *rapid.T, ordered bool) {
	policy := rapid.SampledFrom(policies).Draw(t, "policy")
	r := &reference{
		rig: newRig(Options{MaxMsgTimeoutMS: 80, Policy: func(string) Policy { return policy }}), ordered: ordered,
		policy: policy, ttl: rapid.SampledFrom([]int64{0, 0, 300}).Draw(t, "ttl"),
	}
	r.SetTTL(r.ttl)
	c, err := r.CreateChannel(context.Background(), "c", ChannelOptions{Ordered: ordered})
	require.NoError(t, err)
	r.channel = c
	r.attach(t)
	r.newFollower()
	t.Repeat(map[string]func(*rapid.T){
		"publish": r.publish, "pull": r.pull, "pull again": r.pull, "finish": r.finish,
		"finish again": r.finish, "requeue": r.requeue, "touch": r.touch, "pass": r.pass,
		"pause": r.pauseChannel, "pause topic": r.pauseTopic, "seek": r.seek, "empty": r.empty,
		"detach": r.detach, "failover": r.failover, "retain": r.retain, "order": r.order,
		"move dead": r.moveDead, "stale": r.stale, "cancel": r.cancel, "reap": func(*rapid.T) { r.Reap() },
		"flush": func(*rapid.T) { r.Flush() },
		"":      r.check,
	})
	r.drain(t)
}

// drain consumes all remaining messages: none may be stuck.
func (r *reference) drain(t *rapid.T) {
	if r.paused {
		r.pauseChannel(t)
	}
	if r.topic {
		r.pauseTopic(t)
	}
	for range 4 * (len(r.fates) + 4) {
		r.tick(100)
		for _, d := range r.channel.DeadLetters() {
			require.NoError(t, r.channel.DeadMoved(r.channel.of(d.Message.Seq, d.Epoch)))
		}
		for _, d := range r.channel.Pull(r.subs[0], 10, nil) {
			require.NoError(t, r.channel.Finish(r.subs[0], r.channel.of(d.Message.Seq, r.leadership.epoch)))
		}
	}
	n := countsOf(r.Partition, r.channel)
	require.Equal(t, n.published, n.finished, "%+v", n)
	require.Equal(t, len(r.fates), int(r.lowWater()))
}

func TestChannelAgainstAReference(t *testing.T) {
	checkModel(t, false)
}

func TestOrderedChannelAgainstAReference(t *testing.T) {
	checkModel(t, true)
}

// checkModel runs ten times -rapid.checks sequences of actions (a thousand times with
// LOCKSTEP_LONG).
func checkModel(t *testing.T, ordered bool) {
	times := 10
	if env.Long() {
		times = 1000
	}
	for range times {
		rapid.Check(t, func(t *rapid.T) { runModel(t, ordered) })
	}
}

// A follower that has only some of the deltas must not count a message as finished that the leader
// has not finished, and must deliver all others.
func TestTruncatedDeltasLoseNoMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(Options{})
		c, err := r.CreateChannel(context.Background(), "c", ChannelOptions{})
		require.NoError(t, err)
		s := &Subscriber{Direct: true}
		require.NoError(t, c.Attach(s))
		finished := map[ident.Sequence]bool{}
		var isInFlight []ident.Sequence
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				r.publishN(3)
			case 1:
				for _, d := range c.Pull(s, 3, nil) {
					isInFlight = append(isInFlight, d.Message.Seq)
				}
			case 2:
				r.Flush()
			case 3, 4, 5:
				if len(isInFlight) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(isInFlight)-1).Draw(t, "which")
				seq := isInFlight[i]
				isInFlight = slices.Delete(isInFlight, i, i+1)
				if rapid.Bool().Draw(t, "finish") {
					require.NoError(t, c.Finish(s, c.of(seq, 1)))
					finished[seq] = true
				} else {
					require.NoError(t, c.Requeue(s, c.of(seq, 0), rapid.Int64Range(0, 1).Draw(t, "ms")))
				}
			}
		}
		keep := rapid.IntRange(0, len(r.rep.deltas)).Draw(t, "deltas")
		f := &rig{log: r.log, rep: &replicas{}, clock: r.clock}
		f.Partition = NewPartition("orders", testID, r.log, f.rep, r.o)
		for _, d := range r.rep.deltas[:keep] {
			f.Apply(d)
		}
		f.Lead(2)
		fc, err := f.CreateChannel(context.Background(), "c", ChannelOptions{Origin: FromBacklog})
		require.NoError(t, err)
		fs := &Subscriber{Direct: true}
		require.NoError(t, fc.Attach(fs))
		f.tick(1000)
		seen := map[ident.Sequence]bool{}
		for _, d := range fc.Pull(fs, 1000, nil) {
			seen[d.Message.Seq] = true
		}
		for seq := range r.log.messages {
			require.True(t, seen[ident.Sequence(seq)] || finished[ident.Sequence(seq)], "message %d is lost", seq)
		}
		requireExact(t, f.Partition, fc)
	})
}
