package clustercmd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// rolling is a well cluster of three brokers whose builds have these feature levels.
func rolling(level int, levels ...int) (v api.ClusterView, builds []build) {
	v = api.ClusterView{Level: level, Controller: "n1", Self: "n1"}
	all := []ident.Node{"n1", "n2", "n3"}
	for i, l := range levels {
		v.Brokers = append(v.Brokers, api.BrokerView{Name: all[i], Alive: true, Level: l})
		builds = append(builds, build{Broker: string(all[i]), LockstepVersion: fmt.Sprintf("0.%d.0", l), Commit: fmt.Sprintf("c%d", l), FeatureLevel: l})
	}
	v.Topics = []api.TopicView{{Topic: "orders", ReplicationFactor: 3, MinInSync: 2, Partitions: []api.PartitionView{
		{Leader: "n1", Replicas: all, ISR: all, MinInSync: 2},
	}}}
	return v, builds
}

// TestUpgradeStatus follows a rolling upgrade from level 3 to level 6.
func TestUpgradeStatus(t *testing.T) {
	u := judgeUpgrade(rolling(3, 3, 3, 3))
	require.True(t, u.Done)
	require.Empty(t, u.Waits)

	u = judgeUpgrade(rolling(3, 3, 6, 3))
	require.False(t, u.Done)
	require.Equal(t, []string{"n1 runs 0.3.0 (c3), whose feature level is 3: the newest is 6", "n3 runs 0.3.0 (c3), whose feature level is 3: the newest is 6"}, u.Waits)
	require.Equal(t, "stop n3, start it with the new build, and ask again", u.Next, "the controller is the last")
	require.Equal(t, []int{3, 3, 6}, []int{u.Level, u.Reaches, u.Newest})

	v, builds := rolling(3, 3, 6, 6)
	v.Topics[0].Partitions[0].ISR = v.Topics[0].Partitions[0].ISR[:2]
	require.Contains(t, judgeUpgrade(v, builds).Next, "wait until the cluster is healthy", "a replica catches up")
	v, builds = rolling(3, 3, 6, 6)
	require.Contains(t, judgeUpgrade(v, builds).Next, "stop n1")
	v.Topics[0].Partitions[0].MinInSync = 3
	require.Contains(t, judgeUpgrade(v, builds).Next, "no broker may be stopped now")

	u = judgeUpgrade(rolling(3, 6, 6, 6))
	require.Equal(t, []string{"the cluster uses feature level 3, all brokers have 6"}, u.Waits)
	require.Contains(t, u.Next, "by itself")
	require.True(t, judgeUpgrade(rolling(6, 6, 6, 6)).Done)

	v, builds = rolling(3, 6, 3, 6)
	v.Brokers[1].Alive = false
	u = judgeUpgrade(v, append(builds[:1], builds[2]))
	require.Equal(t, []string{"n2 does not run, and its last build has feature level 3: the level stays at 3"}, u.Waits[:1])
	require.Contains(t, u.Next, "start n2 with the new build")

	v, builds = rolling(6, 6, 6, 6)
	builds[2].Commit = "other"
	u = judgeUpgrade(v, builds)
	require.Equal(t, []string{"n3 runs 0.6.0 (other), another build than most"}, u.Waits)
	require.Contains(t, u.Next, "stop n3")
	builds[2] = build{Broker: "n3", Error: "no answer"}
	u = judgeUpgrade(v, builds)
	require.Equal(t, []string{"the build of n3 is unknown: no answer"}, u.Waits, "unknown is not well")
}

// TestUpgradeStatusSaysItByItsExitCode asks a broker.
func TestUpgradeStatusSaysItByItsExitCode(t *testing.T) {
	for levels, done := range map[[2]int]bool{{6, 6}: true, {5, 6}: false} {
		info := clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"version":"1.3.0","lockstep_version":"0.6.0","commit":"abc","feature_level":%d}`, levels[1])
		})
		cluster := clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"feature_level":%d,"brokers":[{"name":"n1","alive":true,"feature_level":%d,"http_address":%q}]}`, levels[0], levels[1], info)
		})
		out, err := run(t, time.Minute, "cluster", "upgrade", "status", "--nsqd-http-address", cluster)
		require.Equal(t, done, err == nil, out)
		require.Regexp(t, `n1 +true +0\.6\.0 \(abc\) +6`, out)
		require.Equal(t, done, strings.Contains(out, "next: nothing"))
		if !done {
			require.Equal(t, cli.ExitFailed, cli.ExitCode(t.Context(), err))
		}
		out, _ = run(t, time.Minute, "cluster", "upgrade", "status", "-o", "json", "--nsqd-http-address", cluster)
		require.Contains(t, out, fmt.Sprintf(`"done": %t`, done))
	}
}
