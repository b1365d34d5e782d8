package tcp

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
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
