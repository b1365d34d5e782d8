package httpapi

import (
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Options are what the API reports and enforces.
type Options struct {
	Version          string
	NodeName         string
	NodeID           int64  // --node-id
	Durability       string // "sync" or "replicated"
	BroadcastAddress string
	Hostname         string
	TCPPort          int // listening ports; -1 for a unix socket
	HTTPPort         int
	HTTPSPort        int // told to clients that must use TLS
	StartTime        time.Time

	MaxMsgSize      int64         // bytes
	MaxBodySize     int64         // bytes
	MaxDeferTimeout time.Duration // of ?defer=

	MaxHeartbeatInterval   time.Duration
	MaxOutputBufferSize    int64
	MaxOutputBufferTimeout time.Duration
	MaxDeflateLevel        int

	TopologyZone, TopologyRegion string
}

// Config reads and changes options at run time, by their names in the
// configuration file.
type Config interface {
	// Get returns an option's value; ok is false if there is none of the name.
	Get(name string) (value any, ok bool)
	// SetLookupdAddresses reconnects to these nsqlookupds.
	SetLookupdAddresses(addresses []string) error
	// SetLogLevel takes debug, info, warn, error or fatal.
	SetLogLevel(level string) error
}

// Route is one more endpoint, served as it is.
type Route struct {
	Method, Path string
	Handler      http.Handler
}

// Backend is what the API works on.
type Backend struct {
	Publisher edge.Publisher
	Stats     edge.Stats
	Admin     edge.Admin
	Channels  edge.Channels // nil = delayed and dead messages cannot be asked for
	Directory edge.Directory
	Producers func() []edge.ClientStats // connections that publish; nil = none
	Config    Config                    // nil = no option is known
	Metrics   http.Handler              // GET /metrics; nil = 404
	Routes    []Route
	Log       logrus.FieldLogger
}

// api is the state of the handlers; it never changes.
type api struct {
	opts Options
	b    Backend
}
