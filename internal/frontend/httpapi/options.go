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
	InfoReply
	StartTime time.Time
	config.Messages
	config.Connection
}

// InfoReply is the answer of /info, with durations in nanoseconds, as in NSQ. The fields after topology_region are not in NSQ. The
// API fills in the start time and the limits.
type InfoReply struct {
	Version                string `json:"version"` // of NSQ; clients parse it
	BroadcastAddress       string `json:"broadcast_address"`
	Hostname               string `json:"hostname"`
	HTTPPort               int    `json:"http_port"` // listening ports; -1 for a unix socket
	TCPPort                int    `json:"tcp_port"`
	StartTime              int64  `json:"start_time"`
	MaxHeartbeatInterval   int64  `json:"max_heartbeat_interval"`
	MaxOutputBufferSize    int64  `json:"max_output_buffer_size"`
	MaxOutputBufferTimeout int64  `json:"max_output_buffer_timeout"`
	MaxDeflateLevel        int    `json:"max_deflate_level"`
	TopologyZone           string `json:"topology_zone"`
	TopologyRegion         string `json:"topology_region"`
	NodeName               string `json:"node_name"`
	NodeID                 int64  `json:"node_id"`
	Durability             string `json:"durability"` // "sync" or "replicated"
	LockstepVersion        string `json:"lockstep_version"`
	Commit                 string `json:"commit"`
	FeatureLevel           int    `json:"feature_level"` // of the build
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

// Backend is the part of the broker that the API uses.
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
	Guard     *guard.Guard             // nil = every client may do everything
	Memory    *limits.Budget           // for the memory that clients make the broker hold; nil = no limit
	Recorder  *metrics.Recorder        // nil = refusals are not counted
	Console   *console.Console         // nil = no endpoints of the page for operators
	Browsers  *guard.Browsers          // nil = pages of any origin may do what their user may
	Log       logrus.FieldLogger
}

type endpoints struct {
	opts Options
	b    Backend
}
