package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

var rewrite = flag.Bool("rewrite", false, "write docs/metrics.md and the last row of contrib/grafana/broker.json")

const document = "../../../docs/metrics.md"

const head = `# Metrics

` + "`GET /metrics`" + ` of a broker, for Prometheus. This page is generated from the table in the code
(` + "`go test ./internal/observe/metrics -run TestDocument -rewrite`" + `).

- **A counter (` + "`_total`" + `) counts the work of one process** and falls only when the process starts again, so ` + "`rate()`" + ` is right
  over changes of leaders. The rate of a topic is the sum over all brokers: ` + "`sum by (topic) (rate(lockstep_topic_messages_total[1m]))`" + `.
- **A state of a topic, a channel or a partition is a gauge of its leader.** Depths are summed over the brokers; of ages, lags and numbers of
  clients the largest counts. A broker that leads no partition of a topic reports 0 for it, or no series.
- **` + "`lockstep_cluster_…`" + `** is the whole cluster, as each broker has it in its copy of the metadata: ` + "`max()`" + ` over the brokers.
- **The number of series is bounded.** ` + "`--metrics-max-series`" + ` topics and channels have a name of their own; the others are summed up as
  ` + "`_other`" + `. A tenth as many partitions of those that a broker leads have series of their own, first those that are not in sync;
  the sums above count all. ` + "`node`" + ` is another broker of the cluster; all other labels have a closed set of values.
- Histograms have classic buckets. Go's and the process's own metrics (` + "`go_…`, `process_…`" + `) are those of the Prometheus client.

Alerts and dashboards: [contrib/prometheus](../contrib/prometheus/alerts.yml), [contrib/grafana](../contrib/grafana). The remedies: [alerts](operations/alerts.md).
`

// TestDocument: docs/metrics.md has the table of the code.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range metrics.Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		for _, d := range s.Metrics {
			labels := ""
			if len(d.Labels) > 0 {
				labels = "{" + strings.Join(d.Labels, ", ") + "}"
			}
			fmt.Fprintf(&b, "- `%s%s` (%s): %s\n", d.FullName(), labels, d.Kind, d.Help)
		}
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(b.String()), 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(stands), "go test ./internal/observe/metrics -run TestDocument -rewrite")
}

// TestNames follows the conventions of Prometheus, and checks that each help text is whole sentences.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range metrics.Sections() {
		for _, d := range s.Metrics {
			require.Regexp(t, regexp.MustCompile(`^[a-z][a-z0-9_]*[a-z0-9]$`), d.Name)
			require.False(t, seen[d.Name], "%s is there twice", d.Name)
			seen[d.Name] = true
			require.Equal(t, d.Kind == metrics.KindCounter, strings.HasSuffix(d.Name, "_total"), d.Name)
			if d.Kind == metrics.KindHistogram {
				require.Regexp(t, `_seconds$`, d.Name)
			}
			require.NotRegexp(t, `_(ms|millis|kb|mb)(_|$)`, d.Name, "base units")
			require.Regexp(t, `^[A-Z0-9].*\.$`, d.Help, d.Name)
			require.NotContains(t, d.Help, "\n", "%s: a line of docs/metrics.md", d.Name)
		}
	}
}
