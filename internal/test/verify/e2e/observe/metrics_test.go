package observe

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestMetricsOfACluster: three fresh brokers warn of nothing and scrape every metric of the table, and
// no other. Over a change of leaders without puts no counter of a topic moves; the gauges of the
// partition go over to the new leader.
func TestMetricsOfACluster(t *testing.T) {
	const puts, tries = 50, 3
	var c *e2etest.Cluster
	for try := 1; ; try++ { // a broker that the machine stops for a second is rightly warned of
		c = e2etest.Start(t, 3)
		c.Create("orders", "billing", 1)
		for range puts {
			resp, err := c.HTTP.Post("http://"+c.Brokers[0].HTTP+"/pub?topic=orders", "", strings.NewReader("body"))
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		warnings := warningsOf(c)
		if len(warnings) == 0 {
			break
		}
		require.Less(t, try, tries, "each of %d clusters warns: %q", tries, warnings)
		c.CrashAll()
	}
	scrapesTheTable(c)

	leader := leads(c, "orders")
	require.Equal(t, float64(puts), value(c, leader, `lockstep_topic_messages_total{topic="orders"}`))
	require.Equal(t, float64(puts), value(c, leader, fmt.Sprintf(`lockstep_partition_end_sequence{leader="%s",partition="0",topic="orders"}`, leader)))
	require.Equal(t, 3.0, value(c, leader, fmt.Sprintf(`lockstep_partition_in_sync_replicas{leader="%s",partition="0",topic="orders"}`, leader)))
	require.Greater(t, value(c, leader, `lockstep_channel_lag_seconds{channel="billing",topic="orders"}`), 0.0, "no consumer")
	c.Crash(leader)
	next := leads(c, "orders")
	require.NotEqual(t, leader, next)
	require.Equal(t, float64(puts), value(c, next, fmt.Sprintf(`lockstep_partition_end_sequence{leader="%s",partition="0",topic="orders"}`, next)))
	require.Equal(t, 0.0, value(c, next, `lockstep_topic_messages_total{topic="orders"}`), "the messages are the work of another broker")
	require.Equal(t, 1.0, value(c, next, "lockstep_partitions_under_replicated"))
	require.Greater(t, value(c, next, fmt.Sprintf(`lockstep_follower_lag_bytes{node="%s"}`, leader)), 0.0)
	require.Equal(t, 1.0, value(c, next, "lockstep_election_seconds_count"))
	c.Restart(leader)
	c.Whole("orders")
	require.Equal(t, 0.0, value(c, leader, "lockstep_cluster_partitions_leaderless"))
}

// leads waits until a broker leads the first partition of a topic, by the metrics, and returns it.
func leads(c *e2etest.Cluster, topic string) (leader string) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		for _, b := range c.Brokers {
			series := fmt.Sprintf(`lockstep_partition_epoch{leader="%s",partition="0",topic="%s"}`, b.Name, topic)
			if text, err := e2etest.NewScrapes(c).Get(b.HTTP); err == nil && strings.Contains(text, series) {
				leader = b.Name
				return true
			}
		}
		return false
	}, e2etest.WaitLimit, e2etest.PollEvery)
	return leader
}

// value reads one series of a broker.
func value(c *e2etest.Cluster, broker, series string) float64 {
	c.T.Helper()
	b, err := c.Broker(broker)
	require.NoError(c.T, err)
	text, err := e2etest.NewScrapes(c).Get(b.HTTP)
	require.NoError(c.T, err)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(c.T, err)
			return v
		}
	}
	c.T.Fatalf("%s has no %s", broker, series)
	return 0
}

// warningsOf are the lines of warnings and errors in the logs of all brokers.
func warningsOf(c *e2etest.Cluster) (warnings []string) {
	c.T.Helper()
	for _, name := range e2etest.Names(c) {
		text, err := os.ReadFile(filepath.Join(c.Dir, name+".log"))
		require.NoError(c.T, err)
		require.Contains(c.T, string(text), "INFO: ready to serve clients ")
		require.Contains(c.T, string(text), `INFO: settings that differ from the defaults: `)
		for line := range strings.Lines(string(text)) {
			if severe.MatchString(line) {
				warnings = append(warnings, line)
			}
		}
	}
	return warnings
}

var severe = regexp.MustCompile(`(WARN|WARNING|ERROR|FATAL|PANIC): `)

// scrapesTheTable compares the names in the scrapes of all brokers with the table of package metrics.
func scrapesTheTable(c *e2etest.Cluster) {
	c.T.Helper()
	found := map[string]bool{}
	for _, b := range c.Brokers {
		text, err := e2etest.NewScrapes(c).Get(b.HTTP)
		require.NoError(c.T, err)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (lockstep_[a-z0-9_]+) `).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
	}
	for _, s := range metrics.Sections() {
		for _, d := range s.Metrics {
			switch d.Name {
			case "certificate_expiry_timestamp_seconds": // these brokers have none
			case "channel_filtered_total", "channel_expired_total": // no channel has a filter, and no message a time to live
			default:
				require.True(c.T, found[d.FullName()], "no broker reports %s", d.FullName())
			}
			delete(found, d.FullName())
		}
	}
	require.Empty(c.T, found, "not in the table")
}
