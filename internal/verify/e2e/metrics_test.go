package e2e

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

	"github.com/lockstepmq/lockstep/internal/metrics"
)

// TestMetricsOfACluster: three fresh brokers warn of nothing and scrape every metric of the table, and
// no other. Over a change of leaders without puts no counter of a topic moves; the gauges of the
// partition go over to the new leader.
func TestMetricsOfACluster(t *testing.T) {
	c := start(t, 3)
	c.create("orders", "billing", 1)
	const puts = 50
	for range puts {
		resp, err := c.http.Post("http://"+c.Brokers[0].HTTP+"/pub?topic=orders", "", strings.NewReader("body"))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	c.warnsOfNothing()
	c.scrapesTheTable()

	leader := c.leads("orders")
	require.Equal(t, float64(puts), c.value(leader, `lockstep_topic_messages_total{topic="orders"}`))
	require.Equal(t, float64(puts), c.value(leader, fmt.Sprintf(`lockstep_partition_end_sequence{leader="%s",partition="0",topic="orders"}`, leader)))
	require.Equal(t, 3.0, c.value(leader, fmt.Sprintf(`lockstep_partition_in_sync_replicas{leader="%s",partition="0",topic="orders"}`, leader)))
	require.Greater(t, c.value(leader, `lockstep_channel_lag_seconds{channel="billing",topic="orders"}`), 0.0, "no consumer")
	c.kill(leader)
	next := c.leads("orders")
	require.NotEqual(t, leader, next)
	require.Equal(t, float64(puts), c.value(next, fmt.Sprintf(`lockstep_partition_end_sequence{leader="%s",partition="0",topic="orders"}`, next)))
	require.Equal(t, 0.0, c.value(next, `lockstep_topic_messages_total{topic="orders"}`), "the messages are the work of another broker")
	require.Equal(t, 1.0, c.value(next, "lockstep_partitions_under_replicated"))
	require.Greater(t, c.value(next, fmt.Sprintf(`lockstep_follower_lag_bytes{node="%s"}`, leader)), 0.0)
	require.Equal(t, 1.0, c.value(next, "lockstep_election_seconds_count"))
	c.restart(leader)
	c.whole("orders")
	require.Equal(t, 0.0, c.value(leader, "lockstep_cluster_partitions_leaderless"))
}

// leads waits until a broker leads the first partition of a topic, by the metrics, and returns it.
func (c *cluster) leads(topic string) (leader string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for _, b := range c.Brokers {
			series := fmt.Sprintf(`lockstep_partition_epoch{leader="%s",partition="0",topic="%s"}`, b.Name, topic)
			if text, err := newScrapes(c).get(b.HTTP); err == nil && strings.Contains(text, series) {
				leader = b.Name
				return true
			}
		}
		return false
	}, waitLimit, pollEvery)
	return leader
}

// value reads one series of a broker.
func (c *cluster) value(broker, series string) float64 {
	c.t.Helper()
	b, err := c.Broker(broker)
	require.NoError(c.t, err)
	text, err := newScrapes(c).get(b.HTTP)
	require.NoError(c.t, err)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(c.t, err)
			return v
		}
	}
	c.t.Fatalf("%s has no %s", broker, series)
	return 0
}

// warnsOfNothing reads the logs of all brokers.
func (c *cluster) warnsOfNothing() {
	c.t.Helper()
	for _, name := range names(c) {
		text, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
		require.NoError(c.t, err)
		require.Contains(c.t, string(text), "INFO: READY, ")
		require.Contains(c.t, string(text), `INFO: SETTINGS that differ from the defaults: `)
		for line := range strings.Lines(string(text)) {
			require.NotRegexp(c.t, `(WARN|WARNING|ERROR|FATAL|PANIC): `, line)
		}
	}
}

// scrapesTheTable compares the names in the scrapes of all brokers with the table of package metrics.
func (c *cluster) scrapesTheTable() {
	c.t.Helper()
	found := map[string]bool{}
	for _, b := range c.Brokers {
		text, err := newScrapes(c).get(b.HTTP)
		require.NoError(c.t, err)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (lockstep_[a-z0-9_]+) `).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
	}
	for _, s := range metrics.Sections() {
		for _, d := range s.Metrics {
			switch d.Name {
			case "certificate_expiry_timestamp_seconds": // these brokers have none
			case "channel_filtered_total": // no channel has a filter
			default:
				require.True(c.t, found[d.FullName()], "no broker reports %s", d.FullName())
			}
			delete(found, d.FullName())
		}
	}
	require.Empty(c.t, found, "not in the table")
}
