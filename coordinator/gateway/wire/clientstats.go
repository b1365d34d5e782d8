package wire

import "github.com/lockstepmq/lockstep/internal/api"

// ClientStats is an api.ClientStats: the connection behind a stream.
// On the wire, by place: append only.
type ClientStats struct {
	ClientID                      string
	Hostname                      string
	Version                       string
	RemoteAddress                 string
	State                         int32
	ReadyCount                    int64
	InFlightCount                 int64
	MessageCount                  uint64
	ZoneLocalMsgCount             uint64
	RegionLocalMsgCount           uint64
	GlobalMsgCount                uint64
	FinishCount                   uint64
	RequeueCount                  uint64
	ConnectTime                   int64
	SampleRate                    int32
	Deflate                       bool
	Snappy                        bool
	UserAgent                     string
	Authed                        bool
	AuthIdentity                  string
	AuthIdentityURL               string
	TopologyZone                  string
	TopologyRegion                string
	PubCounts                     []PubCount
	TLS                           bool
	TLSCipherSuite                string
	TLSVersion                    string
	TLSNegotiatedProtocol         string
	TLSNegotiatedProtocolIsMutual bool
}

// PubCount is an api.PubCount.
// On the wire, by place: append only.
type PubCount struct {
	Topic string
	Count uint64
}

// ClientStatsOf returns the wire form of c. It leaves out Relayed and Edge, which the leader sets.
func ClientStatsOf(c api.ClientStats) ClientStats {
	out := ClientStats{
		ClientID:                      c.ClientID,
		Hostname:                      c.Hostname,
		Version:                       c.Version,
		RemoteAddress:                 c.RemoteAddress,
		State:                         c.State,
		ReadyCount:                    c.ReadyCount,
		InFlightCount:                 c.InFlightCount,
		MessageCount:                  c.MessageCount,
		ZoneLocalMsgCount:             c.ZoneLocalMsgCount,
		RegionLocalMsgCount:           c.RegionLocalMsgCount,
		GlobalMsgCount:                c.GlobalMsgCount,
		FinishCount:                   c.FinishCount,
		RequeueCount:                  c.RequeueCount,
		ConnectTime:                   c.ConnectTime,
		SampleRate:                    c.SampleRate,
		Deflate:                       c.Deflate,
		Snappy:                        c.Snappy,
		UserAgent:                     c.UserAgent,
		Authed:                        c.Authed,
		AuthIdentity:                  c.AuthIdentity,
		AuthIdentityURL:               c.AuthIdentityURL,
		TopologyZone:                  c.TopologyZone,
		TopologyRegion:                c.TopologyRegion,
		TLS:                           c.TLS,
		TLSCipherSuite:                c.TLSCipherSuite,
		TLSVersion:                    c.TLSVersion,
		TLSNegotiatedProtocol:         c.TLSNegotiatedProtocol,
		TLSNegotiatedProtocolIsMutual: c.TLSNegotiatedProtocolIsMutual,
	}
	for _, p := range c.PubCounts {
		out.PubCounts = append(out.PubCounts, PubCount(p))
	}
	return out
}

// Edge returns the value as internal/api has it.
func (c ClientStats) Edge() api.ClientStats {
	out := api.ClientStats{
		ClientID:                      c.ClientID,
		Hostname:                      c.Hostname,
		Version:                       c.Version,
		RemoteAddress:                 c.RemoteAddress,
		State:                         c.State,
		ReadyCount:                    c.ReadyCount,
		InFlightCount:                 c.InFlightCount,
		MessageCount:                  c.MessageCount,
		ZoneLocalMsgCount:             c.ZoneLocalMsgCount,
		RegionLocalMsgCount:           c.RegionLocalMsgCount,
		GlobalMsgCount:                c.GlobalMsgCount,
		FinishCount:                   c.FinishCount,
		RequeueCount:                  c.RequeueCount,
		ConnectTime:                   c.ConnectTime,
		SampleRate:                    c.SampleRate,
		Deflate:                       c.Deflate,
		Snappy:                        c.Snappy,
		UserAgent:                     c.UserAgent,
		Authed:                        c.Authed,
		AuthIdentity:                  c.AuthIdentity,
		AuthIdentityURL:               c.AuthIdentityURL,
		TopologyZone:                  c.TopologyZone,
		TopologyRegion:                c.TopologyRegion,
		TLS:                           c.TLS,
		TLSCipherSuite:                c.TLSCipherSuite,
		TLSVersion:                    c.TLSVersion,
		TLSNegotiatedProtocol:         c.TLSNegotiatedProtocol,
		TLSNegotiatedProtocolIsMutual: c.TLSNegotiatedProtocolIsMutual,
	}
	for _, p := range c.PubCounts {
		out.PubCounts = append(out.PubCounts, api.PubCount(p))
	}
	return out
}
