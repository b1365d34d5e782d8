package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// template is the file that the packages install as /etc/lockstep/nsqd.toml.
var template = filepath.Join("..", "..", "packaging", "nsqd.toml")

func printed(t *testing.T, src config.Source) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, config.Print(&b, src))
	return b.String()
}

// TestTheTemplateIsNotStale: the installed file explains the settings of this build.
func TestTheTemplateIsNotStale(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, config.Template(&b))
	if *rewrite {
		require.NoError(t, os.WriteFile(template, b.Bytes(), 0o644))
	}
	golden, err := os.ReadFile(template)
	require.NoError(t, err)
	require.Equal(t, string(golden), b.String(), "the settings have changed: go test ./internal/config -run Template -rewrite")
}

// TestTheTemplateHasEverySetting: the template changes no setting. With its lines uncommented
// it sets each setting to its default, by a known name.
func TestTheTemplateHasEverySetting(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, config.Template(&b))
	o, warnings, err := config.Load(source(b.String(), nil, "--config=f.toml"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	o.ConfigFile = ""
	require.Equal(t, defaults(), o)

	settings := regexp.MustCompile(`(?m)^#([a-z_0-9]+ = .*)$`)
	o, warnings, err = config.Load(source(settings.ReplaceAllString(b.String(), "$1"), nil, "--config=f.toml", "--insecure-clients", "--insecure-http"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.ElementsMatch(t, []string{"config", "id", "broadcast_address", "node_name"}, differing(defaults(), o), "what depends on the host")
	for _, key := range config.Keys() {
		_, noop := config.NoOps()[flagOf(key)]
		want := key != "config" && key != "version" && key != "check_config" && key != "print_config" && !noop
		require.Equal(t, want, strings.Contains(b.String(), "\n#"+key+" = "), key)
	}
	require.Contains(t, b.String(), "$NSQD_CLUSTER_TOKEN")
	require.Contains(t, b.String(), "(1 to 1024)")
}

// TestPrintIsAFile: the printed file, read again, gives the same settings.
func TestPrintIsAFile(t *testing.T) {
	for _, key := range config.Keys() {
		value, _ := defaults().ByKey(key)
		text, with := another(key, value)
		if key == "version" || key == "config" || key == "worker_id" || key == "check_config" || key == "print_config" {
			continue
		}
		args := append(with, "--"+flagOf(key)+"="+text)
		want, _, err := config.Load(source("", nil, args...))
		require.NoError(t, err)
		out := printed(t, source("", nil, args...))
		got, _, err := config.Load(source(out, nil, "--config=f.toml"))
		require.NoError(t, err, out)
		require.Equal(t, []string{"config"}, differing(want, got), key)
	}
}

// TestPrintNamesSources: the printed source of each value is the effective one.
func TestPrintNamesSources(t *testing.T) {
	out := printed(t, source("msg_timeout = \"5s\"\nmax_rdy_count = 3\nsnappy = false\nsync_every = 1",
		map[string]string{"NSQD_MAX_RDY_COUNT": "4", "NSQD_SNAPPY": "true"},
		"--config=f.toml", "--snappy=false", "--tls-client-auth-policy=require", "--tls-cert=c", "--tls-key=k", "--max-msg-timeout=20m"))
	for _, line := range []string{
		"# The file that was read: f.toml",
		`msg_timeout = "5s" # file f.toml`,
		"max_rdy_count = 4 # environment NSQD_MAX_RDY_COUNT",
		"snappy = false # flag",
		"deflate = true # default",
		`tls_required = "true" # implied by tls_client_auth_policy`,
		"sync_every = 1 # file f.toml",
		"etcd_endpoints = [] # default",
	} {
		require.Contains(t, out, "\n"+line+"\n")
	}
	require.Regexp(t, `\nnode_name = ".+" # default \(from this host's name\)\n`, out)
	require.NotContains(t, out, "sync_timeout", "without effect, and not given")
	require.NotContains(t, out, "print_config")
}

// TestSecretsAreNotShown: no output of settings has a secret, or the password in an address.
func TestSecretsAreNotShown(t *testing.T) {
	const secret = "hunter2"
	env := map[string]string{
		"NSQD_CLUSTER_TOKEN": secret, "NSQD_ETCD_PASSWORD": secret, "NSQD_ETCD_USERNAME": "u",
		"NSQD_ETCD_ENDPOINTS":      "https://u:" + secret + "@e:1",
		"NSQD_AUTH_HTTP_ADDRESS":   "http://u:" + secret + "@a:1/x",
		"NSQD_LOOKUPD_TCP_ADDRESS": "l:1",
	}
	refused := faults(t, source("", nil, "--etcd-endpoints=https://u:"+secret+"%zz@e:1", "--auth-http-address=u:"+secret+"@a:99999"))
	require.Len(t, refused, 2)
	require.NotContains(t, strings.Join(refused, "\n"), secret)
	o, _, err := config.Load(source("", env))
	require.NoError(t, err)
	require.Equal(t, secret, string(o.ClusterToken))
	require.Equal(t, secret, string(o.EtcdPassword))
	out := printed(t, source("", env))
	require.NotContains(t, out, secret)
	require.Contains(t, out, "# the environment has NSQD_CLUSTER_TOKEN, which is never printed\n")
	require.Contains(t, out, "a:1/x")
	require.Contains(t, out, "@e:1")
	require.Contains(t, out, `nsqlookupd_tcp_addresses = ["l:1"]`)
	for _, key := range config.Keys() {
		value, _ := o.ByKey(key) // /config/ shows it to users who may observe
		require.NotContains(t, fmt.Sprint(value), secret, key)
	}
	o.EtcdEndpoints, o.AuthHTTPAddress = nil, nil // print and ByKey remove passwords from addresses
	asJSON, err := json.Marshal(o)
	require.NoError(t, err)
	for _, shown := range []string{string(asJSON), fmt.Sprintf("%v %+v %#v %s", o, o, o, o.ClusterToken)} {
		require.NotContains(t, shown, secret)
	}
	for _, key := range []string{"cluster_token", "etcd_password"} {
		_, ok := o.ByKey(key)
		require.False(t, ok, key)
		require.NotContains(t, config.Keys(), key)
	}
}

// TestFaultsShowNoPassword: nor has a fault of any setting, wherever the value comes from.
func TestFaultsShowNoPassword(t *testing.T) {
	const secret = "hunter2"
	for _, key := range config.Keys() {
		if key == "topic_default" {
			continue // it has no address
		}
		for _, address := range []string{"http://u:" + secret + "@h:1", "u:" + secret + "@h:1", "http://u:" + secret + "%zz@h", "http://u:" + secret + "/x@h", "n1=http://u:" + secret + "@h:1"} {
			flag := "--" + strings.ReplaceAll(key, "_", "-") + "=" + address
			_, warnings, err := config.Load(source("", nil, flag))
			require.NotContains(t, fmt.Sprint(err, warnings), secret, flag)
			_, warnings, err = config.Load(source(fmt.Sprintf("%s = %q", key, address), nil, "--config=f.toml"))
			require.NotContains(t, fmt.Sprint(err, warnings), secret, flag)
			_, _, err = config.Load(source(fmt.Sprintf("%s = [%q]", key, address), nil, "--config=f.toml"))
			require.NotContains(t, fmt.Sprint(err), secret, flag)
		}
	}
}

// TestSecretsHaveTheirPlaces: a secret is no flag and no key of a file, and may be given only once.
func TestSecretsHaveTheirPlaces(t *testing.T) {
	lines := faults(t, source("cluster_token = \"x\"\netcd_password = \"x\"", nil, "--config=f.toml", "--cluster-token=x"))
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "no flag --cluster-token")
	require.Contains(t, lines[1], "cluster_token is a secret")
	require.Contains(t, lines[1], "$NSQD_CLUSTER_TOKEN")
	require.Contains(t, lines[2], "etcd_password is a secret")
	env := map[string]string{"NSQD_CLUSTER_TOKEN": "t", "NSQD_ETCD_PASSWORD": "p"}
	lines = faults(t, source("", env, "--cluster-token-file=f", "--etcd-password-file=f", "--etcd-username=u"))
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "--etcd-password-file")
	require.Contains(t, lines[1], "--cluster-token-file")
	require.Contains(t, faults(t, source("", env))[0], "--etcd-username")
	delete(env, "NSQD_ETCD_PASSWORD")
	_, _, err := config.Load(source("", env, "--rpc-address=0.0.0.0:1", "--insecure"))
	require.NoError(t, err)
}

// TestCheckNamesAllFaults: with --check-config every fault ends with exit status 2. The valid
// settings are returned, so that their files are checked too.
func TestCheckNamesAllFaults(t *testing.T) {
	_, _, err := config.Load(source("partitions = 0", nil, "--check-config", "--config=f.toml", "--tls-cert=c"))
	require.Equal(t, 2, config.ExitCode(err))
	var f *config.Faults
	require.ErrorAs(t, err, &f)
	require.Len(t, f.Lines, 2)
	require.Equal(t, "c", f.Understood.TLSCert)
	require.ErrorIs(t, err, config.ErrInvalid)
	require.ErrorIs(t, config.Print(&bytes.Buffer{}, source("", nil, "--tls-cert=c")), config.ErrInvalid)
}
