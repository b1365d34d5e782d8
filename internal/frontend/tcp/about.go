package tcp

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/api"
)

// about describes a client for /stats: the values of its IDENTIFY and the negotiated ones. It is immutable; the reader
// publishes a new one for each change.
type about struct {
	clientID, hostname, userAgent, remote string
	region, zone                          string
	sampleRate                            int32
	deflate, snappy, tls                  bool
	tlsState                              tls.ConnectionState
	auth                                  *known // nil before AUTH
}

// pubCount counts what a connection published to its first topic.
type pubCount struct {
	topic string // never changes
	count atomic.Uint64
}

func defaultAbout(raw net.Conn) *about {
	remote := raw.RemoteAddr().String()
	host, _, _ := net.SplitHostPort(remote) // a unix socket has none
	return &about{clientID: host, hostname: host, remote: remote}
}

// describe publishes a changed copy of the client's description.
func (c *conn) describe(change func(*about)) {
	next := *c.about.Load()
	change(&next)
	c.about.Store(&next)
}

// countPublished adds the messages of a put to c.topic to the counter in /stats. As in stock NSQ the counter covers
// only the first topic of a connection.
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
	a := c.about.Load()
	s := api.ClientStats{
		ClientID: a.clientID, Hostname: a.hostname, Version: "V2", RemoteAddress: a.remote,
		State: c.state.Load(), ReadyCount: c.ready.Load(),
		MessageCount: c.messages.Load(), FinishCount: c.finished.Load(), RequeueCount: c.requeued.Load(),
		ConnectTime: c.since.Unix(), SampleRate: a.sampleRate, Deflate: a.deflate, Snappy: a.snappy,
		UserAgent: a.userAgent, TopologyZone: a.zone, TopologyRegion: a.region, TLS: a.tls,
	}
	if sub := c.attached.Load(); sub != nil {
		s.InFlightCount = int64((*sub).InFlight())
	}
	if p := c.published.Load(); p != nil {
		s.PubCounts = []api.PubCount{{Topic: p.topic, Count: p.count.Load()}}
	}
	if a.auth != nil {
		s.Authed, s.AuthIdentity, s.AuthIdentityURL = true, a.auth.identity, a.auth.url
	}
	if a.tls {
		s.TLSCipherSuite = tls.CipherSuiteName(a.tlsState.CipherSuite)
		s.TLSVersion = tlsVersionName(a.tlsState.Version)
		s.TLSNegotiatedProtocol = a.tlsState.NegotiatedProtocol
		//lint:ignore SA1019 stock NSQ has the field
		s.TLSNegotiatedProtocolIsMutual = a.tlsState.NegotiatedProtocolIsMutual
	}
	return s
}

func tlsVersionName(v uint16) string {
	switch v {
	case tls.VersionTLS10:
		return "TLS1.0"
	case tls.VersionTLS11:
		return "TLS1.1"
	case tls.VersionTLS12:
		return "TLS1.2"
	case tls.VersionTLS13:
		return "TLS1.3"
	}
	return tls.VersionName(v)
}
