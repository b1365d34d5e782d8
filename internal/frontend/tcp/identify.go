package tcp

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// identity is the JSON body of IDENTIFY. Durations are in milliseconds.
type identity struct {
	ClientID            string    `json:"client_id"`
	Hostname            string    `json:"hostname"`
	UserAgent           string    `json:"user_agent"`
	FeatureNegotiation  bool      `json:"feature_negotiation"`
	HeartbeatInterval   int       `json:"heartbeat_interval"`
	OutputBufferSize    int       `json:"output_buffer_size"`
	OutputBufferTimeout int       `json:"output_buffer_timeout"`
	TLSv1               bool      `json:"tls_v1"`
	Deflate             bool      `json:"deflate"`
	DeflateLevel        int       `json:"deflate_level"`
	Snappy              bool      `json:"snappy"`
	SampleRate          int32     `json:"sample_rate"`
	MsgTimeout          int       `json:"msg_timeout"`
	TopologyRegion      string    `json:"topology_region"`
	TopologyZone        string    `json:"topology_zone"`
	ExtendSupport       bool      `json:"extend_support"` // of the replicated fork; see extended.go
	DesiredTag          string    `json:"desired_tag"`    // of the fork; see extended.go
	ExtFilter           extFilter `json:"ext_filter"`     // of the fork; see extended.go
	ProducerID          string    `json:"producer_id"`    // see header.go
}

// negotiated is the reply to IDENTIFY, in NSQ's key order. Durations are in milliseconds.
type negotiated struct {
	MaxRdyCount         int64  `json:"max_rdy_count"`
	Version             string `json:"version"`
	MaxMsgTimeout       int64  `json:"max_msg_timeout"`
	MsgTimeout          int64  `json:"msg_timeout"`
	TLSv1               bool   `json:"tls_v1"`
	Deflate             bool   `json:"deflate"`
	DeflateLevel        int    `json:"deflate_level"`
	MaxDeflateLevel     int    `json:"max_deflate_level"`
	Snappy              bool   `json:"snappy"`
	SampleRate          int32  `json:"sample_rate"`
	AuthRequired        bool   `json:"auth_required"`
	OutputBufferSize    int    `json:"output_buffer_size"`
	OutputBufferTimeout int64  `json:"output_buffer_timeout"`
	TopologyRegion      string `json:"topology_region"`
	TopologyZone        string `json:"topology_zone"`
	DesiredTag          string `json:"desired_tag,omitempty"` // of the fork
	ProducerID          string `json:"producer_id,omitempty"`
}

const (
	minHeartbeatMS      = 1000
	minOutputBuffer     = 64
	minMsgTimeoutMS     = 1000
	maxSampleRate       = 99
	defaultDeflateLevel = 6
)

// tuning has the effective values of all IDENTIFYs of a client.
type tuning struct {
	heartbeat     time.Duration // 0 = off
	outputSize    int
	outputTimeout time.Duration
	msgTimeout    time.Duration
	sampleRate    int32
}

// identify: IDENTIFY\n, then JSON. It waits until all earlier commands are answered: an upgrade changes the stream, and
// must not be mixed with answers.
func (c *conn) identify(ctx context.Context, verb string) error {
	if c.state.Load() != stateInit {
		return fatal(codeInvalid, "cannot IDENTIFY in current state")
	}
	body, err := c.readBody(verb)
	if err != nil {
		return err
	}
	var id identity
	if json.Unmarshal(body, &id) != nil {
		return fatal(codeBadBody, "IDENTIFY failed to decode JSON body")
	}
	filter, refused := id.filter()
	t, err := c.tune(&id)
	if err != nil {
		return err
	}
	if err := c.name(&id); err != nil {
		return err
	}
	reply, err := c.negotiate(&id, &t)
	if err != nil {
		return err
	}
	c.adopt(&id, &t)
	c.filter, c.noFilter = filter, refused
	if err := c.fifo.drained(ctx); err != nil {
		return err
	}
	if err := c.upgrade(ctx, &t, reply); err != nil {
		return fatal(codeIdentifyFailed, "IDENTIFY failed %s", err)
	}
	return nil
}

func (c *conn) readBody(verb string) ([]byte, error) {
	limit := min(c.h.opts.MaxBodySize, maxLoginBody)
	size, err := c.in.size()
	switch {
	case err != nil:
		return nil, fatal(codeBadBody, "%s failed to read body size", verb)
	case int64(size) > limit:
		c.h.backend.Metrics.Add(metrics.RefusedTCPSize, 1)
		return nil, fatal(codeBadBody, "%s body too big %d > %d", verb, size, limit)
	case size <= 0:
		return nil, fatal(codeBadBody, "%s invalid body size %d", verb, size)
	}
	var body []byte // grows only with the bytes that have arrived, so an announced length costs nothing
	for len(body) < int(size) {
		piece := min(int(size)-len(body), max(loginPiece, len(body)))
		body = slices.Grow(body, piece)
		if err := c.in.read(body[len(body) : len(body)+piece]); err != nil {
			if late := c.tooLate(err); late != nil {
				return nil, late
			}
			return nil, fatal(codeBadBody, "%s failed to read body", verb)
		}
		body = body[:len(body)+piece]
	}
	return body, nil
}

// tune checks the requested values, in NSQ's order.
func (c *conn) tune(id *identity) (t tuning, err error) {
	t = c.tuning
	bad := func(what string, n int) (tuning, error) {
		return tuning{}, fatal(codeBadBody, "IDENTIFY %s (%d) is invalid", what, n)
	}
	o := &c.h.opts
	ok := true
	if t.heartbeat, ok = choose(id.HeartbeatInterval, t.heartbeat, minHeartbeatMS*time.Millisecond, o.MaxHeartbeatInterval); !ok {
		return bad("heartbeat interval", id.HeartbeatInterval)
	}
	if t.outputTimeout, ok = choose(id.OutputBufferTimeout, t.outputTimeout, o.MinOutputBufferTimeout, o.MaxOutputBufferTimeout); !ok {
		return bad("output buffer timeout", id.OutputBufferTimeout)
	}
	switch n := id.OutputBufferSize; {
	case n == -1:
		t.outputSize, t.outputTimeout = unbuffered, 0
	case n == 0:
	case n >= minOutputBuffer && int64(n) <= o.MaxOutputBufferSize:
		t.outputSize = n
	default:
		return bad("output buffer size", n)
	}
	if id.SampleRate < 0 || id.SampleRate > maxSampleRate {
		return bad("sample rate", int(id.SampleRate))
	}
	t.sampleRate = id.SampleRate
	if t.msgTimeout, ok = choose(id.MsgTimeout, t.msgTimeout, minMsgTimeoutMS*time.Millisecond, o.MaxMsgTimeout); !ok || t.msgTimeout == 0 {
		return bad("msg timeout", id.MsgTimeout)
	}
	return t, nil
}

// choose converts a client's milliseconds into a duration: -1 is off (0), 0 keeps the previous value, any other number
// must be within the bounds.
func choose(ms int, before, least, most time.Duration) (d time.Duration, ok bool) {
	switch {
	case ms == -1:
		return 0, true
	case ms == 0:
		return before, true
	case int64(ms) < least.Milliseconds() || int64(ms) > most.Milliseconds():
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// negotiate selects the features of the connection; nil: the client did not request negotiation.
func (c *conn) negotiate(id *identity, t *tuning) (*negotiated, error) {
	if !id.FeatureNegotiation {
		return nil, nil
	}
	o := &c.h.opts
	level := defaultDeflateLevel
	if id.DeflateLevel > 0 {
		level = id.DeflateLevel
	}
	r := &negotiated{
		MaxRdyCount: o.MaxRdyCount, Version: o.Version,
		MaxMsgTimeout: o.MaxMsgTimeout.Milliseconds(), MsgTimeout: t.msgTimeout.Milliseconds(),
		TLSv1: o.TLS != nil && id.TLSv1, Deflate: o.Deflate && id.Deflate,
		DeflateLevel: min(level, o.MaxDeflateLevel), MaxDeflateLevel: o.MaxDeflateLevel,
		Snappy: o.Snappy && id.Snappy, SampleRate: t.sampleRate, AuthRequired: c.h.backend.Guard.Enforced(),
		OutputBufferSize: t.outputSize, OutputBufferTimeout: t.outputTimeout.Milliseconds(),
		TopologyRegion: o.TopologyRegion, TopologyZone: o.TopologyZone, DesiredTag: id.DesiredTag, ProducerID: c.producer,
	}
	if r.Deflate && r.Snappy {
		return nil, fatal(codeIdentifyFailed, "cannot enable both deflate and snappy compression")
	}
	return r, nil
}

// adopt makes the values effective. Only those of the first IDENTIFY reach the writer.
func (c *conn) adopt(id *identity, t *tuning) {
	c.out.mu.Lock()
	c.out.format.extended = id.ExtendSupport
	c.out.mu.Unlock()
	c.tuning = *t
	if !c.identified {
		c.identified = true
		c.settings <- *t
	}
	c.describe(func(a *about) {
		a.ClientID, a.Hostname, a.UserAgent = shortened(id.ClientID), shortened(id.Hostname), shortened(id.UserAgent)
		a.TopologyRegion, a.TopologyZone, a.SampleRate = shortened(id.TopologyRegion), shortened(id.TopologyZone), t.sampleRate
	})
}
