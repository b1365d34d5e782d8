package rpc

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc/peertls"
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
				wait.Until(t, func() bool { return logged(x, tt.reason) }, "%s says %s", x.node, tt.reason)
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

// TestProofCoversTheConversation: a proof of another side, other hellos, another token or other boundaries differs.
func TestProofCoversTheConversation(t *testing.T) {
	seen := map[string]string{}
	for _, of := range [][4]string{
		{"token", "dialler", "hello a", "hello b"}, {"other", "dialler", "hello a", "hello b"}, {"token", "acceptor", "hello a", "hello b"},
		{"token", "dialler", "hello c", "hello b"}, {"token", "dialler", "hello a", "hello c"}, {"token", "dialler", "hello ah", "ello b"},
	} {
		proof, err := handshake{token: []byte(of[0])}.proof(of[1], []byte(of[2]), []byte(of[3]))
		require.NoError(t, err)
		require.Empty(t, seen[string(proof)], of)
		seen[string(proof)] = of[1]
	}
}

func TestOlderIncarnationIsRefused(t *testing.T) {
	a, b := pair(t, only(func(o *Options) { o.Self.Incarnation = 9 }))
	twin := newBroker(t, "b", func(o *Options) { o.Self.Incarnation = 4 })
	twin.SetPeers(map[ident.Node]string{"a": a.address})
	wait.Until(t, func() bool { return logged(twin, "incarnation 4 is over, 9 is connected") }, "the twin is refused")
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
		require.NoError(t, nc.SetReadDeadline(time.Now().Add(wait.Limit)))
		_, err = nc.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, nc.Close())
	}
	require.Empty(t, a.calls())
}

func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	a, b := pair(t, func(o *Options) { o.TLS = ca.identity(string(o.Self.Node)); o.Token = []byte("secret") })
	require.NoError(t, a.Send("b", Frame{ClassBulk, "h", [][]byte{[]byte("x"), make([]byte, 1<<20)}}))
	require.Len(t, b.waitFrames(1)[0].f.Payload, 1<<20+1)

	plain := newBroker(t, "c")
	plain.SetPeers(map[ident.Node]string{"a": a.address})
	stranger := newBroker(t, "d", func(o *Options) { o.TLS = newAuthority(t).identity("d") })
	stranger.SetPeers(map[ident.Node]string{"a": a.address})
	wait.Until(t, func() bool { return logged(stranger, "TLS") && logged(a, "TLS") }, "both are refused")
	require.False(t, plain.Up("a") || stranger.Up("a"))
}

// authority issues certificates of brokers.
type authority struct {
	*certs.Authority
	t *testing.T
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	return authority{certs.New(t), t}
}

// identity is that of the broker of this name.
func (a authority) identity(name string) Identity {
	a.t.Helper()
	a.Issue(name)
	return a.with(name)
}

// with is an identity with the certificate in this file.
func (a authority) with(file string) Identity {
	a.t.Helper()
	names, err := peertls.NewNames("")
	require.NoError(a.t, err)
	i, err := peertls.Load(peertls.Files{Cert: a.File(file + ".pem"), Key: a.File(file + ".key"), CA: a.File("ca.pem")}, names, nil)
	require.NoError(a.t, err)
	return i
}

// TestTheCertificateNamesTheBroker: neither side accepts a certificate of its authority that
// belongs to another broker, to no broker, or to a client; both log the certificate and the
// name that they expected.
func TestTheCertificateNamesTheBroker(t *testing.T) {
	for name, issue := range map[string]func(a authority){
		"another broker's":      func(a authority) { a.Issue("shown", "c") },
		"a service's":           func(a authority) { a.Issue("shown", "shop.example") },
		"a client's":            func(a authority) { a.IssueClient("shown") },
		"a client's with names": func(a authority) { a.IssueClient("shown", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			issue(ca)
			a := newBroker(t, "a", func(o *Options) { o.TLS = ca.identity("a") })
			b := newBroker(t, "b", func(o *Options) { o.TLS = ca.with("shown") })
			b.SetPeers(map[ident.Node]string{"a": a.address})
			a.SetPeers(map[ident.Node]string{"b": "127.0.0.1:1"}) // a accepts
			wait.Until(t, func() bool {
				return logged(a, peertls.ErrName.Error()) && logged(a, "shown") && logged(a, `"b"`) && logged(b, peertls.ErrName.Error())
			}, "both name the certificate")
			a.SetPeers(map[ident.Node]string{"b": b.address}) // a dials
			wait.Until(t, func() bool { return saidBy(a, "cannot connect to peer", "certificate") }, "a does not connect")
			require.False(t, a.Up("b"))
			require.Empty(t, a.calls())
			require.Empty(t, b.calls())
		})
	}
}

// TestTheDiallerChecksTheCertificate: a server that has a certificate for the address of a
// broker is not that broker.
func TestTheDiallerChecksTheCertificate(t *testing.T) {
	ca := newAuthority(t)
	ca.Issue("shown", "shop.example")
	a := newBroker(t, "a", func(o *Options) { o.TLS = ca.identity("a") })
	// b does not check, and does not dial.
	b := newBroker(t, "b", func(o *Options) { o.TLS = credulous{ca.with("shown")} })
	b.SetPeers(map[ident.Node]string{"a": "127.0.0.1:1"})
	a.SetPeers(map[ident.Node]string{"b": b.address})
	wait.Until(t, func() bool { return saidBy(a, "cannot connect to peer", `lacks the DNS name "b"`) }, "a does not connect")
	require.Empty(t, a.calls())
}

// saidBy reports whether a broker has logged a message with an error that has this text.
func saidBy(b *broker, message, text string) bool {
	for _, e := range b.logs.AllEntries() {
		if err, ok := e.Data[logrus.ErrorKey].(error); ok && e.Message == message && contains(err, text) {
			return true
		}
	}
	return false
}

// credulous is an identity that accepts any name.
type credulous struct{ Identity }

func (credulous) Check(*x509.Certificate, string) error { return nil }

// TestBrokersThatAreNotRegistered: incarnation 0, and one that is over by the metadata, are
// refused.
func TestBrokersThatAreNotRegistered(t *testing.T) {
	var registered atomic.Int64
	a := newBroker(t, "a", func(o *Options) {
		o.Registered = func(ident.Node) ident.Incarnation { return ident.Incarnation(registered.Load()) }
	})
	b := newBroker(t, "b", func(o *Options) { o.Self.Incarnation = 0 })
	introduce(a, b)
	wait.Until(t, func() bool { return logged(a, `broker "b" is not registered`) }, "incarnation 0 is refused")
	require.Empty(t, a.calls())
	registered.Store(8)
	b.SetIncarnation(7)
	wait.Until(t, func() bool { return logged(a, "incarnation 7 is over, 8 is registered") }, "incarnation 7 is refused")
	require.Empty(t, a.calls())
	b.SetIncarnation(8)
	a.waitPeer("b", 8, true, false)
	registered.Store(0)
	b.SetIncarnation(9) // the metadata of a is behind
	a.waitPeer("b", 9, true, false)
}

// TestAFloodKeepsNoBrokerOut: silent connections are displaced, and a broker gets in alongside
// them; those of brokers stay.
func TestAFloodKeepsNoBrokerOut(t *testing.T) {
	few := func(o *Options) {
		o.Connections = peertls.Limits{Admitted: 4, Waiting: 8}
	}
	a, b := pair(t, few)
	for range 200 {
		nc, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
	}
	wait.Until(t, func() bool { return a.Counters().Accepted.Displaced >= 150 }, "the flood displaces itself")
	require.LessOrEqual(t, a.Counters().Accepted.Waiting, 8)
	require.True(t, a.Up("b"))
	c := newBroker(t, "c")
	a.SetPeers(map[ident.Node]string{"b": b.address, "c": c.address})
	c.SetPeers(map[ident.Node]string{"a": a.address})
	waitUp(a, c)
	require.Equal(t, 2, a.Counters().Accepted.Admitted)
	require.NoError(t, a.Close())
	require.Equal(t, 0, a.Counters().Accepted.Waiting+a.Counters().Accepted.Admitted)
}

// TestAFloodOfBadHandshakesWritesFewLines: each of them gives another reason.
func TestAFloodOfBadHandshakesWritesFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.newBroker(t, "a")
		for i := range 500 {
			nc, err := f.dial(t.Context(), "a")
			require.NoError(t, err)
			header, err := Marshal(helloHeader{Hello{Cluster: fmt.Sprint("cluster", i), Node: "x", Incarnation: 1, Version: Version}, "a", make([]byte, nonceBytes), nil})
			require.NoError(t, err)
			_, err = nc.Write(appendPiece(nil, prelude{kind: kindHello}, header))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, nc) // until it is closed; it may be reset
			_ = err
			require.NoError(t, nc.Close())
		}
		require.NoError(t, a.Close())
		lines := 0
		for _, e := range a.logs.AllEntries() {
			if e.Message == "connection refused" {
				lines++
			}
		}
		require.Equal(t, 5, lines, "in one second")
		last := a.logs.LastEntry()
		require.Equal(t, 500-lines, last.Data["omitted"])
	})
}

// FuzzHandshake: whatever a stranger sends, a port without TLS answers with a hello at most,
// ends the handshake, and never admits it.
// TestTheDiallerChecksTheHello: it sends no proof to a broker that it may not work with, although that broker has no objection.
func TestTheDiallerChecksTheHello(t *testing.T) {
	self := Hello{Cluster: "c", Node: "n", Incarnation: 3, Version: Version}
	for what, peer := range map[string]Hello{
		"cluster":        {Cluster: "other", Node: "m", Incarnation: 3, Version: Version},
		"version":        {Cluster: "c", Node: "m", Incarnation: 3, Version: Version + 2},
		"not registered": {Cluster: "c", Node: "m", Version: Version},
		"dialled":        {Cluster: "c", Node: "o", Incarnation: 3, Version: Version},
	} {
		header, err := Marshal(helloHeader{peer, "", make([]byte, nonceBytes), nil})
		require.NoError(t, err)
		conn := &scripted{Reader: bytes.NewReader(appendPiece(nil, prelude{kind: kindHello}, header))}
		h := handshake{nc: conn, in: newFrameReader(conn), self: self, certified: func(ident.Node) error { return nil }}
		_, err = h.dial("m")
		require.ErrorIs(t, err, errRefused, what)
		require.ErrorContains(t, err, what)
	}
}

func FuzzHandshake(f *testing.F) {
	hello := func(h Hello, to ident.Node) []byte {
		header, _ := Marshal(helloHeader{h, to, make([]byte, nonceBytes), nil})
		return appendPiece(nil, prelude{kind: kindHello}, header)
	}
	valid := hello(Hello{Cluster: "c", Node: "n", Incarnation: 3, Version: Version}, "m")
	f.Add(valid, false)
	f.Add(append(valid, appendPiece(nil, prelude{kind: kindProof}, make([]byte, 32))...), true)
	f.Add(hello(Hello{Cluster: "other"}, ""), true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed {
			b = reseal(bytes.Clone(b))
		}
		conn := &scripted{Reader: bytes.NewReader(b)}
		in := newFrameReader(conn)
		in.limit = handshakeFrameBytes
		h := handshake{
			nc: conn, in: in, self: Hello{Cluster: "c", Node: "m", Incarnation: 1, Version: Version}, token: []byte("secret"),
			certified: func(ident.Node) error { return nil },
		}
		_, err := h.accept(func(Hello) error { t.Error("a stranger was admitted"); return nil })
		require.Error(t, err)
		require.LessOrEqual(t, conn.wrote, 2*handshakeFrameBytes)
	})
}

// scripted is a connection whose other side has sent all that it ever sends.
type scripted struct {
	net.Conn
	*bytes.Reader
	wrote int
}

func (s *scripted) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func (s *scripted) Write(b []byte) (int, error) { s.wrote += len(b); return len(b), nil }
