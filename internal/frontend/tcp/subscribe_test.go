package tcp_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestBasic(t *testing.T) {
	for _, unix := range []bool{false, true} {
		t.Run(fmt.Sprintf("unix=%t", unix), func(t *testing.T) {
			b := newBroker(t, func(s *setup) { s.unix = unix })
			before := time.Now().UnixNano()
			b.publishOne("t", "test body")
			c := b.dial()
			c.identify("{}")
			c.subscribe("t", "ch", "1")
			m := c.message()
			require.Equal(t, "test body", m.body)
			require.Equal(t, uint16(1), m.attempts)
			require.Len(t, m.id, 16)
			require.GreaterOrEqual(t, m.timeNS, before)
		})
	}
}

func TestEveryChannelGetsACopy(t *testing.T) {
	b := newBroker(t)
	one, two := b.dial(), b.dial()
	one.subscribe("t", "ch1", "1")
	two.subscribe("t", "ch2", "1")
	b.publishOne("t", "m")
	m1, m2 := one.message(), two.message()
	require.Equal(t, m1, m2)
}

// RDY is a window: after FIN the next message comes without another RDY.
func TestReadyIsAWindow(t *testing.T) {
	b := newBroker(t)
	b.dial().publish("t", "1", "2", "3")
	c := b.dial()
	c.subscribe("t", "ch", "2")
	first, second := c.message(), c.message()
	require.Equal(t, []string{"1", "2"}, []string{first.body, second.body})
	c.quiet()
	c.send("FIN " + first.id + "\n")
	require.Equal(t, "3", c.message().body)
}

func TestReadyForms(t *testing.T) {
	b := newBroker(t)
	b.dial().publish("t", "1", "2")
	c := b.dial()
	c.subscribe("t", "ch", "") // "RDY " is 0
	c.quiet()
	c.send("RDY\n") // is 1
	require.Equal(t, "1", c.message().body)
	c.quiet()
}

func TestMaxRdyCount(t *testing.T) {
	b := newBroker(t, func(s *setup) { s.options.MaxRdyCount = 50 })
	c := b.dial()
	require.Contains(t, c.identify(`{"feature_negotiation":true}`), `"max_rdy_count":50,`)
	c.subscribe("t", "ch", "50")
	c.send("RDY 51\n")
	c.fatal("E_INVALID RDY count 51 out of range 0-50")
}

func TestRequeue(t *testing.T) {
	b := newBroker(t)
	b.publishOne("t", "m")
	c := b.dial()
	c.subscribe("t", "ch", "1")
	m := c.message()
	c.send("REQ " + m.id + " 0\n")
	again := c.message()
	require.Equal(t, m.id, again.id)
	require.Equal(t, uint16(2), again.attempts)
	c.send("REQ " + m.id + " 18446744073709551616\n") // clamped, not refused and not 0
	c.quiet()
	require.Equal(t, 1, b.cluster.Topics("t", "ch", false)[0].Channels[0].DeferredCount)
}

func TestDPUB(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.send("DPUB t 3600000\n" + sized("late") + "DPUB t 0\n" + sized("now") + "DPUB t \n" + sized("now too"))
	for range 3 {
		c.response("OK")
	}
	c.subscribe("t", "ch", "3")
	require.Equal(t, "now", c.message().body)
	require.Equal(t, "now too", c.message().body)
	stats := b.cluster.Topics("t", "ch", false)[0].Channels[0]
	require.Equal(t, 1, stats.DeferredCount)
	require.Equal(t, uint64(3), stats.MessageCount)
}

// The timeout is the msg_timeout of the client. A FIN after it is refused, and the connection stays open.
func TestClientMsgTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { clientMsgTimeout(newBroker(t, piped)) })
}

func clientMsgTimeout(b *broker) {
	t := b.t
	b.publishOne("t", "m")
	c := b.dial()
	require.Contains(t, c.identify(`{"feature_negotiation":true,"msg_timeout":1000}`), `"msg_timeout":1000,`)
	c.subscribe("t", "ch", "1")
	m := c.message()
	require.Equal(t, uint16(2), c.message().attempts, "timed out and delivered again")
	c.send("RDY 0\nREQ " + m.id + " 60000\nFIN " + m.id + "\n")
	c.error("E_FIN_FAILED FIN " + m.id + " failed ID not in flight")
	c.quiet()
	stats := b.cluster.Topics("t", "ch", false)[0].Channels[0]
	require.Equal(t, uint64(1), stats.TimeoutCount)
}

func TestTouch(t *testing.T) {
	b := newBroker(t)
	b.publishOne("t", "m")
	c := b.dial()
	c.subscribe("t", "ch", "1")
	c.send("TOUCH " + c.message().id + "\n")
	c.quiet()
	require.Zero(t, b.cluster.Topics("t", "ch", false)[0].Channels[0].TimeoutCount)
}

func TestPausing(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.subscribe("t", "ch", "10")
	b.publishOne("t", "1")
	c.send("FIN " + c.message().id + "\n")
	b.admin(api.PauseChannel{Topic: "t", Channel: "ch", Paused: true})
	b.publishOne("t", "2")
	c.quiet()
	b.admin(api.PauseChannel{Topic: "t", Channel: "ch"})
	require.Equal(t, "2", c.message().body)
}

// CLS answers CLOSE_WAIT; the client may still finish and publish, RDY is ignored.
func TestClose(t *testing.T) {
	b := newBroker(t)
	b.dial().publish("t", "1", "2")
	c := b.dial()
	c.subscribe("t", "ch", "1")
	m := c.message()
	c.send("CLS\n")
	c.response("CLOSE_WAIT")
	c.send("RDY 5\nRDY x\nTOUCH " + m.id + "\nFIN " + m.id + "\nNOP\n")
	c.quiet()
	c.send("CLS\n")
	c.fatal("E_INVALID cannot CLS in current state")
}

func TestDeletedChannelClosesConsumers(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.subscribe("t", "ch", "1")
	b.admin(api.DeleteChannel{Topic: "t", Channel: "ch"})
	c.closed()
}

func TestMaxChannelConsumers(t *testing.T) {
	b := newBroker(t, func(s *setup) { s.options.MaxChannelConsumers = 1 })
	b.dial().subscribe("t", "ch", "1")
	c := b.dial()
	c.send("SUB t ch\n")
	c.fatal("E_SUB_FAILED SUB failed consumers for t:ch exceeds limit of 1")
}

func TestRequeueOnDisconnect(t *testing.T) {
	b := newBroker(t)
	b.publishOne("t", "m")
	gone := b.dial()
	gone.subscribe("t", "ch", "1")
	gone.message()
	require.NoError(t, gone.conn.Close())
	c := b.dial()
	c.subscribe("t", "ch", "1")
	require.Equal(t, "m", c.message().body)
}

// A connection that ends with an error is still read for a while. Its messages are requeued at once, not after that.
func TestRequeueOnErrorIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped)
		b.publishOne("t", "m")
		bad := b.dial()
		bad.subscribe("t", "ch", "1")
		bad.message()
		c := b.dial()
		c.subscribe("t", "ch", "1")
		bad.send("FOO\n")
		began := time.Now()
		bad.error("E_INVALID invalid command FOO")
		require.Equal(t, "m", c.message().body)
		require.Zero(t, time.Since(began))
		bad.closed()
		require.Equal(t, time.Second, time.Since(began)) // lingerTime
	})
}

// A planned stop of the broker does not count as an attempt of its messages.
func TestStopDoesNotCountAsAnAttempt(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.subscribe("t", "ch", "1")
	b.publishOne("t", "m")
	require.EqualValues(t, 1, c.message().attempts)
	b.handler.Stop(t.Context())
	sub, err := b.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "ch", Partition: -1})
	require.NoError(t, err)
	got := sub.Pull(1, nil)
	require.Len(t, got, 1)
	require.EqualValues(t, 1, got[0].Message.Attempts)
	sub.Close(true)
}

func TestSampling(t *testing.T) {
	const n, rate = 10000, 42
	b := newBroker(t)
	p := b.dial()
	for range n / 100 {
		bodies := make([]string, 100)
		for i := range bodies {
			bodies[i] = "m"
		}
		p.send("MPUB t\n" + multi(bodies...))
		p.response("OK")
	}
	c := b.dial()
	require.Contains(t, c.identify(`{"feature_negotiation":true,"sample_rate":42}`), `"sample_rate":42,`)
	c.subscribe("t", "ch", "2500")
	got := 0
	read := make(chan struct{})
	go func() { // ends when the connection is closed
		defer close(read)
		for f, err := c.next(); err == nil; f, err = c.next() {
			got++
			_, _ = io.WriteString(c.conn, "FIN "+f.data[10:26]+"\n")
		}
	}()
	wait.Until(t, func() bool {
		stats := b.cluster.Topics("t", "ch", false)[0].Channels[0]
		return stats.Depth == 0 && stats.InFlightCount == 0
	}, "the channel is drained")
	require.NoError(t, c.conn.Close())
	<-read
	require.InDelta(t, n*(rate+1)/100, got, n*5/100)
}

// The broker applies an output buffer timeout that the client has requested; the stock default delays nothing.
func TestOutputBuffering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped)
		c := b.dial()
		reply := c.identify(`{"feature_negotiation":true,"output_buffer_size":65536,"output_buffer_timeout":300}`)
		require.Contains(t, reply, `"output_buffer_size":65536,"output_buffer_timeout":300,`)
		c.subscribe("t", "ch", "10")
		c.quiet()
		start := time.Now()
		b.publishOne("t", "m")
		c.message()
		require.Equal(t, 300*time.Millisecond, time.Since(start))

		usual := b.dial()
		usual.identify(`{"feature_negotiation":true,"output_buffer_timeout":250}`)
		usual.subscribe("u", "ch", "10")
		usual.quiet()
		start = time.Now()
		b.publishOne("u", "m")
		usual.message()
		require.Zero(t, time.Since(start))

		// An ordered channel has nothing else for the buffer: its next message follows the finish of this one.
		ordered := b.dial()
		ordered.identify(`{"feature_negotiation":true,"output_buffer_timeout":300}`)
		ordered.send("SUB_ORDERED o ch\nRDY 10\n")
		ordered.response("OK")
		ordered.quiet()
		start = time.Now()
		b.publishOne("o", "m")
		ordered.next()
		require.Zero(t, time.Since(start))
	})
}

// A burst to a large window arrives whole and in order while the client finishes in bursts too.
func TestBacklogInOrder(t *testing.T) {
	const n = 5000
	b := newBroker(t)
	p := b.dial()
	for i := range n / 100 {
		bodies := make([]string, 100)
		for j := range bodies {
			bodies[j] = fmt.Sprint(i*100 + j)
		}
		p.send("MPUB t\n" + multi(bodies...))
		p.response("OK")
	}
	c := b.dial()
	c.subscribe("t", "ch", "100")
	for i := range n {
		m := c.message()
		require.Equal(t, fmt.Sprint(i), m.body)
		c.send("FIN " + m.id + "\n")
	}
}
