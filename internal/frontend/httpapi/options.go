package httpapi

import (
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// Options holds the values that the API reports and the limits that it enforces.
type Options struct {
	Version          string // of NSQ; clients parse it
	LockstepVersion  string
	Commit           string
	FeatureLevel     int // of the build
	NodeName         string
	NodeID           int64  // --node-id
	Durability       string // "sync" or "replicated"
	BroadcastAddress string
	Hostname         string
	TCPPort          int // listening ports; -1 for a unix socket
	HTTPPort         int
	HTTPSPort        int // for clients that must use TLS
	StartTime        time.Time

	config.Messages
	config.Connection

	TopologyZone, TopologyRegion string
}

// settings reads and changes options at run time, by their names in the configuration file.
type settings interface {
	// Get returns an option's value; ok is false if no option has the name.
	Get(name string) (value any, ok bool)
	// SetLookupdAddresses replaces the addresses of the nsqlookupds.
	SetLookupdAddresses(addresses []string) error
	// SetLogLevel accepts debug, info, warn, error or fatal.
	SetLogLevel(level string) error
}

// Backend is the broker as the API needs it.
type Backend struct {
	Publisher api.Publisher
	Stats     api.Stats
	Admin     api.Admin
	Planner   api.Planner  // nil = no endpoints for plans
	Channels  api.Channels // nil = no endpoints for deferred messages and dead letters
	Directory api.Directory
	Inspector api.Inspector            // nil = no endpoints for the content of replicas
	Recovery  api.Recovery             // nil = no unclean recovery
	Tracer    api.Tracer               // nil = no endpoint for the state of a message
	Consumers *consume.Sessions        // nil = no endpoints for consumers
	Producers func() []api.ClientStats // connections that publish; nil = none
	Config    settings                 // nil = no options
	Metrics   http.Handler             // GET /metrics; nil = 404
	Page      http.Handler             // the files of the console, below /ui; nil = 404
	Users     *access.Registry         // nil = users cannot be administered
	Admission *admission.Registry      // nil = no broker is invited
	Guard     *guard.Guard             // nil = everybody may do everything
	Memory    *limits.Budget           // for what clients make the broker hold; nil = no limit
	Recorder  *metrics.Recorder        // nil = refusals are not counted
	Console   *console.Console         // nil = no endpoints of the page for operators
	Browsers  *guard.Browsers          // nil = pages of any origin may do what their user may
	Log       logrus.FieldLogger
}

// endpoints is the state of the handlers. It is immutable.
type endpoints struct {
	opts Options
	b    Backend
}
