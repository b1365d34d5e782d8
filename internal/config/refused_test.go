package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

// TestAddressesThatNobodyReaches: an address that no client could use is refused before anything
// listens, or announces it.
func TestAddressesThatNobodyReaches(t *testing.T) {
	for _, args := range []string{
		"--broadcast-address=host:4150", "--broadcast-address=[::1]", "--broadcast-address=http://host", "--broadcast-address=a/b",
		"--broadcast-address=user@host", "--broadcast-address=", "--broadcast-address=0.0.0.0", "--broadcast-address=::",
		"--tcp-address=4150", "--tcp-address=", "--tcp-address=host", "--tcp-address=:http/", "--tcp-address=127.0.0.1:70000", "--tcp-address=127.0.0.1:-1",
		"--tcp-address=127.0.0.1:", "--tcp-address=http://127.0.0.1:4150", "--tcp-address=a@b:4150",
		"--http-address=4151", "--http-address=127.0.0.1:x", "--https-address=4152", "--lookupd-http-address=4161", "--lookupd-http-address=localhost:99999",
		"--rpc-address=127.0.0.1:99999", "--rpc-address=a/b:4153", "--etcd-client-address=127.0.0.1:99999", "--etcd-peer-address=/run/x.sock",
		"--lookupd-tcp-address=4160", "--lookupd-tcp-address=http://l:4160", "--lookupd-tcp-address=l:0",
		"--statsd-address=8125", "--statsd-address=udp://s:8125", "--statsd-address=s:0",
		"--auth-http-address=a:99999", "--auth-http-address=ftp://a:1",
		"--etcd-endpoints=e", "--etcd-endpoints=ftp://e:2379", "--etcd-endpoints=http://e", "--etcd-endpoints=e:0",
		"--etcd-initial-cluster=n1=http:// --node-name=n1", "--etcd-initial-cluster=n1=http://a --node-name=n1", "--etcd-initial-cluster=n1=http://a:1,n1=http://b:1 --node-name=n1",
	} {
		lines := faults(t, source("", nil, strings.Fields(args)...))
		flag, _, _ := strings.Cut(args, "=")
		require.Contains(t, strings.Join(lines, "\n"), flag, args)
	}
	require.Contains(t, faults(t, source("", nil, "--broadcast-address=a b"))[0], `--broadcast-address="a b"`)
	for _, args := range []string{
		"--broadcast-address=n1.example", "--broadcast-address=::1", "--broadcast-address=10.1.2.3", "--broadcast-address=n_1", "--broadcast-address=fe80::1%eth0",
		"--tcp-address=:4150", "--tcp-address=[::1]:4150", "--tcp-address=localhost:0", "--tcp-address=/run/nsqd.sock", "--tcp-address=./nsqd.sock", "--http-address=", "--http-address=:0",
		"--lookupd-tcp-address=l:4160", "--statsd-address=127.0.0.1:8125",
		"--auth-http-address=a:1", "--auth-http-address=127.0.0.1", "--auth-http-address=http://a/auth", "--auth-http-address=https://a:1/auth?x=1",
		"--etcd-endpoints=e:2379", "--etcd-endpoints=http://e:2379,https://f:2379",
	} {
		load(t, strings.Fields(args)...)
	}
}

// TestAFileSaysWhatIsMeant: a key that is not known, a section, and a time without its unit are
// refused; the nearest name is offered.
func TestAFileSaysWhatIsMeant(t *testing.T) {
	for file, want := range map[string]string{
		"msg_timeuot = \"3s\"":          `unknown key "msg_timeuot"; did you mean msg_timeout?`,
		"lookupd_tcp_address = []":      `unknown key "lookupd_tcp_address"; did you mean nsqlookupd_tcp_addresses?`,
		"node_id = 3":                   `unknown key "node_id"; did you mean id?`,
		"tcp-address = \"a:1\"":         `did you mean tcp_address?`,
		"flux_compensator = 3":          `unknown key "flux_compensator"`,
		"[nsqd]\ntcp_address = \"a:1\"": `unknown section [nsqd]: settings have no section`,
		"msg_timeout = 60":              `msg_timeout=60: must be a duration such as 250ms or 1m30s; 60 has no unit`,
		"msg_timeout = 1.5":             `1.5 has no unit`,
		"statsd_interval = \"60\"":      `must be a duration such as 250ms or 1m30s`,
		"check_config = true":           `unknown key "check_config"; it is a flag alone`,
	} {
		require.Contains(t, strings.Join(faults(t, source(file, nil, "--config=f.toml")), "\n"), want, file)
	}
	o, _, err := config.Load(source("log_slow = 0\nsync_timeout = \"1500ms\"", nil, "--config=f.toml"))
	require.NoError(t, err)
	require.Zero(t, o.LogSlow, "0 needs no unit")
	require.Equal(t, 1500*time.Millisecond, o.SyncTimeout)
}

// TestTheNearestFlagIsOffered: the line of a mistyped flag says which one may be meant.
func TestTheNearestFlagIsOffered(t *testing.T) {
	for args, want := range map[string]string{
		"--tcp-adress=a:1":   "there is no flag --tcp-adress; did you mean --tcp-address?",
		"--msg_timeout=3s":   "did you mean --msg-timeout?",
		"--help-al":          "did you mean --help-all?",
		"--lookup-tcp=a:1":   "there is no flag --lookup-tcp",
		"--flux-compensator": "there is no flag --flux-compensator",
	} {
		require.Contains(t, faults(t, source("", nil, args))[0], want)
	}
	require.NotContains(t, faults(t, source("", nil, "--flux-compensator"))[0], "did you mean")
}

// TestAnUnknownVariableIsNamed: NSQD_ names belong to the broker, but other programs may set some
// for themselves (Docker and Kubernetes do), so one that is not known is a warning only.
func TestAnUnknownVariableIsNamed(t *testing.T) {
	src := source("", nil)
	src.Environ = func() []string { return []string{"NSQD_MSG_TIMEUOT=3s", "NSQD_PORT=tcp://10.0.0.1:4150", "HOME=/root"} }
	_, warnings, err := config.Load(src)
	require.NoError(t, err)
	require.Equal(t, []string{"unknown variable $NSQD_MSG_TIMEUOT is ignored; did you mean $NSQD_MSG_TIMEOUT?"}, warnings)
}
