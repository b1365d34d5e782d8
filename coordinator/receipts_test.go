package coordinator_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// receiptsOf names deliveries as a client without a connection does.
func receiptsOf(list []api.Delivery) (out []api.Receipt) {
	for i := range list {
		out = append(out, list[i].Receipt())
	}
	return out
}

func (c *cluster) settle(on string, do api.Settlement, list ...api.Receipt) []error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.nodes[on].Gateway.Settle(ctx, "orders", "billing", do, list)
}

// TestReceiptsOfAWithdrawnDelivery: the broker of a consumer withdraws a delivery, and the next one of the message has the
// same attempts. The receipt of the first one is refused at every broker and by every subscription, and changes nothing.
func TestReceiptsOfAWithdrawnDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for _, at := range all {
			for _, next := range all {
				require.NoError(t, c.put("n1", "orders", "m"))
				s := c.subscribe(at, "orders", "billing", 1)
				first := s.take(1)
				s.sub.Withdraw()
				s = c.subscribe(next, "orders", "billing", 1)
				second := s.take(1)
				require.Equal(t, [3]any{first[0].ID, first[0].Epoch, first[0].Message.Attempts}, [3]any{second[0].ID, second[0].Epoch, second[0].Message.Attempts})
				for _, verb := range []api.Verb{api.VerbFinish, api.VerbRequeue, api.VerbTouch} {
					do := api.Settlement{Verb: verb}
					for _, on := range all {
						require.Equal(t, []error{outcome.ErrNotOwner}, c.settle(on, do, first[0].Receipt()), "%s of %s, next %s, at %s", verb, at, next, on)
					}
					require.ErrorIs(t, s.sub.Settle(first[0].Receipt(), do), outcome.ErrNotOwner)
				}
				err := s.sub.Settle(second[0].Receipt(), api.Settlement{Verb: api.VerbFinish})
				if err != nil { // the leader is another broker
					require.ErrorIs(t, err, outcome.ErrNotInFlight)
					require.Equal(t, []error{nil}, c.settle(next, api.Settlement{Verb: api.VerbFinish}, second[0].Receipt()))
				}
				c.eventually(func() bool { return s.sub.InFlight() == 0 }, "finished")
				s.sub.Close(true)
				c.counts("orders", "billing", 0, 0, 0)
			}
		}
	})
}

// TestSettleAtAnyBroker: a receipt of a delivery settles it at the leader and at every other broker, whichever of them the
// consumer is connected to. The consumer has room again, and refusals are definite.
func TestSettleAtAnyBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		for _, at := range all {
			for _, other := range all {
				for range 4 {
					require.NoError(t, c.put("n1", "orders", "m"))
				}
				s := c.subscribe(at, "orders", "billing", 4)
				list := receiptsOf(s.take(4))
				require.Equal(t, []error{nil, nil}, c.settle(other, api.Settlement{Verb: api.VerbFinish}, list[:2]...))
				require.Equal(t, []error{nil}, c.settle(other, api.Settlement{Verb: api.VerbTouch}, list[2]))
				require.Equal(t, []error{nil, nil}, c.settle(other, api.Settlement{Verb: api.VerbRequeue}, list[2:]...))
				second := s.take(2)
				require.EqualValues(t, 2, second[0].Message.Attempts)
				again := receiptsOf(second)
				require.Equal(t, []error{outcome.ErrNotInFlight, outcome.ErrNotOwner}, c.settle(other, api.Settlement{Verb: api.VerbFinish}, list[0], list[2]))
				require.Equal(t, []error{nil, nil}, c.settle(other, api.Settlement{Verb: api.VerbFinish}, again...))
				c.eventually(func() bool { return s.sub.InFlight() == 0 }, "at %s, settled at %s", at, other)
				s.sub.Close(true)
				c.counts("orders", "billing", 0, 0, 0)
			}
		}
		foreign := api.Receipt{ID: api.MessageID([]byte("ffffffffffffffff")), Number: 1}
		require.Equal(t, []error{outcome.ErrNotInFlight}, c.settle("n1", api.Settlement{Verb: api.VerbFinish}, foreign))
		s := c.subscribe("n1", "orders", "billing", 1)
		require.NoError(t, c.put("n1", "orders", "m"))
		held := receiptsOf(s.take(1))
		require.ErrorIs(t, c.settle("n1", api.Settlement{Verb: "eat"}, held...)[0], outcome.ErrInvalid)
		require.ErrorIs(t, c.nodes["n2"].Gateway.Settle(t.Context(), "orders", "absent", api.Settlement{Verb: api.VerbFinish}, held)[0], outcome.ErrChannelNotFound)
		require.ErrorIs(t, c.nodes["n2"].Gateway.Settle(t.Context(), "absent", "billing", api.Settlement{Verb: api.VerbFinish}, held)[0], outcome.ErrTopicNotFound)
		s.sub.Close(true)
	})
}

// TestSettleThroughAFailover: the leader dies while a consumer of another broker holds messages. A third broker settles them at
// the next leader, which waits until they are reclaimed there.
func TestSettleThroughAFailover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for range 4 {
			require.NoError(t, c.put("n1", "orders", "m"))
		}
		leader := c.leader("orders")
		others := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == leader })
		s := c.subscribe(others[0], "orders", "billing", 4)
		list := receiptsOf(s.take(4))
		c.kill(leader)
		require.Equal(t, make([]error, 4), c.settle(others[1], api.Settlement{Verb: api.VerbFinish}, list...))
		c.eventually(func() bool { return s.sub.InFlight() == 0 }, "the messages are finished")
		s.sub.Close(true)
		began := time.Now()
		require.Equal(t, outcome.ErrNotInFlight, c.settle(others[1], api.Settlement{Verb: api.VerbFinish}, list[0])[0])
		require.Less(t, time.Since(began), time.Second, "a finished message is not waited for")
	})
}

// TestTraceAtAnyBroker: every broker gives the state of a message, as its leader has it.
func TestTraceAtAnyBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "2"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		id := c.putMessage("n1", "orders", []byte("key"), queue.Message{Header: []byte(`{"a":"b"}`), Body: []byte("body")})
		s := c.subscribe("n2", "orders", "billing", 1)
		held := s.take(1)
		trace := func(on string, of api.MessageID) (m api.MessageTrace) {
			m, err := c.nodes[on].Trace(t.Context(), "orders", of)
			require.NoError(t, err)
			return m
		}
		for _, on := range all {
			m := trace(on, id)
			require.Equal(t, api.TraceCommitted, m.State)
			require.Equal(t, held[0].Message.Time, m.Time)
			require.Equal(t, 4, m.Bytes)
			require.JSONEq(t, `{"a":"b"}`, string(m.Header))
			require.Len(t, m.ISR, 3)
			require.NotEmpty(t, m.Leader)
			require.Len(t, m.Channels, 1)
			require.Equal(t, api.TraceInFlight, m.Channels[0].State)
			require.EqualValues(t, 1, m.Channels[0].Attempts)
		}
		s.finish(held...)
		c.eventually(func() bool { return trace("n3", id).Channels[0].State == api.TraceFinished }, "it is finished")
		s.sub.Close(true)
		next := id
		next[len(next)-1]++
		require.Equal(t, api.TraceAbsent, trace("n1", next).State)
		_, err := c.nodes["n1"].Trace(t.Context(), "orders", api.MessageID([]byte("ffffffffffffffff")))
		require.ErrorIs(t, err, outcome.ErrInvalid)
		_, err = c.nodes["n1"].Trace(t.Context(), "absent", id)
		require.ErrorIs(t, err, outcome.ErrTopicNotFound)
	})
}
