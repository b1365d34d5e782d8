package tcp

import (
	"crypto/tls"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// StockOutputBufferTimeout is the output buffer timeout of a stock client and server without
// configuration. output.go says how this broker uses it.
const StockOutputBufferTimeout = 250 * time.Millisecond

// maxClientTimeout is NSQ's fixed client timeout; the default heartbeat interval is half of
// it.
const maxClientTimeout = 60 * time.Second

// TLSPolicy says whether commands other than IDENTIFY require TLS.
type TLSPolicy int

// The policies of --tls-required. /config shows the numbers.
const (
	TLSNotRequired        TLSPolicy = 0
	TLSRequiredExceptHTTP TLSPolicy = 1
	TLSRequired           TLSPolicy = 2
)

// Options are the limits and features of the protocol. DefaultOptions gives NSQ's defaults.
type Options struct {
	Version string // in the IDENTIFY reply; clients parse it as semver

	MaxMsgSize  int64 // bytes of one message
	MaxBodySize int64 // bytes of one MPUB's body; that of IDENTIFY and AUTH has maxLoginBody too

	MsgTimeout      time.Duration // default of IDENTIFY's msg_timeout
	MaxMsgTimeout   time.Duration
	MaxReqTimeout   time.Duration // limit of REQ, which is clamped
	MaxDeferTimeout time.Duration // limit of DPUB, which is refused; 0 = MaxReqTimeout

	MaxHeartbeatInterval time.Duration
	MaxRdyCount          int64
	MaxChannelConsumers  int // for the text of the refusal only; the channel enforces it

	MaxOutputBufferSize    int64
	MaxOutputBufferTimeout time.Duration
	MinOutputBufferTimeout time.Duration
	OutputBufferTimeout    time.Duration

	TLS         *tls.Config // nil = no TLS
	TLSRequired TLSPolicy
	Deflate     bool
	MaxDeflate  int // --max-deflate-level
	Snappy      bool

	TopologyRegion, TopologyZone string

	// RequeueOnDisconnect requeues the messages in flight as soon as their connection ends;
	// stock NSQ requeues them at their timeout.
	RequeueOnDisconnect bool

	// LoginTimeout bounds the wait for the protocol's magic, a TLS handshake, and, while rights
	// are enforced, the time until a client has rights (IDENTIFY and AUTH). 0: 10 s.
	LoginTimeout time.Duration
	// MaxPerUser bounds the connections of one user. 0: no limit.
	MaxPerUser int

	// A connection with more unanswered puts or bytes is not read until some of them are
	// answered.
	MaxPendingAnswers int
	MaxPendingBytes   int
}

// DefaultOptions returns the defaults of stock NSQ's flags.
func DefaultOptions() Options {
	return Options{
		Version:                api.Version,
		MaxMsgSize:             1 << 20,
		MaxBodySize:            5 << 20,
		MsgTimeout:             time.Minute,
		MaxMsgTimeout:          15 * time.Minute,
		MaxReqTimeout:          time.Hour,
		MaxHeartbeatInterval:   time.Minute,
		MaxRdyCount:            2500,
		MaxOutputBufferSize:    64 << 10,
		MaxOutputBufferTimeout: 30 * time.Second,
		MinOutputBufferTimeout: 25 * time.Millisecond,
		OutputBufferTimeout:    StockOutputBufferTimeout,
		Deflate:                true,
		MaxDeflate:             6,
		Snappy:                 true,
		RequeueOnDisconnect:    true,
		MaxPendingAnswers:      16384,
		MaxPendingBytes:        8 << 20,
	}
}

func (o *Options) maxDefer() time.Duration {
	if o.MaxDeferTimeout > 0 {
		return o.MaxDeferTimeout
	}
	return o.MaxReqTimeout
}
