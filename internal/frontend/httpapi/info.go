package httpapi

import "net/http"

// ping: GET /ping and /healthz. It fails while the broker cannot store messages.
func (a *endpoints) ping() (int, string) {
	if text := a.health(); text != "OK" {
		return http.StatusInternalServerError, text
	}
	return http.StatusOK, "OK"
}

func (a *endpoints) health() string {
	if err := a.b.Stats.Health(); err != nil {
		return notOK + err.Error()
	}
	return "OK"
}

// notOK begins the answer of /ping, as in NSQ, if the broker does not take messages.
const notOK = "NOK - "

// infoReply is the answer of /info.
type infoReply struct {
	Version                string `json:"version"`
	BroadcastAddress       string `json:"broadcast_address"`
	Hostname               string `json:"hostname"`
	HTTPPort               int    `json:"http_port"`
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
	Durability             string `json:"durability"`
	LockstepVersion        string `json:"lockstep_version"`
	Commit                 string `json:"commit"`
	FeatureLevel           int    `json:"feature_level"`
}

// info: GET /info. Durations are in nanoseconds, as in NSQ. The version is NSQ's; the fields
// behind topology_region are this product's.
func (a *endpoints) info(*http.Request) (any, error) {
	o := &a.opts
	return infoReply{
		o.Version, o.BroadcastAddress, o.Hostname, o.HTTPPort, o.TCPPort, o.StartTime.Unix(),
		int64(o.MaxHeartbeatInterval), o.MaxOutputBufferSize, int64(o.MaxOutputBufferTimeout),
		o.MaxDeflateLevel, o.TopologyZone, o.TopologyRegion, o.NodeName, o.NodeID, o.Durability,
		o.LockstepVersion, o.Commit, o.FeatureLevel,
	}, nil
}
