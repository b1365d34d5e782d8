package config_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// source returns a Source with the given file at "f.toml".
// source are settings of a broker whose ports may be open to everybody; safe has none of that.
func source(file string, env map[string]string, args ...string) config.Source {
	s := safe(args...)
	s.Env = func(name string) (string, bool) {
		v, ok := env[name]
		key := strings.ToLower(strings.TrimPrefix(name, "NSQD_"))
		if !ok && (key == "insecure_clients" || key == "insecure_http") && !strings.Contains("\n"+file, "\n"+key) {
			return "true", true
		}
		return v, ok
	}
	s.ReadFile = func(path string) ([]byte, error) {
		if path != "f.toml" {
			return nil, fs.ErrNotExist
		}
		return []byte(file), nil
	}
	return s
}

// defaults are the settings of source without any.
func defaults() config.Options {
	o := config.Defaults()
	o.InsecureClients, o.InsecureHTTP = true, true
	return o
}

func safe(args ...string) config.Source {
	return config.Source{
		Args:     args,
		Env:      func(string) (string, bool) { return "", false },
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist },
	}
}

func load(t *testing.T, args ...string) config.Options {
	t.Helper()
	o, _, err := config.Load(source("", nil, args...))
	require.NoError(t, err)
	return o
}

// faults returns the lines of Load's error.
func faults(t *testing.T, src config.Source) []string {
	t.Helper()
	_, _, err := config.Load(src)
	var f *config.Faults
	require.ErrorAs(t, err, &f)
	return f.Lines
}

func TestDefaultsAreValid(t *testing.T) { require.Equal(t, defaults(), load(t)) }

// stockDefaults are the defaults of a stock nsqd: the contract of the name "drop-in".
const stockDefaults = `
log_level=info log_prefix=[nsqd]_ verbose=false worker_id=false
tcp_address=0.0.0.0:4150 http_address=0.0.0.0:4151 https_address=0.0.0.0:4152 broadcast_tcp_port=0 broadcast_http_port=0
nsqlookupd_tcp_addresses=[] auth_http_addresses=[] auth_http_request_method=get http_client_connect_timeout=2s http_client_request_timeout=5s
topology_region= topology_zone= enable_experiment=[]
data_path= mem_queue_size=10000 max_bytes_per_file=104857600 sync_every=2500 sync_timeout=2s queue_scan_worker_pool_max=4 queue_scan_selection_count=20
msg_timeout=1m0s max_msg_timeout=15m0s max_msg_size=1048576 max_req_timeout=1h0m0s max_body_size=5242880 max_defer_timeout=0s
max_heartbeat_interval=1m0s max_rdy_count=2500 max_output_buffer_size=65536 max_output_buffer_timeout=30s min_output_buffer_timeout=25ms output_buffer_timeout=250ms max_channel_consumers=0
statsd_address= statsd_interval=1m0s statsd_mem_stats=true statsd_prefix=nsq.%s statsd_udp_packet_size=508 statsd_exclude_ephemeral=false
e2e_processing_latency_percentiles=[] e2e_processing_latency_window_time=10m0s
tls_cert= tls_key= tls_client_auth_policy= tls_root_ca_file= tls_required=false
deflate=true max_deflate_level=6 snappy=true`

func TestStockDefaults(t *testing.T) {
	o := config.Defaults()
	for pair := range strings.FieldsSeq(stockDefaults) {
		key, want, _ := strings.Cut(pair, "=")
		value, ok := o.ByKey(key)
		require.True(t, ok, key)
		require.Equal(t, strings.ReplaceAll(want, "_", " "), strings.ReplaceAll(fmt.Sprint(value), "_", " "), key)
	}
	require.Less(t, o.NodeID, int64(1024))
	require.NotEmpty(t, o.BroadcastAddress)
}

func TestStockSpellings(t *testing.T) {
	for _, args := range [][]string{
		{"-msg-timeout", "5s"}, {"--msg-timeout", "5s"}, {"-msg-timeout=5s"}, {"--msg-timeout=5s"},
	} {
		require.Equal(t, 5*time.Second, load(t, args...).MsgTimeout, args)
	}
	require.False(t, load(t, "-snappy=false").Snappy)
	require.True(t, load(t, "-statsd-exclude-ephemeral").StatsdExcludeEphemeral)
	require.Equal(t, []string{"a:1", "b:1"}, load(t, "-lookupd-tcp-address", "a:1", "--lookupd-tcp-address=b:1").LookupdTCPAddress)
	require.Equal(t, []float64{0.99, 0.95, 1}, load(t, "-e2e-processing-latency-percentile=0.99,0.95", "-e2e-processing-latency-percentile", "1.0").E2EPercentiles)
	require.Equal(t, "", load(t, "--http-address=").HTTPAddress)
	require.Equal(t, 7*time.Second, load(t, "--msg-timeout=5s", "--msg-timeout=7s").MsgTimeout, "the last one counts")
}

// another returns a valid value other than the default, and the settings that it requires.
func another(key string, value any) (text string, with []string) {
	special := map[string][]string{
		"config": {"f.toml"}, "log_level": {"debug"}, "log_format": {"json"}, "durability": {"replicated"}, "linger": {"5ms"}, "tls_min_version": {"tls1.3"}, "auth_http_request_method": {"post"},
		"tls_client_auth_policy": {"require", "--tls-cert=c", "--tls-key=k", "--tls-required=true"},
		"tls_required":           {"tcp-https", "--tls-cert=c", "--tls-key=k"},
		"tls_cert":               {"c", "--tls-key=k"}, "tls_key": {"k", "--tls-cert=c"},
		"rpc_tls_cert": {"c", "--rpc-tls-key=k", "--rpc-tls-ca=a"}, "rpc_tls_key": {"k", "--rpc-tls-cert=c", "--rpc-tls-ca=a"},
		"rpc_tls_name":  {"*.brokers.example"},
		"rpc_tls_ca":    {"a", "--rpc-tls-cert=c", "--rpc-tls-key=k"},
		"etcd_tls_cert": {"c", "--etcd-tls-key=k"}, "etcd_tls_key": {"k", "--etcd-tls-cert=c"},
		"etcd_username": {"u", "--etcd-password-file=p"}, "etcd_password_file": {"p", "--etcd-username=u"},
		"rpc_address": {"127.0.0.1:1"}, "etcd_client_address": {"127.0.0.1:1"}, "etcd_peer_address": {"127.0.0.1:1"},
		"tcp_address": {"127.0.0.1:1"}, "http_address": {"127.0.0.1:1"}, "https_address": {"127.0.0.1:1"}, "lookupd_http_address": {"127.0.0.1:1"}, "nsqlookupd_tcp_addresses": {"a:1"},
		"statsd_address": {"a:1"}, "auth_http_addresses": {"a:1"}, "etcd_endpoints": {"a:1"},
		"etcd_initial_cluster": {"n1=http://127.0.0.1:1", "--node-name=n1"},
		"join":                 {"n1.example", "--node-name=n1.example", "--require-users"},
		"etcd_found_without":   {"n2", "--node-name=n1", "--etcd-initial-cluster=n1=http://127.0.0.1:1,n2=http://127.0.0.1:2"},
		"id":                   {"5"}, "msg_timeout": {"2m"}, "max_msg_timeout": {"20m"}, "topic_idle_after": {"1h"}, "channel_idle_after": {"1h"}, "e2e_processing_latency_percentiles": {"0.5"},
		"insecure_clients": {"false", "--tcp-address=127.0.0.1:1"}, "insecure_http": {"false", "--http-address=127.0.0.1:1"},
		"max_deflate_level": {"9"}, "topic_default": {"orders:partitions=2"},
		"otlp_endpoint": {"127.0.0.1:4317"}, "trace_sample": {"0.5"},
		"max_output_buffer_timeout": {"31s"}, "min_output_buffer_timeout": {"26ms"},
	}
	if s, ok := special[key]; ok {
		return s[0], s[1:]
	}
	switch v := value.(type) {
	case bool:
		return fmt.Sprint(!v), nil
	case time.Duration:
		return (v + time.Second).String(), nil
	case int, int64:
		return fmt.Sprint(reflect.ValueOf(v).Int() + 1), nil
	}
	return "another", nil
}

// TestEverySettingShows changes each setting through each source and expects exactly that field to change.
func TestEverySettingShows(t *testing.T) {
	for _, key := range config.Keys() {
		before, _ := defaults().ByKey(key)
		text, with := another(key, before)
		name := flagOf(key)
		set := map[string]config.Source{"flag": source("", nil, append(with, "--"+name+"="+text)...)}
		flagOnly := key == "version" || key == "worker_id" || key == "check_config" || key == "print_config" // a stock nsqd ignores worker_id in a file, and its type
		if !flagOnly {
			set["environment"] = source("", map[string]string{"NSQD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")): text}, with...)
		}
		if !flagOnly && key != "config" {
			set["file"] = source(fmt.Sprintf("%s = %q", key, text), nil, append(with, "--config=f.toml")...)
		}
		for from, src := range set {
			o, _, err := config.Load(src)
			require.NoError(t, err, "%s from %s", key, from)
			value, _ := o.ByKey(key)
			require.NotEqual(t, before, value, "%s from %s", key, from)
			o.ConfigFile = ""
			if len(with) == 0 && key != "config" {
				require.Equal(t, []string{key}, differing(defaults(), o), "%s from %s", key, from)
			}
		}
	}
}

func flagOf(key string) string {
	irregular := map[string]string{
		"id": "node-id", "nsqlookupd_tcp_addresses": "lookupd-tcp-address", "auth_http_addresses": "auth-http-address",
		"e2e_processing_latency_percentiles": "e2e-processing-latency-percentile",
	}
	if name, ok := irregular[key]; ok {
		return name
	}
	return strings.ReplaceAll(key, "_", "-")
}

// differing names the settings that differ.
func differing(a, b config.Options) (keys []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for _, f := range reflect.VisibleFields(x.Type()) {
		if !f.Anonymous && f.IsExported() && !reflect.DeepEqual(x.FieldByIndex(f.Index).Interface(), y.FieldByIndex(f.Index).Interface()) {
			keys = append(keys, cmp.Or(f.Tag.Get("key"), strings.ReplaceAll(f.Tag.Get("flag"), "-", "_")))
		}
	}
	return keys
}

func TestPrecedence(t *testing.T) {
	file := "max_rdy_count = 1\nmsg_timeout = \"10s\"\nsnappy = false\nnsqlookupd_tcp_addresses = [\"a:1\", \"b:1\"]\nsync_timeout = \"1500ms\""
	env := map[string]string{"NSQD_MAX_RDY_COUNT": "2", "NSQD_MSG_TIMEOUT": "20s"}
	o, _, err := config.Load(source(file, env, "--config", "f.toml", "--max-rdy-count=3"))
	require.NoError(t, err)
	require.Equal(t, int64(3), o.MaxRdyCount, "flag")
	require.Equal(t, 20*time.Second, o.MsgTimeout, "environment")
	require.False(t, o.Snappy, "file")
	require.Equal(t, []string{"a:1", "b:1"}, o.LookupdTCPAddress, "file")
	require.Equal(t, 1500*time.Millisecond, o.SyncTimeout, "file")
	require.True(t, o.Deflate, "default")
}

// stockFile has the unusual lines of NSQ's contrib/nsqd.cfg.example.
const stockFile = `
nsqlookupd_tcp_addresses = [
    "127.0.0.1:4160"
]
msg_timeout = "60s"
max_output_buffer_timeout = "1s"
e2e_processing_latency_percentiles = [
    1.0,
    0.99,
    0.95
]
tls_cert = ""
tls_key = ""
tls_required = false
tls_min_version = ""
`

// TestStockSettingsStart: a configuration that a stock nsqd accepts causes warnings at most, where
// the ports may be open to everybody.
func TestStockSettingsStart(t *testing.T) {
	o, warnings, err := config.Load(source(stockFile, nil, "--config=f.toml"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Empty(t, o.TLSMinVersion)
	for _, args := range []string{
		"--msg-timeout=20m", "--max-msg-timeout=30s", "--max-output-buffer-timeout=10ms", "--max-rdy-count=0",
		"--http-client-connect-timeout=0s", "--http-client-request-timeout=0s", "--config=f.toml",
	} {
		_, warnings, err := config.Load(source("worker_id = 5", nil, args))
		require.NoError(t, err)
		require.Len(t, warnings, 1, args)
	}
}

// TestCopiesThatTheClusterDoesNotHave: either the minimum is lowered, or no topic can be created.
func TestCopiesThatTheClusterDoesNotHave(t *testing.T) {
	const two = " --node-name=n1 --etcd-initial-cluster=n1=http://a:1,n2=http://b:1"
	for args, want := range map[string]string{
		"--min-in-sync=3":                                                    "new topics get 1 replicas, and --min-in-sync=1",
		"--min-in-sync=3" + two:                                              "new topics get 2 replicas, and --min-in-sync=2",
		"--replication-factor=3 --min-in-sync=3":                             "names 1 brokers: no topic can be created",
		"--replication-factor=3" + two:                                       "names 2 brokers: no topic can be created",
		"--min-in-sync=2" + two:                                              "",
		"--min-in-sync=3 --etcd-endpoints=http://e:1":                        "new topics get 1 replicas",
		"--min-in-sync=3 --replication-factor=3 --etcd-endpoints=http://e:1": "",
	} {
		_, warnings, err := config.Load(source("", nil, strings.Fields(args)...))
		require.NoError(t, err, args)
		if want == "" {
			require.Empty(t, warnings, args)
		} else {
			require.Contains(t, strings.Join(warnings, "; "), want, args)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	file := "max_rdy_count = \"many\"\ntls_min_version = \"ssl3.0\"\nmsg_timeuot = 3"
	src := source(file, map[string]string{"NSQD_MSG_TIMEOUT": "soon"}, "--config=f.toml", "--node-id=1024", "--max-deflate-level=0", "--tls-required", "--durability=maybe", "--no-such-flag", "value", "--partitions=0")
	lines := faults(t, src)
	for _, part := range []string{"max_rdy_count", "tls_min_version", "NSQD_MSG_TIMEOUT", "--node-id", "--max-deflate-level", "--tls-required", "--durability", "no flag --no-such-flag", "--partitions", "msg_timeuot"} {
		require.True(t, slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }), "%s in %q", part, lines)
	}
	_, _, err := config.Load(src)
	require.Equal(t, 2, config.ExitCode(err))
}

func TestFaults(t *testing.T) {
	for args, want := range map[string]string{
		"--e2e-processing-latency-percentile=1.5":                   "at most 1",
		"--e2e-processing-latency-percentile=x":                     "must be a number",
		"--auth-http-request-method=put":                            "get, post",
		"--tls-cert=c":                                              "go together",
		"--tls-client-auth-policy=require":                          "requires --tls-cert",
		"--tls-required=perhaps":                                    "true, false or tcp-https",
		"--node-name=a/b":                                           "--node-name",
		"--etcd-endpoints=a:1 --etcd-initial-cluster=n1=http://a:2": "exclude each other",
		"--node-name=n9 --etcd-initial-cluster=n1=http://a:2":       "does not name this broker",
		"--rpc-address=0.0.0.0:4153":                                "reachable from the network",
		"--etcd-peer-address=10.0.0.1:4155":                         "reachable from the network",
		"--etcd-client-address=127.0.0.1:0":                         "must be a fixed port",
		"--rpc-address=4153":                                        "host:port",
		"--min-in-sync=3 --replication-factor=2":                    "above --replication-factor",
		"--session-ttl=1500ms":                                      "whole seconds",
		"--config=missing.toml":                                     "missing.toml",
		"--snappy false":                                            "=",
		"--rpc-tls-cert=c":                                          "go together",
		"--rpc-tls-name=brokers.example":                            "must contain one *",
		"--etcd-username=u":                                         "go together",
		"--partitions=0":                                            "at least 1",
		"--tls-min-version=tls1.1":                                  "allow them with --insecure-tls",
		"--lookupd-tcp-address=" + strings.Repeat("a:1,", 33):       "33 addresses, at most 32",
	} {
		lines := faults(t, source("", nil, strings.Fields(args)...))
		require.Contains(t, strings.Join(lines, "\n"), want, args)
	}
	require.Contains(t, faults(t, source("= nonsense", nil, "--config=f.toml"))[0], "f.toml")
	require.Contains(t, faults(t, source("[tcp_address]\na = 1", nil, "--config=f.toml"))[0], "not a table")
	require.Contains(t, faults(t, source("tcp_address = [1]", nil, "--config=f.toml"))[0], "not a list")
}

func TestExitCodes(t *testing.T) {
	code := func(args ...string) int {
		_, _, err := config.Load(source("", nil, args...))
		return config.ExitCode(err)
	}
	require.Equal(t, 0, code())
	require.Equal(t, 0, code("--help"))
	require.Equal(t, 0, code("--version", "--tls-cert=c"), "the version is printed in any case")
	require.Equal(t, 2, code("--unknown"))
	require.Equal(t, 2, code("--partitions=none"))
	require.Equal(t, 1, code("--tls-cert=c"))
}

func TestExposedPortsNeedProtection(t *testing.T) {
	load(t, "--rpc-address=0.0.0.0:1", "--insecure")
	load(t, "--rpc-address=0.0.0.0:1", "--cluster-token-file=t", "--rpc-tls-cert=c", "--rpc-tls-key=k", "--rpc-tls-ca=a")
	for _, token := range []config.Source{
		source("", nil, "--rpc-address=0.0.0.0:1", "--cluster-token-file=t"),
		source("", map[string]string{"NSQD_CLUSTER_TOKEN": "t"}, "--rpc-address=0.0.0.0:1"),
	} {
		require.Contains(t, strings.Join(faults(t, token), "\n"), "a cluster token alone does not protect")
	}
	load(t, "--etcd-peer-address=0.0.0.0:1", "--rpc-tls-cert=c", "--rpc-tls-key=k", "--rpc-tls-ca=a")
	load(t, "--etcd-peer-address=0.0.0.0:1", "--etcd-endpoints=e:1")
	load(t, "--rpc-address=[::1]:1", "--etcd-client-address=localhost:1")
}

// TestPortsForClientsNeedAuthentication: beyond loopback a port opens only if every client has to
// authenticate, or the operator says otherwise for this kind of port.
func TestPortsForClientsNeedAuthentication(t *testing.T) {
	const certificates = " --tls-cert=c --tls-key=k --tls-client-auth-policy=require-verify"
	for _, test := range []struct{ args, refused string }{
		{"--tcp-address=0.0.0.0:1", "--tcp-address"},
		{"--tcp-address=:1", "--tcp-address"},
		{"--tcp-address=10.1.2.3:1 --insecure-http", "--tcp-address"},
		{"--tcp-address=0.0.0.0:1 --insecure-clients", ""},
		{"--http-address=[::]:1 --insecure-clients", "--http-address"},
		{"--http-address=[::]:1 --insecure-http", ""},
		{"--https-address=n1.example:1", ""}, // there is none without a certificate
		{"--https-address=n1.example:1 --tls-cert=c --tls-key=k", "--https-address"},
		{"--lookupd-http-address=0.0.0.0:1", "--lookupd-http-address"},
		{"--lookupd-http-address=0.0.0.0:1 --insecure-http", ""},
		{"--tcp-address=/run/nsqd.sock --http-address=", ""},
		{"--tcp-address=localhost:1 --http-address=[::1]:1", ""},
		// A cluster, or a broker that announces itself, needs an address that its clients reach.
		{"--broadcast-address=n1.example", "--tcp-address --http-address"},
		{"--lookupd-tcp-address=l:1", "--tcp-address --http-address"},
		{"--etcd-endpoints=e:1 --replication-factor=1", "--tcp-address --http-address"},
		{"--etcd-endpoints=e:1 --replication-factor=1 --require-users", ""},
		{"--tcp-address=0.0.0.0:1 --http-address=0.0.0.0:1 --lookupd-http-address=0.0.0.0:1 --bootstrap-admin-token-file=f", ""},
		{"--tcp-address=0.0.0.0:1 --http-address=0.0.0.0:1 --lookupd-http-address=0.0.0.0:1 --auth-http-address=a:1", ""},
		{"--tcp-address=0.0.0.0:1 --http-address=0.0.0.0:1 --https-address=0.0.0.0:1 --tls-root-ca-file=ca" + certificates, ""},
		{"--tcp-address=0.0.0.0:1 --http-address=0.0.0.0:1 --https-address=0.0.0.0:1" + certificates, "--tcp-address --http-address --https-address"}, // the system's authorities
		{"--tcp-address=0.0.0.0:1 --http-address=0.0.0.0:1 --tls-required=tcp-https --tls-root-ca-file=ca" + certificates, "--http-address"},
	} {
		_, _, err := config.Load(safe(strings.Fields(test.args)...))
		if test.refused == "" {
			require.NoError(t, err, test.args)
			continue
		}
		require.Equal(t, 1, config.ExitCode(err), test.args)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, len(strings.Fields(test.refused)), test.args)
		for i, flag := range strings.Fields(test.refused) {
			require.Contains(t, lines[i], flag+"=", test.args)
			for _, way := range []string{"--require-users", "nsqctl user create", "--bootstrap-admin-token-file", "--auth-http-address", "--insecure-"} {
				require.Contains(t, lines[i], way, test.args)
			}
		}
	}
}

// TestADefaultAddressIsNoOrder: a single broker without any address serves its machine alone, and says so.
func TestADefaultAddressIsNoOrder(t *testing.T) {
	o, warnings, err := config.Load(safe())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4150 127.0.0.1:4151", o.TCPAddress+" "+o.HTTPAddress)
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], "--tcp-address is 127.0.0.1:4150, and not 0.0.0.0:4150")
	o, warnings, err = config.Load(safe("--require-users"))
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:4150 0.0.0.0:4151", o.TCPAddress+" "+o.HTTPAddress)
	require.Empty(t, warnings)
	require.Contains(t, printed(t, safe()), `tcp_address = "127.0.0.1:4150" # loopback: no client has to authenticate`)
}

// TestBodiesHaveRoomForTheLargestMessage: MPUB, /mpub and /v1/topic/append send messages as parts of a body.
func TestBodiesHaveRoomForTheLargestMessage(t *testing.T) {
	const mib = 1 << 20
	require.EqualValues(t, 5*mib, load(t, "--max-msg-size=4194304").MaxBodySize)
	require.EqualValues(t, 8*mib+65<<10, load(t, "--max-msg-size=8388608").MaxBodySize)
	require.EqualValues(t, 9*mib, load(t, "--max-msg-size=8388608", "--max-body-size=9437184").MaxBodySize)
	require.EqualValues(t, 5000, load(t, "--max-msg-size=1000", "--max-body-size=5000").MaxBodySize)
	for _, size := range []string{"8388608", "5242880", "8388671"} {
		lines := faults(t, source("", nil, "--max-msg-size=8388608", "--max-body-size="+size))
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "leaves no room for a message of --max-msg-size=8388608")
		require.Contains(t, lines[0], "set at least 8388672, or leave it out")
	}
	o := load(t, "--max-msg-size=66977792")
	require.LessOrEqual(t, o.MaxMsgSize+int64(queue.MaxMessageHeader)+1024, int64(queue.MaxBatchBytes), "it fits a batch with the longest header")
	require.LessOrEqual(t, o.MaxMsgSize+int64(queue.MaxMessageHeader)+msgstream.MessageOverhead, int64(64<<20), "and a record of an export")
	faults(t, source("", nil, "--max-msg-size=66977793"))
}

func TestClientAuthImpliesTLS(t *testing.T) {
	o := load(t, "--tls-client-auth-policy=require", "--tls-cert=c", "--tls-key=k")
	require.Equal(t, config.TLSRequiredAll, o.TLSRequired)
	o = load(t, "--tls-client-auth-policy=require", "--tls-cert=c", "--tls-key=k", "--tls-required=tcp-https")
	require.Equal(t, config.TLSRequiredExceptHTTP, o.TLSRequired)
}

func TestNoOps(t *testing.T) {
	names := slices.Sorted(maps.Keys(config.NoOps()))
	require.Equal(t, []string{"enable-experiment", "queue-scan-selection-count", "queue-scan-worker-pool-max", "sync-every", "sync-timeout", "verbose", "worker-id"}, names)
	_, warnings, err := config.Load(source("", nil, "--verbose", "--sync-every=1"))
	require.NoError(t, err)
	require.Len(t, warnings, 2)
}

// TestHelp: --help has at most 40 flags, with --help-all itself. --help-all has every one, and gives
// those that --help leaves out a reason to change them, or says that they have no effect.
func TestHelp(t *testing.T) {
	var short, all bytes.Buffer
	require.NoError(t, config.Help(&short, false))
	require.NoError(t, config.Help(&all, true))
	flagLine := regexp.MustCompile(`(?m)^  (--[a-z0-9-]+|\$[A-Z_]+)`)
	require.LessOrEqual(t, len(flagLine.FindAllString(short.String(), -1)), 39)
	require.Contains(t, short.String(), "nsqd --help-all")
	lines := strings.Split(all.String(), "\n")
	for _, key := range config.Keys() {
		name := "  --" + flagOf(key) + "="
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name) })
		require.Positive(t, i, key)
		explained := strings.Contains(lines[i+1], "; change it when ") || strings.Contains(lines[i+1], "; no effect: ")
		require.NotEqual(t, strings.Contains(short.String(), "\n"+name), explained, key)
	}
	require.NotContains(t, all.String(), "$hostname")
	for _, args := range [][]string{{"--help-all"}, {"-help-all"}, {"--no-such-flag", "--help-all"}} {
		_, _, err := config.Load(source("", nil, args...))
		require.ErrorIs(t, err, config.ErrHelpAll)
	}
	_, _, err := config.Load(source("", nil, "--help"))
	require.ErrorIs(t, err, config.ErrHelp)
	require.NotErrorIs(t, err, config.ErrHelpAll)
}

func TestDerived(t *testing.T) {
	o := config.Defaults()
	require.Equal(t, 1, o.ClusterSize())
	require.True(t, o.EmbedsEtcd())
	for brokers, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 3, 5: 3} {
		require.Equal(t, want, o.Replicas(brokers))
	}
	for replicas, want := range map[int]int{1: 1, 2: 2, 3: 2, 5: 3} {
		require.Equal(t, want, o.InSync(replicas))
	}
	require.Equal(t, []time.Duration{30 * time.Millisecond, 50 * time.Millisecond, 2 * time.Second}, []time.Duration{o.EtcdHeartbeat(), o.PeerHeartbeat(), o.RollbackGrace()})
	o.MinInSync, o.ReplicationFactor = 3, 2
	require.Equal(t, 2, o.Replicas(5))
	require.Equal(t, 2, o.InSync(2), "never more than there are")
	o.EtcdInitialCluster = "n1=http://a:1,n2=http://b:1,n3=http://c:1"
	require.Equal(t, 3, o.ClusterSize())
}

// NaN passes every comparison with a limit, and JSON cannot encode it: /stats would fail.
func TestAPercentileIsANumber(t *testing.T) {
	_, _, err := config.Load(config.Source{
		Args: []string{"--e2e-processing-latency-percentile=NaN"}, Env: func(string) (string, bool) { return "", false },
	})
	require.ErrorIs(t, err, config.ErrInvalid)
}

// A flag with three dashes is refused like any other typing error.
func TestAFlagWithThreeDashesEnds(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		_, _, err := config.Load(config.Source{Args: []string{"---data-path=x", "-=y", "--tcp-adress=z"}, Env: func(string) (string, bool) { return "", false }})
		done <- err
	}()
	err := wait.For(t, done, "Load ends")
	require.ErrorIs(t, err, config.ErrUsage)
	require.ErrorContains(t, err, "---data-path=x")
	require.ErrorContains(t, err, "-=y")
	require.ErrorContains(t, err, "--tcp-adress")
}

// The embedded etcd of a member with TLS is not reachable at http://. The brokers would wait
// for each other forever and log only that no member answers.
func TestMembersAreNamedAsTheySpeak(t *testing.T) {
	tls := []string{"--rpc-tls-cert=c", "--rpc-tls-key=k", "--rpc-tls-ca=a"}
	for want, args := range map[string][]string{
		"https://": append(tls, "--node-name=n1", "--etcd-initial-cluster=n1=http://127.0.0.1:4155,n2=http://127.0.0.1:4255"),
		"http://":  {"--node-name=n1", "--etcd-initial-cluster=n1=https://127.0.0.1:4155,n2=https://127.0.0.1:4255"},
	} {
		_, _, err := config.Load(config.Source{Args: args, Env: func(string) (string, bool) { return "", false }})
		require.ErrorIs(t, err, config.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}
