package metrics_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const alertsFile = "../../../contrib/prometheus/alerts.yml"

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func matches(text, pattern string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// known are the names in a scrape: those of the table with the suffixes of histograms, and those of
// the client library.
func known() map[string]bool {
	names := map[string]bool{"up": true, "ALERTS": true}
	for _, s := range metrics.Sections() {
		for _, d := range s.Metrics {
			if names[d.FullName()] = true; d.Kind == metrics.KindHistogram {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					names[d.FullName()+suffix] = true
				}
			}
		}
	}
	for _, name := range matches(scrape(metrics.New(1)), `(?m)^((?:go|process)_[a-z0-9_]+)`) {
		names[name] = true
	}
	return names
}

// inQuery matches the name of a metric in a query.
const inQuery = `\b((?:lockstep|go|process)_[a-z0-9_]+)`

// TestAlertsUseMetricsThatExist also holds their tests against the table.
func TestAlertsUseMetricsThatExist(t *testing.T) {
	names := known()
	for _, file := range []string{alertsFile, "../../../contrib/prometheus/alerts_test.yml"} {
		used := matches(read(t, file), `\b(lockstep_[a-z0-9_]+)`)
		require.NotEmpty(t, used)
		for _, name := range used {
			require.True(t, names[name], "%s: %s is no metric", file, name)
		}
	}
}

// TestDashboardsUseMetricsThatExist reads every query of every panel and variable.
func TestDashboardsUseMetricsThatExist(t *testing.T) {
	names := known()
	files, err := filepath.Glob("../../../contrib/grafana/*.json")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		var board struct {
			UID    string
			Panels []struct {
				Title, Type string
				Targets     []struct{ Expr string }
			}
			Templating struct {
				List []struct {
					Name  string
					Query any
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, file)), &board), file)
		require.Equal(t, "lockstep-"+strings.TrimSuffix(filepath.Base(file), ".json"), board.UID)
		variables := map[string]bool{"datasource": true, "__rate_interval": true}
		for _, v := range board.Templating.List {
			variables[v.Name] = true
		}
		queries := 0
		for _, p := range board.Panels {
			require.True(t, p.Type == "row" || len(p.Targets) > 0, "%s: %s has no query", file, p.Title)
			for _, target := range p.Targets {
				queries++
				used := matches(target.Expr, inQuery)
				require.NotEmpty(t, used, target.Expr)
				for _, name := range used {
					require.True(t, names[name], "%s: %s: %s is no metric", file, p.Title, name)
				}
				for _, name := range matches(target.Expr, `\$(\w+)`) {
					require.True(t, variables[name], "%s: %s: no variable %s", file, p.Title, name)
				}
			}
		}
		require.Greater(t, queries, 10)
	}
}

// TestAlertRules has promtool check the rules and run their unit tests, of which each alert has one.
func TestAlertRules(t *testing.T) {
	tested := map[string]bool{}
	for _, name := range matches(read(t, "../../../contrib/prometheus/alerts_test.yml"), `(?m)^  - name: (\w+)$`) {
		tested[name] = true
	}
	require.ElementsMatch(t, matches(read(t, alertsFile), `(?m)^      - alert: (\w+)$`), slices.Collect(maps.Keys(tested)))
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		env.Missing(t, "promtool (package prometheus)", err)
	}
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}, {"check", "config", "prometheus.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Dir(alertsFile)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "promtool %v:\n%s", args, out)
	}
}
