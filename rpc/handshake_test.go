package rpc

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
)

// only changes the options of broker b.
func only(change func(*Options)) func(*Options) {
	return func(o *Options) {
		if o.Self.Node == "b" {
			change(o)
		}
	}
}

func TestHandshakeRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		reason string
	}{
		"another cluster": {func(o *Options) { o.Self.Cluster = "other" }, `cluster "`},
		"another token":   {func(o *Options) { o.Token = []byte("wrong") }, "cluster token differs"},
		"no token":        {func(o *Options) { o.Token = nil }, "cluster token differs"},
		"far version":     {func(o *Options) { o.Self.Version = Version + 2 }, "protocol version"},
		"another name":    {func(o *Options) { o.Self.Node = "c" }, `"c"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			token := func(o *Options) { o.Token = []byte("secret") }
			a, b := newBroker(t, "a", token), newBroker(t, "b", token, tt.change)
			introduce(a, b)
			for _, x := range []*broker{a, b} {
				require.Eventually(t, func() bool { return logged(x, tt.reason) }, patience, time.Millisecond)
				require.Empty(t, x.calls())
			}
			require.ErrorIs(t, a.Send("b", Frame{Class: ClassReplica}), ErrDown)
		})
	}
}

func TestNeighbouringVersionsWorkTogether(t *testing.T) {
	pair(t, only(func(o *Options) { o.Self.Version = Version + 1; o.Self.Features = 6 }))
}

func TestEqualTokens(t *testing.T) {
	pair(t, func(o *Options) { o.Token = []byte("secret") })
}

func TestOlderIncarnationIsRefused(t *testing.T) {
	a, b := pair(t, only(func(o *Options) { o.Self.Incarnation = 9 }))
	twin := newBroker(t, "b", func(o *Options) { o.Self.Incarnation = 4 })
	twin.SetPeers(map[ident.Node]string{"a": a.address})
	require.Eventually(t, func() bool { return logged(twin, "incarnation 4 is over, 9 is connected") }, patience, time.Millisecond)
	require.True(t, a.Up("b"))
	require.True(t, b.Up("a"))
}

// A port scanner, a broker of another kind, a slow loris: closed, not trusted.
func TestStrangersAreDropped(t *testing.T) {
	a := newBroker(t, "a", func(o *Options) { o.Times.Handshake = 50 * time.Millisecond })
	for _, say := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "  V2", "LF\x01\x06"} {
		nc, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		_, err = nc.Write([]byte(say))
		require.NoError(t, err)
		require.NoError(t, nc.SetReadDeadline(time.Now().Add(patience)))
		_, err = nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, nc.Close())
	}
	require.Empty(t, a.calls())
}

func TestMutualTLS(t *testing.T) {
	cfg := newMutualTLS(t)
	a, b := pair(t, func(o *Options) { o.TLS = cfg; o.Token = []byte("secret") })
	require.NoError(t, a.Send("b", Frame{ClassBulk, "h", [][]byte{[]byte("x"), make([]byte, 1<<20)}}))
	require.Len(t, b.waitFrames(1)[0].f.Payload, 1<<20+1)

	plain := newBroker(t, "c")
	plain.SetPeers(map[ident.Node]string{"a": a.address})
	stranger := newBroker(t, "d", func(o *Options) { o.TLS = newMutualTLS(t) })
	stranger.SetPeers(map[ident.Node]string{"a": a.address})
	require.Eventually(t, func() bool { return logged(stranger, "TLS") && logged(a, "TLS") }, patience, time.Millisecond)
	require.False(t, plain.Up("a") || stranger.Up("a"))
}

// newMutualTLS is of an authority of its own, and asks both sides for its certificate.
func newMutualTLS(t *testing.T) *tls.Config {
	t.Helper()
	ca := certs.New(t)
	ca.Issue("lockstep")
	return ca.Mutual("lockstep")
}
