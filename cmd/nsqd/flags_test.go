package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// TestFlagsShow starts a broker with many changed settings and checks the effect of each.
func TestFlagsShow(t *testing.T) {
	t.Parallel()
	b := start(t,
		"--log-prefix=<test> ", "--log-level=debug", "--node-id=7", "--broadcast-address=localhost", "--broadcast-tcp-port=7001",
		"--broadcast-http-port=7002", "--topology-region=r1", "--topology-zone=z1", "--cluster-name=other", "--durability=replicated",
		"--partitions=2", "--max-msg-size=100", "--max-body-size=1000", "--max-rdy-count=50", "--max-msg-timeout=5m", "--msg-timeout=4m",
		"--max-req-timeout=2s", "--max-defer-timeout=3s", "--max-heartbeat-interval=100s", "--max-output-buffer-size=2048",
		"--max-output-buffer-timeout=2s", "--min-output-buffer-timeout=50ms", "--output-buffer-timeout=60ms",
		"--max-channel-consumers=1", "--deflate=false", "--snappy=false", "--max-deflate-level=3", "--metrics-max-series=1",
		"--e2e-processing-latency-percentile=0.5,0.99", "--e2e-processing-latency-window-time=1h", "--topic-max-bytes=5000", "--topic-retention=1h", "--topic-retention-bytes=77",
		"--mem-queue-size=3")
	require.Contains(t, b.logged(), "<test> ")
	own := api.ReadBuild()
	require.Contains(t, b.logged(), own.Describe(metadata.Level)+", speaks NSQ 1.3.0, durability replicated\n")
	_, text := b.get("/info")
	require.Contains(t, text, `"version":"1.3.0",`)
	require.Contains(t, text, fmt.Sprintf(`,"lockstep_version":%q,"commit":%q,"feature_level":1}`, own.Version, own.Commit))
	b.showsSettings()
	b.negotiates()
	b.refusesTooMuch()

	c := b.dial()
	c.put("orders", "one")
	b.showsAddresses()
	c.consume("orders", "ch", 1)
	id, _, _ := c.message()
	c.send("FIN %s\n", id)
	refused := b.dial()
	refused.send("SUB orders ch\n")
	refused.expect("E_SUB_FAILED SUB failed consumers for orders:ch exceeds limit of 1")
	c.send("RDY 51\n")
	c.expect("E_INVALID RDY count 51 out of range 0-50")
	c.expectEnd()
	b.showsStats(`"e2e_processing_latency":{"count":1,"percentiles":[{"quantile":0.5,"value":`)
	_, text = b.get("/metrics")
	require.Contains(t, text, `lockstep_topic_messages_total{topic="_other"} 1`)

	b.fills("orders")
	b.ephemeralDepth(3)
}

// showsSettings checks /config and /info.
func (b *broker) showsSettings() {
	b.t.Helper()
	for option, want := range map[string]string{
		"log_level": "1", "id": "7", "log_prefix": "<test> ", "tls_required": "0", "tls_min_version": "771", "auth_http_addresses": "[]",
		"nsqlookupd_tcp_addresses": "[]", "msg_timeout": "240000000000", "snappy": "false", "e2e_processing_latency_percentiles": "[0.5,0.99]",
	} {
		_, got := b.get("/config/" + option)
		require.Equal(b.t, want, got, option)
	}
	var info map[string]any
	_, text := b.get("/info")
	require.NoError(b.t, json.Unmarshal([]byte(text), &info))
	for field, want := range map[string]any{
		"node_id": 7.0, "node_name": "n1", "broadcast_address": "localhost", "tcp_port": float64(b.base), "http_port": float64(b.base + 1),
		"topology_zone": "z1", "topology_region": "r1", "durability": "replicated", "max_heartbeat_interval": 1e11,
		"max_output_buffer_size": 2048.0, "max_output_buffer_timeout": 2e9, "max_deflate_level": 3.0,
	} {
		require.Equal(b.t, want, info[field], field)
	}
}

// negotiates checks the reply to IDENTIFY.
func (b *broker) negotiates() {
	b.t.Helper()
	reply := b.dial().identify(map[string]any{"snappy": true, "deflate": true})
	for field, want := range map[string]any{
		"max_rdy_count": 50.0, "max_msg_timeout": 300000.0, "msg_timeout": 240000.0, "max_deflate_level": 3.0, "snappy": false, "deflate": false,
		"output_buffer_timeout": 60.0, "tls_v1": false, "topology_zone": "z1", "topology_region": "r1",
	} {
		require.Equal(b.t, want, reply[field], field)
	}
}

// refusesTooMuch exceeds each limit of a command.
func (b *broker) refusesTooMuch() {
	b.t.Helper()
	for command, want := range map[string]string{
		"DPUB t 3001\n":         "E_INVALID DPUB timeout 3001 out of range 0-3000",
		"PUB t\n" + size(101):   "E_BAD_MESSAGE PUB message too big 101 > 100",
		"MPUB t\n" + size(1001): "E_BAD_BODY MPUB body too big 1001 > 1000",
		"IDENTIFY\n" + body(`{"heartbeat_interval":100001}`):  "E_BAD_BODY IDENTIFY heartbeat interval (100001) is invalid",
		"IDENTIFY\n" + body(`{"output_buffer_size":2049}`):    "E_BAD_BODY IDENTIFY output buffer size (2049) is invalid",
		"IDENTIFY\n" + body(`{"output_buffer_timeout":49}`):   "E_BAD_BODY IDENTIFY output buffer timeout (49) is invalid",
		"IDENTIFY\n" + body(`{"output_buffer_timeout":2001}`): "E_BAD_BODY IDENTIFY output buffer timeout (2001) is invalid",
		"IDENTIFY\n" + body(`{"msg_timeout":300001}`):         "E_BAD_BODY IDENTIFY msg timeout (300001) is invalid",
	} {
		c := b.dial()
		c.send("%s", command)
		c.expect(want)
		c.expectEnd()
	}
}

// showsAddresses checks the advertised addresses of the broker and its topic.
func (b *broker) showsAddresses() {
	b.t.Helper()
	_, text := b.get("/v1/cluster")
	for _, want := range []string{`"cluster":"other"`, `"self":"n1"`, `"retention_ms":3600000`, `"retention_bytes":77`, `"max_bytes":5000`, `"partition":1`, `"tcp_address":"localhost:7001"`, `"http_address":"localhost:7002"`} {
		require.Contains(b.t, text, want)
	}
	_, text = b.get("/lookup?topic=orders")
	require.Contains(b.t, text, `"tcp_port":7001`)
	require.Contains(b.t, text, `"http_port":7002`)
}

// showsStats waits until the statistics contain a text.
func (b *broker) showsStats(want string) {
	b.t.Helper()
	b.eventually("shows "+want, func() bool {
		_, text := b.get("/stats?format=json&topic=orders")
		return strings.Contains(text, want)
	})
}

// fills publishes up to the topic's limit.
func (b *broker) fills(topic string) {
	b.t.Helper()
	for i := 0; ; i++ {
		require.Less(b.t, i, 200)
		if status, text := b.post("/pub?topic="+topic, strings.Repeat("x", 100)); status != http.StatusOK {
			require.Equal(b.t, 503, status)
			require.Contains(b.t, text, "topic is full, not stored")
			return
		}
	}
}

// ephemeralDepth checks the bound of ephemeral channels.
func (b *broker) ephemeralDepth(want int) {
	b.t.Helper()
	b.post("/topic/create?topic=short", "")
	b.post("/channel/create?topic=short&channel=c%23ephemeral", "")
	for range 20 {
		b.post("/pub?topic=short", "x")
	}
	b.eventually("keeps to --mem-queue-size", func() bool {
		_, text := b.get("/stats?format=json&topic=short")
		return strings.Contains(text, fmt.Sprintf(`"channel_name":"c#ephemeral","depth":%d,`, 2*want)) || // of two partitions
			strings.Contains(text, fmt.Sprintf(`"channel_name":"c#ephemeral","depth":%d,`, want))
	})
}

func size(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func body(text string) string { return size(len(text)) + text }

// TestMaxReqTimeoutBoundsDelaysOfPuts: a stock nsqd has no --max-defer-timeout.
func TestMaxReqTimeoutBoundsDelaysOfPuts(t *testing.T) {
	t.Parallel()
	b := strict.use(t)
	b.create("delayed")
	c := b.dial()
	c.send("DPUB delayed 200\n%s", body("x"))
	c.expect("OK")
	c.send("DPUB delayed 201\n")
	c.expect("E_INVALID DPUB timeout 201 out of range 0-200")
	status, _ := b.post("/pub?topic=delayed&defer=201", "x")
	require.Equal(t, 400, status)
	status, _ = b.post("/pub?topic=delayed&defer=200", "x")
	require.Equal(t, 200, status)
}
