package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// topicsBroker answers every request like /topics, with its name.
func topicsBroker(t *testing.T, name string) (address string) {
	return clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string][]string{"topics": {name}})
	})
}

// TestAddressesOfSeveralBrokers: a flag takes several addresses in two ways, and the next one
// is tried when one does not answer.
func TestAddressesOfSeveralBrokers(t *testing.T) {
	live := topicsBroker(t, "orders")
	for _, flags := range [][]string{
		{"--nsqd-http-address=" + clitest.DeadAddress, "--nsqd-http-address=" + live},
		{"--nsqd-http-address", clitest.DeadAddress + "," + live},
	} {
		out, err := run(t, time.Minute, append([]string{"topic", "list"}, flags...)...)
		require.NoError(t, err)
		require.Equal(t, "orders\n", out)
	}
}

// TestBrokersOfADevClusterAreTheDefault: the brokers of ./data are used, whichever of them
// runs.
func TestBrokersOfADevClusterAreTheDefault(t *testing.T) {
	live := topicsBroker(t, "orders")
	tcp := clitest.TCPBroker(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("data", 0o755))
	write := func(content string) {
		require.NoError(t, os.WriteFile("data/cluster.json", []byte(content), 0o600))
	}
	content, err := json.Marshal(devcluster.Cluster{Brokers: []devcluster.Broker{
		{Name: "n1", TCP: clitest.DeadAddress, HTTP: clitest.DeadAddress, HTTPS: live}, {Name: "n2", TCP: tcp, HTTP: live, HTTPS: clitest.DeadAddress},
	}})
	require.NoError(t, err)
	write(string(content))
	out, err := run(t, time.Minute, "topic", "list")
	require.NoError(t, err)
	require.Equal(t, "orders\n", out)
	require.NoError(t, os.WriteFile("lines", []byte("one\n"), 0o600))
	_, err = run(t, time.Minute, "pub", "--topic=orders", "lines")
	require.NoError(t, err)
	out, err = run(t, time.Minute, "tail", "--topic=orders", "--channel=ch", "-n=1")
	require.NoError(t, err)
	require.Contains(t, out, "one\n")
	_, err = run(t, time.Minute, "topic", "list", "--nsqd-http-address", clitest.DeadAddress)
	require.Error(t, err, "an address that is given counts alone")
}

// TestVersion: the product's version and, separately, the supported release of NSQ.
func TestVersion(t *testing.T) {
	own := api.ReadBuild()
	for _, args := range [][]string{{"--version"}, {"version"}} {
		out, err := run(t, time.Minute, args...)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(out, fmt.Sprintf("nsqctl: lockstep %s (commit %s, feature level 1, built w/go", own.Version, own.Commit)), out)
		require.True(t, strings.HasSuffix(out, "), speaks NSQ 1.3.0\n"), out)
	}
	var info http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"version":"1.3.0","lockstep_version":"9.8.7","commit":"abc","feature_level":4}`)
	}
	n1, old := clitest.Answering(t, info), clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"1.3.0"}`) })
	cluster := clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{Brokers: []api.BrokerView{
			{Name: "n1", Alive: true, HTTPAddress: n1}, {Name: "n2", Alive: true, HTTPAddress: old}, {Name: "n3", HTTPAddress: n1},
		}})
	})
	out, err := run(t, time.Minute, "version", "--brokers", "--nsqd-http-address", cluster)
	require.NoError(t, err)
	require.Contains(t, out, "\nn1: lockstep 9.8.7 (commit abc, feature level 4), speaks NSQ 1.3.0\n")
	require.Contains(t, out, "\nn2: a build without version")
	require.NotContains(t, out, "n3")
	out, err = run(t, time.Minute, "version", "--brokers", "-o=json", "--nsqd-http-address", cluster)
	require.NoError(t, err)
	require.Contains(t, out, `"lockstep_version": "9.8.7"`)
}
