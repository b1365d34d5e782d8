package tcp

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/test/testkit/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// ClosedGuard is the guard of a broker with one administrator. The name is long, so that no
// mutation finds it and has a secret hashed.
func ClosedGuard(t testing.TB) *guard.Guard {
	store, log := metadatatest.NewMemory(), logrus.New()
	log.SetOutput(io.Discard)
	users := access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { users.Watch(ctx, store) })
	t.Cleanup(func() {
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	wait.Until(t, func() bool { return users.Policy() != nil }, "the users are read")
	_, err := users.Create(t.Context(), access.NewUser{Name: "an-administrator-with-a-long-name", Admin: true})
	require.NoError(t, err)
	return guard.New(guard.Options{Users: users, Log: log})
}

// TestStopEndsTheNextRead: a stop or a lost right ends the connection, although the reader sets another deadline for its next command.
func TestStopEndsTheNextRead(t *testing.T) {
	g := ClosedGuard(t)
	for what, end := range map[string]func(c *conn){
		"a stop":       func(c *conn) { c.stopping.Store(true) },
		"a lost right": func(c *conn) { c.revoked.Store(true) },
	} {
		for _, settled := range []bool{false, true} {
			c, client := unstarted(t)
			c.h.backend.Guard, c.settled = g, settled
			_, err := client.Write([]byte("NOP\n"))
			require.NoError(t, err)
			end(c)
			c.arm()
			_, err = c.raw.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "%s, settled: %t", what, settled)
			require.NotEqual(t, settled, c.late)
		}
	}
}

// TestNoSeat: a client for which the listener has no seat may only log in.
func TestNoSeat(t *testing.T) {
	client, raw := tcp.Pair(t)
	require.NoError(t, client.SetDeadline(time.Now().Add(wait.Limit)))
	var served sync.WaitGroup
	ctx := api.WithSeat(t.Context(), func(bool) bool { return false })
	served.Go(func() { New(DefaultOptions(), Backend{}).Serve(ctx, raw) })
	_, err := io.WriteString(client, "  V2NOP\nPUB t\n\x00\x00\x00\x01x")
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	said, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Contains(t, string(said), errTooManyStrangers.Error())
	served.Wait()
}

// halfOpen records the end of the sending direction.
type halfOpen struct {
	net.Conn
	closed bool
}

func (h *halfOpen) CloseWrite() error { h.closed = true; return nil }

// TestDismiss: the client reads the end of the stream at once, while the broker still reads from it.
func TestDismiss(t *testing.T) {
	_, raw := tcp.Pair(t)
	half := &halfOpen{Conn: raw}
	newConn(New(DefaultOptions(), Backend{}), half).dismiss()
	require.True(t, half.closed)
}

// TestAnnouncedCloseEndsTheCredit: the client gets no message after CLOSE_WAIT.
func TestAnnouncedCloseEndsTheCredit(t *testing.T) {
	c, _ := unstarted(t)
	c.describe(func(a *about) { a.UserAgent = "go-nsq/1.1.0" })
	c.state.Store(stateSubscribed)
	c.ready.Store(5)
	require.True(t, c.announceClose())
	require.Zero(t, c.ready.Load())
	require.False(t, c.announceClose())
}

// TestUsersWithoutConnections: their counts take no memory.
func TestUsersWithoutConnections(t *testing.T) {
	c, _ := unstarted(t)
	require.True(t, c.h.seat(c, "a"))
	require.True(t, c.h.seat(c, "b"))
	require.Equal(t, map[string]int{"b": 1}, c.h.mu.users)
}
