package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

const three = "--join=n1.example,n2.example,n3.example"

// TestJoin: the names of the brokers are enough for everything that brokers need of each other.
func TestJoin(t *testing.T) {
	o, warnings, err := config.Load(safe(three, "--node-name=n2.example", "--require-users"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	long, _, err := config.Load(safe("--node-name=n2.example", "--require-users", "--broadcast-address=n2.example",
		"--rpc-address=0.0.0.0:4153", "--etcd-client-address=0.0.0.0:4154", "--etcd-peer-address=0.0.0.0:4155",
		"--etcd-initial-cluster=n1.example=https://n1.example:4155,n2.example=https://n2.example:4155,n3.example=https://n3.example:4155",
		"--rpc-tls-cert=/etc/lockstep/tls/tls.crt", "--rpc-tls-key=/etc/lockstep/tls/tls.key", "--rpc-tls-ca=/etc/lockstep/tls/ca.crt",
		"--tls-cert=/etc/lockstep/tls/tls.crt", "--tls-key=/etc/lockstep/tls/tls.key"))
	require.NoError(t, err)
	require.Equal(t, []string{"join"}, differing(long, o))
	require.Equal(t, 3, o.Replicas(o.ClusterSize()))

	out := printed(t, safe(three, "--node-name=n2.example", "--require-users"))
	require.Contains(t, out, `rpc_tls_ca = "/etc/lockstep/tls/ca.crt" # implied by join`)
	require.Contains(t, out, `node_name = "n2.example" # flag`)
	again, _, err := config.Load(source(out, nil, "--config=f.toml"))
	require.NoError(t, err)
	require.Subset(t, []string{"config", "insecure_clients", "insecure_http"}, differing(o, again))
}

// TestJoinKeepsWhatIsGiven: a setting that was given is stronger than what --join implies.
func TestJoinKeepsWhatIsGiven(t *testing.T) {
	o, _, err := config.Load(safe(three, "--node-name=n1.example", "--require-users", "--tls-dir=tls", "--etcd-peer-address=10.0.0.1:5155",
		"--rpc-address=10.0.0.1:5153", "--broadcast-address=10.0.0.1", "--tls-cert=c", "--tls-key=k", "--tls-client-auth-policy=require-verify"))
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:5153 0.0.0.0:4154 10.0.0.1", o.RPCAddress+" "+o.EtcdClientAddress+" "+o.BroadcastAddress)
	require.Equal(t, "n1.example=https://n1.example:5155,n2.example=https://n2.example:5155,n3.example=https://n3.example:5155", o.EtcdInitialCluster)
	require.Equal(t, "tls/tls.crt tls/tls.key tls/ca.crt", o.RPCTLSCert+" "+o.RPCTLSKey+" "+o.RPCTLSCA)
	require.Equal(t, "c k tls/ca.crt", o.TLSCert+" "+o.TLSKey+" "+o.TLSRootCAFile)

	o, _, err = config.Load(safe(three, "--node-name=n1.example", "--require-users", "--insecure"))
	require.NoError(t, err)
	require.Empty(t, o.RPCTLSCert+o.TLSCert)
	require.Contains(t, o.EtcdInitialCluster, "n3.example=http://n3.example:4155")
}

// TestJoinFindsItsName: the host's name stands in the list, whole or as the first part of one name. A name that was given
// stands there as it is.
func TestJoinFindsItsName(t *testing.T) {
	list := []string{"n1.example", "n2.example", "n2.other.example", "n3"}
	for name, want := range map[string]string{
		"n1": "n1.example", "N1": "n1.example", "n1.example": "n1.example", "N1.Example": "n1.example", "n3": "n3",
		"n2": "", "n1.other": "", "n4": "", "n": "", "": "",
	} {
		require.Equal(t, want, config.OwnName(list, name, false), name)
	}
	for name, want := range map[string]string{"n1": "", "N1.example": "", "n1.example": "n1.example"} {
		require.Equal(t, want, config.OwnName(list, name, true), name)
	}
}

func TestJoinFaults(t *testing.T) {
	for args, want := range map[string]string{
		"--join=n1.example,n2.example --node-name=n1":                             "does not name this broker",
		"--join=n1.example,n1.example --node-name=n1.example":                     "names n1.example twice",
		"--join=n1.example:4155 --node-name=n1.example":                           "without a port",
		"--join=10.0.0.1,10.0.0.2 --node-name=10.0.0.1":                           "must be the host name",
		"--join=N1.example --node-name=N1.example":                                "lower case",
		"--join=https://n1.example --node-name=n1.example":                        "must be the host name",
		"--join=n1.example --node-name=n1.example --etcd-endpoints=http://e:1":    "exclude each other",
		"--join=n1.example,n2.example --node-name=n1.example":                     "no client has to authenticate",
		"--join=n1.example,n2.example --node-name=n1.example --rpc-tls-cert=cert": "--rpc-tls-cert, --rpc-tls-key and --rpc-tls-ca go together",
	} {
		lines := faults(t, safe(strings.Fields(args)...))
		require.Contains(t, strings.Join(lines, "\n"), want, args)
	}
}
