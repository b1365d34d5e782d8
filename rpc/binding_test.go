package rpc

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// middleman listens at an address of its own and passes everything on to a broker. With
// security it ends the dialler's TLS connection and begins another one: it has a valid
// certificate, as of another service of the same authority, and no cluster token.
func middleman(t *testing.T, to string, security *tls.Config) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var own sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	own.Go(func() { // ends with the listener
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			own.Go(func() { carry(ctx, near, to, security) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		own.Wait()
	})
	return l.Addr().String()
}

// carry ends with either side, or ctx.
func carry(ctx context.Context, near net.Conn, to string, security *tls.Config) {
	far, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		_ = near.Close()
		return
	}
	end := func() { _, _ = near.Close(), far.Close() }
	defer context.AfterFunc(ctx, end)()
	inner, outer := near, far
	if security != nil {
		inner, outer = tls.Server(near, security), tls.Client(far, security)
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(inner, outer)
		end()
	})
	_, _ = io.Copy(outer, inner)
	end()
	back.Wait()
}

// TestProofHoldsForOneTLSConnection: each broker finds the other through a middleman.
// The proof of the token is bound to its TLS connection, so it is worth nothing
// on the other: the brokers refuse each other. A middleman that leaves the TLS
// connection alone is none.
func TestProofHoldsForOneTLSConnection(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("broker", "a", "b")
	ca.Issue("other", "a", "b") // the names alone would let it in
	set := func(o *Options) { o.TLS, o.Token = authority{ca, t}.with("broker"), []byte("secret") }
	behind := func(security *tls.Config) (a, b *broker) {
		a, b = newBroker(t, "a", set), newBroker(t, "b", set)
		toA, toB := middleman(t, a.address, security), middleman(t, b.address, security)
		a.SetPeers(map[ident.Node]string{"b": toB})
		b.SetPeers(map[ident.Node]string{"a": toA})
		return a, b
	}
	t.Run("passed on as it is", func(t *testing.T) {
		a, b := behind(nil)
		waitUp(a, b)
	})
	t.Run("opened", func(t *testing.T) {
		a, b := behind(ca.Mutual("other"))
		for _, x := range []*broker{a, b} {
			wait.Until(t, func() bool { return logged(x, "cluster token differs") || len(x.calls()) > 0 }, "%s is refused", x.node)
			require.Empty(t, x.calls(), "the peer is up")
		}
		require.ErrorIs(t, a.Send("b", Frame{Class: ClassReplica}), ErrDown)
	})
}
