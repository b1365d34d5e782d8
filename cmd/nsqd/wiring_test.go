package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
)

// elsewhere lists the settings that are no field of another package's options, with the test that checks their effect.
var elsewhere = map[string]string{
	"version": "TestRefusals", "check_config": "TestCheckConfig", "http_allowed_host": "TestForeignPages", "audit_file": "TestAuditFile", "bootstrap_admin_token_file": "TestBootstrapToken", "print_config": "TestPrintConfig", "config": "TestHangUpReloadsTheLogLevel", "data_path": "start",
	"log_level": "TestFlagsShow", "log_prefix": "TestFlagsShow", "metrics_max_series": "TestFlagsShow", "log_format": "TestMetricsAndLog",
	"min_in_sync": "TestBrokersTrustEachOther", "node_name": "TestFlagsShow", "insecure": "TestExposedPorts",
	"nsqlookupd_tcp_addresses": "TestLookupds", "rpc_address": "TestExposedPorts",
	"tls_cert": "TestTLS", "tls_key": "TestTLS", "tls_client_auth_policy": "TestTLS", "tls_root_ca_file": "TestTLS", "tls_min_version": "TestTLS",
	"rpc_tls_cert": "TestBrokersTrustEachOther", "rpc_tls_key": "TestBrokersTrustEachOther", "rpc_tls_ca": "TestBrokersTrustEachOther",
	"cluster_token_file": "TestBrokersTrustEachOther", "etcd_endpoints": "TestExternalEtcd",
	"etcd_username": "TestExternalEtcd", "etcd_password_file": "TestExternalEtcd",
	"etcd_tls_cert": "TestExternalEtcd", "etcd_tls_key": "TestExternalEtcd", "etcd_tls_ca": "TestExternalEtcd",
	"etcd_client_address": "TestTimesOfTheEmbeddedEtcd", "etcd_peer_address": "TestTimesOfTheEmbeddedEtcd", "etcd_initial_cluster": "internal/test/testkit/e2etest",
	"require_users": "TestRequireUsers", "join": "internal/config", "tls_dir": "internal/config", "max_client_memory": "TestLimitsAtThePorts",
	"insecure_clients": "TestExposedPorts", "insecure_http": "internal/config", "insecure_tls": "internal/config",
	"rpc_tls_name": "TestCertificateWithoutTheBrokersName", "rpc_tls_allow": "TestBrokersThatJoinAreAllowed",
	"etcd_found_without": "coordinator/metadata/etcd", "otlp_endpoint": "internal/test/verify/e2e/observe", "trace_sample": "internal/observe/tracing",
	"etcd_election_timeout": "TestTimesOfTheEmbeddedEtcd",
}

// image is the text of all options that the settings become.
func image(t *testing.T, o config.Options, log *logrus.Logger, sockets *listen.Server, port net.Listener) string {
	t.Helper()
	p := &process{o: o, log: log, clients: clients{sockets: sockets}, data: dataPath{dir: "d"}}
	p.peers.port = port.(*net.TCPListener)
	broker, err := p.brokerOptions()
	require.NoError(t, err)
	p.node = broker.Node
	broker.Queue.Now = nil
	api := p.httpOptions()
	api.StartTime = time.Time{}
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%+v\n%v", broker, p.serverOptions(), p.protocolOptions(), api,
		p.lookupOptions(), o.AuthService, o.Statsd, o.TLSRequired)
}

// TestEveryFlagReachesItsUser changes each setting and looks for a difference in the options
// of the broker's parts. A setting without effect must say so in its help.
func TestEveryFlagReachesItsUser(t *testing.T) {
	t.Parallel()
	peers, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer peers.Close()
	sockets, err := listen.Listen(listen.Options{})
	require.NoError(t, err)
	log := logrus.New()
	before := image(t, config.Defaults(), log, sockets, peers)
	require.Equal(t, before, image(t, config.Defaults(), log, sockets, peers))
	keys := map[string]bool{}
	for key, tag := range settingTags() {
		keys[key] = true
		flag, noop := tag.Get("flag"), tag.Get("noop") != ""
		o, _, err := config.Load(config.Source{
			Args: append(companions(key), "--"+flag+"="+another(key)),
			// Without these the default addresses would be narrowed to loopback.
			Env: func(name string) (string, bool) {
				return "true", name == "NSQD_INSECURE_CLIENTS" || name == "NSQD_INSECURE_HTTP"
			},
			ReadFile: os.ReadFile,
		})
		if elsewhere[key] != "" {
			continue
		}
		require.NoError(t, err, key)
		if noop {
			require.Equal(t, before, image(t, o, log, sockets, peers), "%s is said to have no effect", key)
		} else {
			require.NotEqual(t, before, image(t, o, log, sockets, peers), "%s has no effect", key)
		}
	}
	for key := range elsewhere {
		require.True(t, keys[key], "%s is no setting", key)
	}
}

// TestEverySettingIsRead: a group of settings reaches a part as a whole, so each of its fields has to be read there.
func TestEverySettingIsRead(t *testing.T) {
	var read strings.Builder
	for _, root := range []string{".", "../../coordinator", "../../internal", "../../nsqd"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			read.Write(text)
			return err
		}))
	}
	var unread func(group reflect.Type) []string
	unread = func(group reflect.Type) (names []string) {
		for f := range group.Fields() {
			switch {
			case f.Tag.Get("option") != "": // config.Options.TopicOptions reads it
			case f.Anonymous && f.Name != "stock":
				names = append(names, unread(f.Type)...)
			case !f.Anonymous && !regexp.MustCompile(`\.`+f.Name+`\b`).MatchString(read.String()):
				names = append(names, f.Name)
			}
		}
		return names
	}
	require.Empty(t, unread(reflect.TypeFor[config.Options]()))
}

// another returns a valid value other than the default.
func another(key string) string {
	special := map[string]string{
		"durability": "replicated", "tls_required": "tcp-https", "auth_http_request_method": "post", "max_deflate_level": "9",
		"e2e_processing_latency_percentiles": "0.5", "min_output_buffer_timeout": "26ms", "id": "5",
		"replication_factor": "3", "linger": "5ms", "topic_default": "orders:partitions=2",
		"otlp_endpoint": "127.0.0.1:4317", "trace_sample": "0.5", "topic_idle_after": "2m", "channel_idle_after": "2m",
		"tcp_address": "127.0.0.1:1", "http_address": "127.0.0.1:1", "https_address": "127.0.0.1:1", "lookupd_http_address": "127.0.0.1:1", "rpc_address": "127.0.0.1:1",
		"nsqlookupd_tcp_addresses": "a:1", "statsd_address": "a:1", "auth_http_addresses": "a:1", "etcd_endpoints": "a:1",
	}
	if v := special[key]; v != "" {
		return v
	}
	value, _ := config.Defaults().ByKey(key)
	switch v := value.(type) {
	case bool:
		return fmt.Sprint(!v)
	case time.Duration:
		return (v + time.Second).String()
	case int, int64:
		return fmt.Sprint(reflect.ValueOf(v).Int() + 1)
	}
	return "another"
}

// companions returns the settings that a setting requires.
func companions(key string) []string {
	if key == "tls_required" {
		return []string{"--tls-cert=c", "--tls-key=k"}
	}
	return nil
}

// settingTags returns the tags of all settings by their names in the file; secrets have none.
func settingTags() map[string]reflect.StructTag {
	tags := map[string]reflect.StructTag{}
	var collect func(group reflect.Type)
	collect = func(group reflect.Type) {
		for f := range group.Fields() {
			switch {
			case f.Anonymous:
				collect(f.Type)
			case f.Tag.Get("source") != "environment":
				tags[cmp.Or(f.Tag.Get("key"), strings.ReplaceAll(f.Tag.Get("flag"), "-", "_"))] = f.Tag
			}
		}
	}
	collect(reflect.TypeFor[config.Options]())
	return tags
}
