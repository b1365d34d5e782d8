package tcp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// counted gives the backend a recorder, and reads a value of refused_total from it.
func counted(r *metrics.Recorder) (with func(*setup), of func(limit string) int) {
	return func(s *setup) { s.backend.Metrics = r }, func(limit string) int {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			var n int
			if _, err := fmt.Sscanf(line, fmt.Sprintf("lockstep_refused_total{limit=%q} %%d", limit), &n); err == nil {
				return n
			}
		}
		return -1
	}
}

// TestMagicHasATime: a connection that does not choose the protocol is closed, with or without users.
func TestMagicHasATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, refused := counted(metrics.New(0))
		b := newBroker(t, with, func(s *setup) { s.pipe, s.options.LoginTimeout = true, 7*time.Second })
		began := time.Now()
		for _, sent := range []string{"", "  V"} {
			conn := b.connect()
			defer func() { _ = conn.Close() }()
			if sent != "" {
				_, err := io.WriteString(conn, sent)
				require.NoError(t, err)
			}
			_, err := conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		require.Equal(t, 14*time.Second, time.Since(began))
		require.Equal(t, 2, refused("tcp_magic"))
	})
}

// TestLoginHasATime: where rights are enforced, a client without any is closed in time, whatever it
// says. A client that has logged in, or whose IDENTIFY suffices, stays.
func TestLoginHasATime(t *testing.T) {
	synctest.Test(t, loginHasATime)
}

func loginHasATime(t *testing.T) {
	r, root, guarded := closed(t)
	with, refused := counted(metrics.New(0))
	const limit = 300 * time.Millisecond
	b := newBroker(t, piped, guarded, with, func(s *setup) { s.options.LoginTimeout = limit })
	const late = "E_AUTH_FIRST no login within 300ms"
	welcome := b.dial()
	welcome.send("AUTH\n" + sized(root))
	require.Contains(t, welcome.read().data, `"permission_count"`)
	began := time.Now()
	silent, chatty, half := b.dial(), b.dial(), b.dial()
	half.send("IDENTIFY\n\x00\x00\x10\x00{")
	chatty.identify(`{"feature_negotiation":true}`)
	go func() {
		for range 20 { // until the broker closes
			time.Sleep(limit / 10)
			if _, err := io.WriteString(chatty.conn, "NOP\n"); err != nil {
				return
			}
		}
	}()
	for _, c := range []*client{silent, chatty, half} {
		c.error(late)
	}
	require.Equal(t, limit, time.Since(began))
	silent.closed()
	half.closed()
	require.Equal(t, 3, refused("tcp_login"))
	time.Sleep(limit)
	welcome.publish("t", "still here")

	// A user without a right has logged in.
	token, err := r.Create(t.Context(), access.NewUser{Name: "idle"})
	require.NoError(t, err)
	idle := b.dial()
	idle.send("AUTH\n" + sized(token))
	require.Contains(t, idle.read().data, `"identity":"idle"`)
	time.Sleep(2 * limit)
	idle.send("PUB t\n" + sized("x"))
	require.Contains(t, idle.read().data, "E_UNAUTHORIZED")

	// A right of everybody needs no login.
	_, err = r.Create(t.Context(), access.NewUser{Name: access.AnonymousUser})
	require.NoError(t, err)
	require.NoError(t, r.Grant(t.Context(), access.AnonymousUser, "t", access.Publish))
	anonymous := b.dial()
	time.Sleep(2 * limit)
	anonymous.publish("t", "later")
}

// TestTheTimeOfALoginAfterTheStart: a client whose first command waited for the start of the broker has the whole time for its
// login from then on.
func TestTheTimeOfALoginAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5 * time.Second
		store := metadatatest.NewMemory()
		t.Cleanup(func() { _ = store.Close() })
		other, late := registry(), registry()
		watch(t, other, store)
		root, err := other.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
		require.NoError(t, err)
		serves := make(chan struct{})
		b := newBroker(t, piped, func(s *setup) {
			s.options.LoginTimeout = limit
			s.backend.Guard = guard.New(guard.Options{Users: late, Log: s.backend.Log})
			s.backend.Await = func(context.Context, time.Time) bool { <-serves; return true }
		})
		var clients sync.WaitGroup
		for _, logsIn := range []bool{true, false} {
			c := b.dial()
			clients.Go(func() {
				_, _ = io.WriteString(c.conn, "IDENTIFY\n"+sized(`{"feature_negotiation":true}`))
				require.Contains(t, c.read().data, `"auth_required":true`)
				began := time.Now()
				if !logsIn {
					c.error("E_AUTH_FIRST no login within 5s")
					require.Equal(t, limit, time.Since(began))
					return
				}
				time.Sleep(limit - time.Second)
				c.send("AUTH\n" + sized(root))
				require.Contains(t, c.read().data, `"permission_count"`)
			})
		}
		time.Sleep(2 * limit)
		watch(t, late, store)
		close(serves)
		clients.Wait()
	})
}

// TestNoUsersNoTime: without users a client may be silent as long as its heartbeat says.
func TestNoUsersNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(s *setup) { s.pipe = true })
		conn := b.connect()
		defer func() { _ = conn.Close() }()
		_, err := io.WriteString(conn, "  V2")
		require.NoError(t, err)
		began := time.Now()
		_, _ = io.Copy(io.Discard, conn)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// TestLoginBodies: IDENTIFY and AUTH are small, an announced length costs no memory, and names are cut.
func TestLoginBodies(t *testing.T) {
	with, refused := counted(metrics.New(0))
	b := newBroker(t, with)
	for _, verb := range []string{"IDENTIFY", "AUTH"} {
		c := b.dial()
		c.send(verb + "\n\x00\x01\x00\x01")
		c.fatal("E_BAD_BODY " + verb + " body too big 65537 > 65536")
	}
	require.Equal(t, 2, refused("tcp_size"))
	padded := b.dial()
	padded.identify(`{"padding":"` + repeat("x", 64<<10-20) + `"}`)

	long := repeat("ä", 1000)
	c := b.dial()
	c.identify(`{"client_id":"` + long + `","hostname":"x` + long + `","user_agent":"u"}`)
	c.publish("t", "x")
	producers := b.handler.Producers()
	require.Len(t, producers, 1)
	require.Equal(t, repeat("ä", 128), producers[0].ClientID)
	require.Equal(t, "x"+repeat("ä", 127), producers[0].Hostname)
	require.Equal(t, "u", producers[0].UserAgent)
}

// TestHalfAnIdentifyIsSmall: clients that announce a large IDENTIFY and send a part hold little
// more than they have sent.
func TestHalfAnIdentifyIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, piped)
		const clients = 200
		before := heap()
		for range clients {
			b.dial().send("IDENTIFY\n" + string(binary.BigEndian.AppendUint32(nil, 64<<10)) + repeat("x", 100))
		}
		synctest.Wait() // the bodies are being read
		require.Equal(t, clients, b.handler.Connections())
		each := (heap() - before) / clients
		t.Logf("%d bytes for each half an IDENTIFY", each)
		require.Less(t, each, 40<<10)
	})
}

func heap() int {
	runtime.GC()
	runtime.GC() // pools need two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

// TestIdleCompressedClientsAreSmall: the compressors are there while something is written.
func TestIdleCompressedClientsAreSmall(t *testing.T) {
	for _, how := range []string{"deflate", "snappy"} {
		t.Run(how, func(t *testing.T) {
			b := newBroker(t)
			const clients = 200
			before := heap()
			for range clients {
				c := b.dial()
				c.identify(`{"feature_negotiation":true,"` + how + `":true}`)
				c.r = unpack(how, c.r)
				c.response("OK")
				c.r, c.w = nil, nil // the client's own decompressor
			}
			each := (heap() - before) / clients
			t.Logf("%d bytes for each idle client", each)
			require.Less(t, each, 72<<10)
		})
	}
}

// TestConnectionsOfAUser: one user may have so many, and gets a seat again when one ends.
func TestConnectionsOfAUser(t *testing.T) {
	r, root, guarded := closed(t)
	other, err := r.Create(t.Context(), access.NewUser{Name: "other"})
	require.NoError(t, err)
	with, refused := counted(metrics.New(0))
	b := newBroker(t, guarded, with, func(s *setup) { s.options.MaxPerUser = 2 })
	login := func(token string) (*client, string) {
		c := b.dial()
		c.send("AUTH\n" + sized(token))
		return c, c.read().data
	}
	first, answer := login(root)
	require.Contains(t, answer, `"identity":"root"`)
	_, answer = login(root)
	require.Contains(t, answer, `"identity":"root"`)
	third, answer := login(root)
	require.Equal(t, "E_TOO_MANY_CONNECTIONS this user has reached its connection limit at this broker; try another one", answer)
	third.closed()
	_, answer = login(other)
	require.Contains(t, answer, `"identity":"other"`)
	require.Equal(t, 1, refused("tcp_user"))
	require.NoError(t, first.conn.Close())
	wait.Until(t, func() bool {
		c, answer := login(root)
		_ = c.conn.Close()
		return strings.Contains(answer, `"identity":"root"`)
	}, "a seat is free")
}

// TestRefuse: a client that is refused hears why, also if it has sent bytes.
func TestRefuse(t *testing.T) {
	b := newBroker(t)
	server, conn := b.pair()
	_, err := io.WriteString(conn, "  V2IDENTIFY\n")
	require.NoError(t, err)
	var refusing sync.WaitGroup
	refusing.Go(func() { b.handler.Refuse(context.Background(), server, "it is full") })
	c := &client{t: t, conn: conn, r: conn, w: conn}
	c.fatal("E_TOO_MANY_CONNECTIONS it is full")
	_ = conn.Close()
	refusing.Wait()
}

// TestLargeBodiesShareMemory: a body beyond the budget waits for the others, and is refused
// definitely when none of them ends. Small ones never wait.
func TestLargeBodiesShareMemory(t *testing.T) { synctest.Test(t, largeBodiesShareMemory) }

func largeBodiesShareMemory(t *testing.T) {
	const mib = 1 << 20
	with, refused := counted(metrics.New(0))
	bodies := limits.New(3 * mib / 2)
	b := newBroker(t, piped, with, func(s *setup) { s.backend.Memory = bodies })
	whole := sized(repeat("m", mib))
	slow := b.dial()
	slow.publish("t", "x") // the topic is there
	slow.send("PUB t\n" + whole[:1000])
	synctest.Wait()
	require.EqualValues(t, mib, bodies.Used(), "it is reserved")
	patient := b.dial()
	patient.send("PUB t\n")
	go func() { _, _ = io.WriteString(patient.conn, whole) }()
	b.dial().publish("t", repeat("s", limits.Free))
	synctest.Wait()
	puts := b.cluster.Puts()
	require.Len(t, puts, 2, "the patient one waits")
	slow.send(whole[1000:])
	slow.response("OK")
	patient.response("OK")
	synctest.Wait()
	require.Zero(t, bodies.Used())
	require.Zero(t, refused("tcp_memory"))

	// All forms of a put, while another one keeps the memory.
	other := bodies.Share("other")
	require.True(t, other.Reserve(t.Context(), limits.Bodies, mib))
	defer other.Release(limits.Bodies, mib)
	for _, test := range []struct{ command, verb string }{
		{"PUB t\n" + whole, "PUB"}, {"DPUB t 1\n" + whole, "DPUB"}, {"MPUB t\n" + multi(repeat("m", mib)), "MPUB"}, {"PUB_EXT t\n" + sized("\x00\x00"+repeat("m", mib-2)), "PUB"},
	} {
		c, began := b.dial(), time.Now()
		c.send(test.command)
		c.error("E_" + test.verb + "_FAILED " + test.verb + " failed too many puts waiting, not stored")
		require.Equal(t, limits.MaxWait, time.Since(began))
		c.publish("t", "the connection continues")
	}
}

// TestAnnouncedSizeHolds: the messages of an MPUB cannot be much larger than it has announced.
func TestAnnouncedSizeHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped).dial()
		body := binary.BigEndian.AppendUint32(nil, 2)
		body = append(body, sized(repeat("m", 60<<10))+sized(repeat("m", 60<<10))...)
		go func() { _, _ = io.WriteString(c.conn, "MPUB t\n\x00\x00\x00\x64"+string(body)) }() // until the broker closes
		c.fatal("E_BAD_BODY MPUB body larger than its size 100")
	})
}
