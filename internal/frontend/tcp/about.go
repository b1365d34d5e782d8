package tcp

import (
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/api"
)

// about describes a client for /stats, without its counters. It is immutable; the reader publishes a new one for each
// change.
type about struct {
	api.ClientStats
	tlsState tls.ConnectionState
}

// pubCount counts what a connection published to its first topic.
type pubCount struct {
	topic string // never changes
	count atomic.Uint64
}

func defaultAbout(raw net.Conn) *about {
	remote := raw.RemoteAddr().String()
	host, _, _ := net.SplitHostPort(remote) // a unix socket has none
	return &about{ClientStats: api.ClientStats{ClientID: host, Hostname: host, RemoteAddress: remote, Version: "V2"}}
}

func (c *conn) describe(change func(*about)) {
	next := *c.about.Load()
	change(&next)
	c.about.Store(&next)
}

func (a *about) takeTLS(s tls.ConnectionState) {
	a.TLS, a.tlsState = true, s
	a.TLSCipherSuite, a.TLSNegotiatedProtocol = tls.CipherSuiteName(s.CipherSuite), s.NegotiatedProtocol
	a.TLSVersion = strings.ReplaceAll(tls.VersionName(s.Version), " ", "")
	//lint:ignore SA1019 stock NSQ has the field
	a.TLSNegotiatedProtocolIsMutual = s.NegotiatedProtocolIsMutual
}

// countPublished adds the messages of a put to c.topic to the counter in /stats. As in stock NSQ the counter covers only
// the first topic of a connection.
func (c *conn) countPublished(n int) {
	p := c.published.Load()
	if p == nil {
		p = &pubCount{topic: c.topic}
		c.published.Store(p)
	}
	if p.topic == c.topic {
		p.count.Add(uint64(n))
	}
}

// stats describes the connection for /stats. Any goroutine may call it.
func (c *conn) stats() api.ClientStats {
	s := c.about.Load().ClientStats
	s.State, s.ReadyCount, s.ConnectTime = c.state.Load(), c.ready.Load(), c.since.Unix()
	s.MessageCount, s.FinishCount, s.RequeueCount = c.messages.Load(), c.finished.Load(), c.requeued.Load()
	if sub := c.attached.Load(); sub != nil {
		s.InFlightCount = int64((*sub).InFlight())
	}
	if p := c.published.Load(); p != nil {
		s.PubCounts = []api.PubCount{{Topic: p.topic, Count: p.count.Load()}}
	}
	return s
}
