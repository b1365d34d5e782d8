package tcp_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func (b *broker) admin(op api.Operation) {
	b.t.Helper()
	require.NoError(b.t, b.cluster.Do(b.t.Context(), op))
}

// holds waits until the cluster keeps the answers of n puts back.
func (b *broker) holds(n int) {
	b.t.Helper()
	wait.Until(b.t, func() bool { return b.cluster.Held() == n }, "%d puts are submitted", n)
}

func TestSizeLimits(t *testing.T) {
	b := newBroker(t, small)
	c := b.dial()
	c.publish("t", repeat("x", 95), repeat("x", 100))
	c.send("MPUB t\n" + multi(repeat("x", 100), repeat("y", 100)))
	c.response("OK")
	require.Equal(t, []int{1, 1, 2}, b.cluster.Puts())
}

func TestExtraParametersAreIgnored(t *testing.T) {
	c := newBroker(t).dial()
	c.send("PUB t x y\r\n" + sized("1") + "MPUB t x\n" + multi("2") + "DPUB t 0 x\n" + sized("3") + "NOP x\n")
	for range 3 {
		c.response("OK")
	}
	c.send("SUB t ch x y\n")
	c.response("OK")
	c.send("RDY 3 x\n")
	require.Equal(t, "1", c.message().body)
	require.Equal(t, "2", c.message().body)
	require.Equal(t, "3", c.message().body)
}

// Pipelined PUBs of one topic become one put, each with its own OK. No message is lost or
// reordered at the borders of runs.
func TestPipelinedPutsAreGathered(t *testing.T) {
	const n = 3000
	b := newBroker(t)
	c := b.dial()
	var s strings.Builder
	for i := range n {
		topic := "t"
		if i%1000 == 999 {
			topic = "other"
		}
		fmt.Fprintf(&s, "PUB %s\n%s", topic, sized(fmt.Sprint(i)))
	}
	c.send(s.String())
	for range n {
		c.response("OK")
	}
	puts := b.cluster.Puts()
	total := 0
	for _, count := range puts {
		require.LessOrEqual(t, count, 256)
		total += count
	}
	require.Equal(t, n, total)
	require.Less(t, len(puts), n/4, "many messages in one put")
	c.subscribe("t", "ch", "2500")
	for i := range n {
		if i%1000 == 999 {
			continue
		}
		m := c.message()
		require.Equal(t, fmt.Sprint(i), m.body)
		c.send("FIN " + m.id + "\n")
	}
}

// A run of which a part is stored is answered message by message, an MPUB as a whole.
func TestGatheredPutsHaveTheirOwnFates(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	b.cluster.FailPuts(&api.EachError{Whole: outcome.ErrInDoubt, Each: []error{nil, outcome.ErrTopicFull, nil}})
	c.send(strings.Repeat("PUB t\n"+sized("x"), 3) + "MPUB t\n" + multi("1", "2", "3"))
	c.response("OK")
	c.error("E_PUB_FAILED PUB failed topic is full, not stored")
	c.response("OK")
	c.error("E_MPUB_FAILED MPUB failed in doubt, may be stored")
	require.Equal(t, []int{3, 3}, b.cluster.Puts())
}

// A bad PUB behind good ones in one buffer is refused alone.
func TestRunStopsAtABadPut(t *testing.T) {
	b := newBroker(t, small)
	c := b.dial()
	c.send("PUB t\n" + sized("1") + "PUB t\n" + sized("2") + "PUB t\n" + sized(repeat("x", 101)))
	c.response("OK")
	c.response("OK")
	c.fatal("E_BAD_MESSAGE PUB message too big 101 > 100")
}

// Answers keep the order of the commands although the puts complete in another order; the
// reader does not wait for them.
func TestAnswersKeepTheOrder(t *testing.T) {
	b := newBroker(t)
	b.cluster.Hold()
	c := b.dial()
	c.send("PUB a\n" + sized("1") + "MPUB b\n" + multi("2", "3") + "DPUB a 0\n" + sized("4"))
	b.holds(3)
	b.cluster.FailPuts(outcome.ErrRolledBack)
	c.send("PUB a\n" + sized("5") + "X\n")
	b.holds(4)
	b.cluster.Release()
	c.response("OK")
	c.response("OK")
	c.response("OK")
	c.error("E_PUB_FAILED PUB failed rolled back, not stored")
	c.fatal("E_INVALID invalid command X")
}

func TestFailedPutsLeaveTheConnectionOpen(t *testing.T) {
	for _, row := range outcome.Rows() {
		err := row.Err
		if row.Uses&outcome.OfPuts == 0 {
			continue
		}
		for _, how := range []string{"admission", "fate"} {
			t.Run(how+" "+err.Error(), func(t *testing.T) {
				b := newBroker(t)
				if how == "fate" {
					b.cluster.FailPuts(err)
				} else {
					b.cluster.FailAdmit(err)
				}
				c := b.dial()
				c.send("PUB t\n" + sized("1") + "PUB t\n" + sized("2") + "MPUB t\n" + multi("3") + "DPUB t 5\n" + sized("4"))
				c.error("E_PUB_FAILED PUB failed " + err.Error())
				c.error("E_PUB_FAILED PUB failed " + err.Error())
				c.error("E_MPUB_FAILED MPUB failed " + err.Error())
				c.error("E_DPUB_FAILED DPUB failed " + err.Error())
				b.cluster.FailPuts(nil)
				b.cluster.FailAdmit(nil)
				c.publish("t", "5")
			})
		}
	}
}

// Above the limit of unanswered puts the broker does not read the client until some of them are answered.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped, func(s *setup) { s.options.MaxPendingBytes = 10_000 })
		b.cluster.Hold()
		c := b.dial()
		go func() {
			for range 8 {
				_, _ = io.WriteString(c.conn, "MPUB t\n"+multi(repeat("x", 4000)))
			}
		}()
		synctest.Wait()
		require.Equal(t, 3, b.cluster.Held(), "puts up to the limit")
		b.cluster.Release()
		for range 8 {
			c.response("OK")
		}
	})
}

// A client that closes its sending half still gets all its answers.
func TestHalfClose(t *testing.T) {
	b := newBroker(t)
	b.cluster.Hold()
	c := b.dial()
	c.send("PUB t\n" + sized("1"))
	require.NoError(t, c.conn.(interface{ CloseWrite() error }).CloseWrite())
	b.holds(1)
	b.cluster.Release()
	c.response("OK")
	c.closed()
}

func TestStop(t *testing.T) {
	for _, agent := range []string{"go-nsq/1.1.0", "lockstep-go/1"} {
		t.Run(agent, func(t *testing.T) { stop(t, agent) })
	}
}

// stop stops the handler with a producer and a consumer that understands CLOSE_WAIT.
func stop(t *testing.T, agent string) {
	b := newBroker(t)
	b.cluster.Hold()
	producer, consumer := b.dial(), b.dial()
	producer.send("PUB t\n" + sized("1"))
	consumer.identify(`{"user_agent":"` + agent + `"}`)
	consumer.subscribe("u", "ch", "1")
	b.holds(1)
	done := make(chan struct{})
	go func() { defer close(done); b.handler.Stop(t.Context()) }()
	consumer.response("CLOSE_WAIT")
	require.NoError(t, consumer.conn.Close())
	b.cluster.Release()
	producer.response("OK")
	producer.closed()
	<-done
	c := b.dial()
	_, err := c.next()
	require.Error(t, err, "no new clients")
}

func TestProducers(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.identify(`{"client_id":"id","hostname":"h","user_agent":"ua"}`)
	require.Empty(t, b.handler.Producers())
	c.publish("t", "1", "2")
	c.publish("second", "3")
	p := b.handler.Producers()
	require.Len(t, p, 1)
	require.Equal(t, []api.PubCount{{Topic: "t", Count: 2}}, p[0].PubCounts)
	require.Equal(t, []string{"id", "h", "ua", "V2"}, []string{p[0].ClientID, p[0].Hostname, p[0].UserAgent, p[0].Version})

	for range 2 {
		b.dial().subscribe("t", "c", "0")
	}
	for range 3 {
		b.dial().identify("{}")
	}
	consumers, producers, idle := b.handler.Clients()
	require.Equal(t, []int{2, 1, 3}, []int{consumers, producers, idle})
	require.Len(t, b.handler.Consumers("t", "c"), 2)
	require.Empty(t, b.handler.Consumers("t", "d"))
}

// A partial put at the end of a connection creates no topic, as with a stock nsqd.
func TestHalfAPutMakesNoTopic(t *testing.T) {
	long := repeat("x", 200_000) // longer than a connection's buffer
	for name, half := range map[string]string{
		"PUB": "PUB t\n" + sized("whole")[:6], "PUB without a body": "PUB t\n" + sized("whole")[:4],
		"long PUB": "PUB t\n" + sized(long)[:150_000],
		"DPUB":     "DPUB t 0\n" + sized("whole")[:6], "MPUB": "MPUB t\n" + multi("one", "two")[:12],
		"PUB_EXT": "PUB_EXT t\n" + sized("\x00\x00whole")[:7], "PUB_TRACE": "PUB_TRACE t\n" + sized("12345678whole")[:14],
		"MPUB_EXT": "MPUB_EXT t\n" + multi("\x00\x00one", "\x00\x00two")[:12],
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			c := b.dial()
			c.publish("other", "x") // the broker has read the first connection by now
			c.send(half)
			require.NoError(t, c.conn.(*net.TCPConn).CloseWrite())
			_, _ = io.Copy(io.Discard, c.r) // until the broker has ended it
			require.Equal(t, []string{"other"}, b.cluster.Directory().Topics())
		})
	}
}
