package tcp

import (
	"crypto/tls"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
)

// stockOutputBufferTimeout is the output buffer timeout of a stock client and server without
// configuration. output.go says how this broker uses it.
const stockOutputBufferTimeout = 250 * time.Millisecond

// maxClientTimeout is NSQ's fixed client timeout; the default heartbeat interval is half of it.
const maxClientTimeout = 60 * time.Second

// Options are the limits and features of the protocol.
type Options struct {
	Version string // in the IDENTIFY reply; clients parse it as semver

	config.Messages
	config.Connection

	TLS         *tls.Config        // nil = no TLS
	TLSRequired config.TLSRequired // whether commands other than IDENTIFY require TLS

	TopologyRegion, TopologyZone string

	// MaxPerUser bounds the connections of one user. 0: no limit.
	MaxPerUser int

	// A connection with more unanswered puts or bytes is not read until some of them are answered.
	MaxPendingAnswers int
	MaxPendingBytes   int
}

// DefaultOptions returns the options of a broker without settings.
func DefaultOptions() Options {
	d := config.Defaults()
	return Options{
		Version: api.Version, Messages: d.Messages, Connection: d.Connection, TLSRequired: d.TLSRequired,
		MaxPendingAnswers: 16384, MaxPendingBytes: 8 << 20,
	}
}
