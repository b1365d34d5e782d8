package metrics_test

import (
	"encoding/json"
	"fmt"
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

const (
	alertsFile = "../../../contrib/prometheus/alerts.yml"
	runbooks   = "https://github.com/lockstepmq/lockstep/blob/main/docs/operations/alerts.md#"
)

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

// alertRule is a rule of alerts.yml, in the order of its lines. The file has one form, so that it needs no parser of YAML.
var alertRule = regexp.MustCompile(`(?m)^      - alert: (\w+)
        expr: '(.*)'
(?:        for: (\w+)
)?        labels: \{severity: (critical|warning)\}
        annotations:
          summary: '(.*)'
          description: '(.*)'
          action: '(.*)'
          runbook_url: (\S+)$`)

// TestAlertsPage: docs/operations/alerts.md is made of contrib/prometheus/alerts.yml, to which each rule links back.
func TestAlertsPage(t *testing.T) {
	const page = "../../../docs/operations/alerts.md"
	rules := read(t, alertsFile)
	found := alertRule.FindAllStringSubmatch(rules, -1)
	require.Len(t, found, strings.Count(rules, "- alert: "), "a rule has another form")
	var b strings.Builder
	b.WriteString("# Alerts\n\nGenerated from the rules for Prometheus, [alerts.yml](../../contrib/prometheus/alerts.yml) (`make reference`). Dashboards for Grafana:\n" +
		"[contrib/grafana](../../contrib/grafana). All metrics: [metrics](../metrics.md). Critical alerts wake a person, warnings wait for the morning.\n")
	for _, m := range found {
		name, expr, after, severity, description, action, runbook := m[1], m[2], "at once", m[4], quoted(m[6]), quoted(m[7]), m[8]
		require.Equal(t, runbooks+strings.ToLower(name), runbook)
		if m[3] != "" {
			after = "after " + m[3]
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s, %s: `%s`\n\n%s\n\n%s\n", name, strings.ToUpper(severity[:1])+severity[1:], after, strings.ReplaceAll(expr, "''", "'"), linked(description), linked(action))
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	require.Equal(t, b.String(), read(t, page), "go test ./internal/observe/metrics -run TestAlertsPage -rewrite")
}

// quoted is the text of a string of YAML in single quotes.
func quoted(text string) string { return strings.ReplaceAll(text, "''", "'") }

// linked makes links of the names of alerts, and of documents with the title of a section, perhaps.
func linked(text string) string {
	text = regexp.MustCompile(`\bLockstep\w+`).ReplaceAllStringFunc(text, func(name string) string { return "[" + name + "](#" + strings.ToLower(name) + ")" })
	return regexp.MustCompile(`docs/([\w/]+)/(\w+)\.md`).ReplaceAllStringFunc(text, func(name string) string {
		short := strings.TrimPrefix(name, "docs/")
		if same, ok := strings.CutPrefix(short, "operations/"); ok {
			return "[" + same + "](" + same + ")"
		}
		return "[" + short + "](../" + short + ")"
	})
}

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
