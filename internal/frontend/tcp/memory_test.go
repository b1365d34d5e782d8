package tcp_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

const mib = 1 << 20

// from is a connection from an address.
type from struct {
	net.Conn
	host string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.host), Port: 4000} }

// sharing is a broker with a budget, whose clients come from several addresses.
func sharing(t *testing.T, size int64) (b *broker, memory *limits.Budget, refused func(string) int, dialFrom func(host string) *client) {
	with, refused := counted(metrics.New(0))
	memory = limits.New(size)
	host := "10.0.0.1"
	b = newBroker(t, piped, with, func(s *setup) {
		s.backend.Memory, s.wrap = memory, func(conn net.Conn) net.Conn { return from{conn, host} }
	})
	return b, memory, refused, func(from string) *client {
		host = from
		c := b.dial()
		synctest.Wait()
		return c
	}
}

// TestTricklingBodiesEnd: bodies of one client that trickle hold only its share, so that others publish at once; they
// end with a reason when they are below the least rate, and the connections of clients at a sane rate continue.
func TestTricklingBodiesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, memory, refused, dialFrom := sharing(t, 32*mib)
		body := repeat("m", mib)
		var slow []*client
		for range 140 {
			c := dialFrom("10.0.0.1")
			c.publish("t", "x") // the topic is there
			c.send("PUB t\n" + sized(body)[:10])
			slow = append(slow, c)
		}
		synctest.Wait()
		require.LessOrEqual(t, memory.Used(), int64(32*mib/3))
		require.GreaterOrEqual(t, memory.Used(), int64(32*mib/3-2*mib))
		other, began := dialFrom("10.0.0.2"), time.Now()
		other.publish("t", "x", body, body)
		require.Zero(t, time.Since(began), "nobody waits for the others")
		for i := range 5 {
			time.Sleep(time.Second)
			_, err := io.WriteString(slow[0].conn, body[i:i+1])
			require.NoError(t, err)
		}
		slow[0].error(fmt.Sprintf("E_BAD_MESSAGE PUB body arrives too slowly, not stored: 5 bytes in 10s, at least %d bytes a second are required after 10s", limits.MinRate))
		require.Equal(t, limits.Grace, time.Since(began).Round(time.Second))
		time.Sleep(time.Minute) // all others have had their turn, or were refused
		require.NotZero(t, refused("tcp_slow"))
		for _, c := range slow[1:] {
			_ = c.conn.Close()
		}
		synctest.Wait()
		require.Zero(t, memory.Used())

		sane := dialFrom("10.0.0.1")
		require.NoError(t, sane.conn.SetDeadline(time.Time{}))
		sane.identify(`{"heartbeat_interval":-1}`)
		text := sized(body)
		began = time.Now()
		sane.send("MPUB t\n" + sized("\x00\x00\x00\x01" + text)[:8])
		for ; len(text) > 0; time.Sleep(time.Second) {
			n := min(len(text), limits.MinRate+1000)
			sane.send(text[:n])
			text = text[n:]
		}
		sane.response("OK")
		require.Greater(t, time.Since(began), 30*time.Second)
		time.Sleep(time.Hour)
		sane.publish("t", repeat("m", 40<<10), repeat("m", 40<<10), "the connection continues")
		require.Zero(t, memory.Used())
	})
}

// TestUnreadAnswersShareMemory: clients that read no answers hold their share, whatever the answers are.
func TestUnreadAnswersShareMemory(t *testing.T) {
	for name, command := range map[string]string{
		"errors": "DPUB t 1000000000\n" + sized("x"), // out of range
		"FIN":    "FIN " + repeat("0", 16) + "\n",
		"puts":   "PUB t\n" + sized(repeat("x", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, memory, _, dialFrom := sharing(t, 12*mib)
				if name == "puts" {
					b.cluster.Hold()
				}
				var all []*client
				for i := range 50 {
					c := dialFrom("10.0.0.1")
					if name == "FIN" {
						c.subscribe("t", fmt.Sprint("c", i), "1")
					}
					all = append(all, c)
					go func() { _, _ = io.WriteString(c.conn, repeat(command, 2_000)) }() // until the test closes
				}
				synctest.Wait()
				require.LessOrEqual(t, memory.Used(), int64(4*mib))
				for _, c := range all {
					_ = c.conn.Close()
				}
				time.Sleep(time.Minute)
				b.cluster.Release()
				synctest.Wait()
				require.Zero(t, memory.Used(), "%d", memory.Held(limits.Answers))
			})
		})
	}
}

// TestUnreadMessagesShareMemory: consumers that do not read leave room for those of another address, also with a compressor
// each.
func TestUnreadMessagesShareMemory(t *testing.T) {
	for _, identify := range []string{`{}`, `{"feature_negotiation":true,"deflate":true}`} {
		synctest.Test(t, func(t *testing.T) {
			b, memory, _, dialFrom := sharing(t, 12*mib)
			_ = dialFrom("10.0.0.3")
			for i := range 20 {
				b.publishOne("t", repeat(fmt.Sprint(i%10), 200<<10))
			}
			var unread []*client
			for i := range 40 {
				c := dialFrom("10.0.0.1")
				if identify != `{}` {
					c.identify(identify)
					c.compress("deflate")
				}
				c.subscribe("t", fmt.Sprint("c", i%2), "100")
				unread = append(unread, c)
			}
			synctest.Wait()
			require.LessOrEqual(t, memory.Used(), int64(4*mib))
			other := dialFrom("10.0.0.2")
			other.subscribe("t", "other", "3")
			b.publishOne("t", repeat("m", 200<<10))
			require.Len(t, other.message().body, 200<<10)
			for _, c := range append(unread, other) {
				_ = c.conn.Close()
			}
			time.Sleep(2 * time.Minute)
			require.Zero(t, memory.Used())
		})
	}
}

// TestAnotherUpgradeGivesTheCompressorBack: a client that has not logged in repeats IDENTIFY. Each upgrade gives back the memory of
// the compressor before it.
func TestAnotherUpgradeGivesTheCompressorBack(t *testing.T) {
	for _, then := range []string{"deflate", "snappy"} {
		synctest.Test(t, func(t *testing.T) {
			_, memory, _, dialFrom := sharing(t, 100*mib)
			c := dialFrom("10.0.0.1")
			for _, how := range []string{"deflate", "deflate", then} {
				c.identify(`{"feature_negotiation":true,"` + how + `":true}`)
				c.w, c.r = c.conn, c.conn // the new stream takes the place of the old one
				c.compress(how)
			}
			_ = c.conn.Close()
			time.Sleep(time.Minute)
			require.Zero(t, memory.Used())
		})
	}
}
