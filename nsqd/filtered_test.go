package nsqd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// publishKinds publishes one message for each kind, with the kind as its header and in its body.
func (r *rig) publishKinds(kinds ...string) {
	for i, k := range kinds {
		m := queue.Message{Time: r.clock.now(), Body: fmt.Appendf(nil, "%s%d", k, i)}
		if k != "" {
			m.Header = fmt.Appendf(nil, `{"kind":%q}`, k)
		}
		r.log.publish(m)
	}
	r.Advance(r.log.Committed())
}

// drain delivers and finishes until nothing comes.
func drain(t testing.TB, c *Channel, s *Subscriber) []string {
	t.Helper()
	all := []string{}
	for {
		got := c.Pull(s, 10, nil)
		if len(got) == 0 {
			return all
		}
		for i := range got {
			require.NoError(t, c.Finish(s, c.of(got[i].Message.Seq, got[i].Epoch)))
		}
		all = append(all, bodies(got)...)
	}
}

func filtered(p *Partition, c *Channel) int {
	return int(p.Stats(c.name, false).Channels[0].FilteredCount)
}

// TestFilteredMessagesAreFinished: a channel delivers what its filter accepts. The others are
// finished for it alone, counted, and finished for the next leader too.
func TestFilteredMessagesAreFinished(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			r := newRig(Options{})
			c := r.channel(t, "c", ChannelOptions{Ordered: ordered})
			other := r.channel(t, "other", ChannelOptions{})
			c.SetPolicy(Policy{Filter: "header:kind=a"})
			s := subscribe(t, c)
			r.publishKinds("a", "b", "b", "", "a", "b")
			require.Equal(t, []string{"a0", "a4"}, drain(t, c, s))
			requireExact(t, r.Partition, c)
			require.EqualValues(t, 6, c.Finished())
			require.Equal(t, 4, filtered(r.Partition, c))
			require.EqualValues(t, 4, r.Work().Channels["c"].Filtered)
			require.Equal(t, "header:kind=a", r.Stats("c", false).Channels[0].Filter)
			require.Len(t, drain(t, other, subscribe(t, other)), 6)
			require.Zero(t, filtered(r.Partition, other))

			r.Flush()
			n := r.failover()
			again, _ := n.Channel("c")
			require.EqualValues(t, 6, again.Finished(), "the finishes are replicated")
			require.Empty(t, drain(t, again, subscribe(t, again)))
		})
	}
}

// TestFilteredRunsAreOneRange: a message in flight at the front does not make one range of each
// rejected message behind it.
func TestFilteredRunsAreOneRange(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	s := subscribe(t, c)
	kinds := []string{"a"}
	for range 3000 {
		kinds = append(kinds, "b")
	}
	r.publishKinds(kinds...)
	require.Len(t, c.Pull(s, 10, nil), 1)
	r.Flush()
	deltas := r.rep.deltas
	records, err := state.DecodeDelta(deltas[len(deltas)-1])
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Len(t, records[0].Progress.Settled, 1)
	require.EqualValues(t, 3001, records[0].Progress.Settled[0].To)
	requireExact(t, r.Partition, c)
}

// TestFilterChangesOnALiveChannel: a new filter decides about every message that is delivered from
// then on, those that were read ahead and those that come again too. Messages in flight stay.
func TestFilterChangesOnALiveChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publishKinds("b", "b", "a", "b", "a")
	held := c.Pull(s, 1, nil) // the others are read ahead
	requeued := c.Pull(s, 1, nil)
	require.NoError(t, c.Requeue(s, c.of(requeued[0].Message.Seq, 0), 0))

	c.SetPolicy(Policy{Filter: "header:kind=a", Revision: 1})
	require.NoError(t, c.Finish(s, c.of(held[0].Message.Seq, 1)), "it stays with its consumer")
	require.Equal(t, []string{"a2", "a4"}, drain(t, c, s))
	require.Equal(t, 2, filtered(r.Partition, c), "one was requeued, one is new")
	requireExact(t, r.Partition, c)

	c.SetPolicy(Policy{Filter: "header:kind=b"}) // an older version of the key
	r.publishKinds("a", "b")
	require.Equal(t, []string{"a0"}, drain(t, c, s))

	c.SetPolicy(Policy{Revision: 2})
	r.publishKinds("", "b")
	require.Equal(t, []string{"0", "b1"}, drain(t, c, s))
	_, err := r.SeekChannel(t.Context(), "c", seekTo(0))
	require.NoError(t, err)
	require.Len(t, drain(t, c, s), 9, "a seek back brings rejected messages again")
}

// TestFilterWakesConsumers: messages that only the new filter accepts need no further put.
func TestFilterWakesConsumers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "!header:kind=b"})
	s := subscribe(t, c)
	require.NoError(t, r.PauseTopic(t.Context(), true)) // puts are out of the consumers' reach
	r.publishKinds("b")
	require.Empty(t, c.Pull(s, 10, nil))
	c.SetPolicy(Policy{Revision: 1})
	require.NoError(t, r.PauseTopic(t.Context(), false))
	<-s.Wake
	require.Equal(t, []string{"b0"}, drain(t, c, s))
}

// TestFilteredDelays: a delayed message that the filter rejects is not deferred, and the filter at
// the end of the delay decides about the others.
func TestFilteredDelays(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	s := subscribe(t, c)
	for _, k := range []string{"a", "b", "a"} {
		r.log.publish(queue.Message{Time: r.clock.now(), DeliverAt: r.clock.now() + 1000*nsPerMS, Header: fmt.Appendf(nil, `{"kind":%q}`, k), Body: []byte(k)})
	}
	r.Advance(r.log.Committed())
	require.Equal(t, 2, countsOf(r.Partition, c).deferred, "found by the prescan")
	require.Empty(t, c.Pull(s, 10, nil))
	require.Equal(t, 2, countsOf(r.Partition, c).deferred)
	require.Equal(t, 1, filtered(r.Partition, c))
	requireExact(t, r.Partition, c)
	c.SetPolicy(Policy{Filter: "header:kind=c", Revision: 1})
	r.tick(1000)
	require.Empty(t, c.Pull(s, 10, nil))
	require.Equal(t, 3, filtered(r.Partition, c))
	require.EqualValues(t, 3, c.Finished())
}

// TestPullOfNothingIsBounded: a Pull that finds only rejected messages ends, so that its caller can
// send heartbeats, and its subscriber is woken for the rest.
func TestPullOfNothingIsBounded(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	s := subscribe(t, c)
	r.publishN(3 * skipMessages)
	r.publishKinds("a")
	rounds := 0
	for {
		got := c.Pull(s, 1, nil)
		if len(got) == 1 {
			break
		}
		rounds++
		select {
		case <-s.Wake:
		default:
			t.Fatal("the subscriber is not woken")
		}
		requireExact(t, r.Partition, c)
	}
	require.InDelta(t, 3, rounds, 1)
}

// TestReapPassesFilteredMessages: a channel without consumers holds no log for messages that it
// will not deliver.
func TestReapPassesFilteredMessages(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	r.publishN(2 * skipMessages)
	r.publishKinds("a")
	for range 3 {
		r.Reap()
	}
	require.EqualValues(t, 2*skipMessages, r.lowWater())
	require.Equal(t, []string{"a0"}, drain(t, c, subscribe(t, c)))
}

// TestUnreadableFilterRejectsNothing: the policy of a newer build may have another form.
func TestUnreadableFilterRejectsNothing(t *testing.T) {
	r := newRig(Options{Policy: func(string) Policy { return Policy{Filter: "some(new(form))"} }})
	c := r.channel(t, "c", ChannelOptions{})
	r.publishKinds("a", "b")
	require.Len(t, drain(t, c, subscribe(t, c)), 2)
}

// TestLeaderTakesTheFilterOfTheCatalog: a change that has not come to a follower's channel is in
// force when the follower begins to lead.
func TestLeaderTakesTheFilterOfTheCatalog(t *testing.T) {
	policy := Policy{Filter: "header:kind=a"}
	r := newRig(Options{Policy: func(string) Policy { return policy }})
	r.channel(t, "c", ChannelOptions{})
	r.publishKinds("a", "b")
	n := &rig{log: r.log, rep: &replicas{}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, r.log, n.rep, r.o)
	n.Replace(r.Snapshot())
	policy = Policy{Filter: "header:kind=b", Revision: 1}
	n.Lead(2)
	c, _ := n.Channel("c")
	require.Equal(t, []string{"b1"}, drain(t, c, subscribe(t, c)))
}

// TestFilteredDeadLettersAreKept: a message that has used up its attempts is a dead letter, whatever
// the filter is by then.
func TestFilteredDeadLettersAreKept(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{MaxAttempts: 1})
	s := subscribe(t, c)
	r.publishKinds("a")
	require.NoError(t, c.Requeue(s, c.of(c.Pull(s, 1, nil)[0].Message.Seq, 0), 0))
	c.SetPolicy(Policy{MaxAttempts: 1, Filter: "header:kind=b", Revision: 1})
	require.Empty(t, c.Pull(s, 1, nil))
	require.Len(t, c.DeadLetters(), 1)
	require.NoError(t, c.DeadMoved(c.of(0, 1)))
	require.Zero(t, filtered(r.Partition, c))
}

// BenchmarkFilterNothing skips messages that the filter rejects; ns/op is of one message.
func BenchmarkFilterNothing(b *testing.B) {
	header := []byte(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","region":"eu-west-1","kind":"order"}`)
	for name, h := range map[string][]byte{"plain": nil, "headers": header} {
		for _, text := range []string{"header:kind=refund", "header:kind~=^re(fund|call)$"} {
			b.Run(name+"/"+text, func(b *testing.B) {
				r := newRig(Options{})
				c := r.channel(b, "c", ChannelOptions{})
				c.SetPolicy(Policy{Filter: text})
				s := subscribe(b, c)
				const ring = 1 << 18
				for range min(b.N, ring) {
					r.log.publish(queue.Message{Time: 1, Header: h, Body: []byte("body")})
				}
				r.Advance(r.log.Committed())
				end := r.log.Committed().Sequence
				var got []api.Delivery
				b.ReportAllocs()
				b.ResetTimer()
				for done := ident.Sequence(0); done < ident.Sequence(b.N); {
					from := c.cursor.Confirmed()
					got = c.Pull(s, 1, got[:0])
					done += c.cursor.Confirmed() - from
					if c.cursor.Confirmed() == end {
						_, _ = r.SeekChannel(b.Context(), "c", seekTo(0))
					}
				}
				require.Empty(b, got)
			})
		}
	}
}

// TestAWaitingMessageHoldsNoLogForOthers: a channel with a filter and without consumers, as that of dead letters, sets the
// messages that it waits with aside. The others are passed over, and do not count as depth.
func TestAWaitingMessageHoldsNoLogForOthers(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	r.publishKinds("b", "a", "b", "b", "a", "b")
	r.Reap()
	require.EqualValues(t, 2, countsOf(r.Partition, c).depth)
	requireExact(t, r.Partition, c)
	require.EqualValues(t, 6, r.Floor())
	seqs, all := r.DeferredBelow(6, 500, 10)
	require.True(t, all)
	require.Equal(t, []ident.Sequence{1, 4}, seqs)
	r.log.relocated = map[ident.Offset][]ident.Sequence{500: seqs}
	require.NoError(t, r.Relocate(t.Context(), 500, seqs, false))
	require.NoError(t, r.Relocate(t.Context(), 500, seqs, true))
	require.EqualValues(t, 6, r.lowWater())
	r.log.start = 6

	r.Flush()
	r = r.failover()
	c, _ = r.Channel("c")
	s := subscribe(t, c)
	d := c.Pull(s, 10, nil)
	require.Equal(t, []string{"a1", "a4"}, bodies(d))
	require.EqualValues(t, 1, d[0].Message.Attempts)
	requireExact(t, r.Partition, c)
}
