package health_test

import (
	"flag"
	"fmt"
	"go/format"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

var rewrite = flag.Bool("rewrite", false, "write alerts.go and docs/operations/alerts.md")

const (
	root     = "../../../"
	runbooks = "https://github.com/lockstepmq/lockstep/blob/main/docs/operations/alerts.md#"
)

// rule is an alert of contrib/prometheus/alerts.yml.
type rule struct{ name, expr, after, severity, description, action, detail, alarm string }

// ruleText is a rule in the order of its lines. The file has one form, so it needs no parser of YAML.
var ruleText = regexp.MustCompile(`(?m)^      - alert: (\w+)
        expr: '(.*)'
(?:        for: (\w+)
)?        labels: \{severity: (critical|warning)\}
        annotations:
          summary: '.*'
          description: '(.*)'
          action: '(.*)'
(?:          detail: '(.*)'
)?(?:          alarm: (\w+)
)?          runbook_url: (\S+)$`)

func rules(t *testing.T) (all []rule) {
	t.Helper()
	text := read(t, "contrib/prometheus/alerts.yml")
	for _, m := range ruleText.FindAllStringSubmatch(text, -1) {
		for i := range m {
			m[i] = strings.ReplaceAll(m[i], "''", "'") // the quotes of YAML
		}
		require.Equal(t, runbooks+strings.ToLower(m[1]), m[9])
		all = append(all, rule{m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]})
	}
	require.Len(t, all, strings.Count(text, "- alert: "), "a rule has another form")
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(root + file)
	require.NoError(t, err)
	return string(text)
}

// generated compares a file with its text, or writes it.
func generated(t *testing.T, file, text string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.WriteFile(root+file, []byte(text), 0o644))
	}
	require.Equal(t, text, read(t, file), "go test ./internal/observe/health -run TestAlerts -rewrite")
}

// TestAlertsPage: docs/operations/alerts.md is generated from contrib/prometheus/alerts.yml, to which each rule links back.
func TestAlertsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Alerts\n\nGenerated from the rules for Prometheus, [alerts.yml](../../contrib/prometheus/alerts.yml) (`make reference`). Dashboards for Grafana:\n" +
		"[contrib/grafana](../../contrib/grafana). All metrics: [metrics](../metrics.md). Critical alerts wake a person, warnings wait for the morning.\n" +
		"An alarm is the same condition in the console and in `nsqctl cluster health`.\n")
	for _, r := range rules(t) {
		after := "at once"
		if r.after != "" {
			after = "after " + r.after
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s, %s. ", r.name, strings.ToUpper(r.severity[:1])+r.severity[1:], after)
		if r.alarm != "" {
			fmt.Fprintf(&b, "Alarm `%s`. ", r.alarm)
		}
		fmt.Fprintf(&b, "%s\n\n%s\n", linked(r.description), linked(strings.TrimSpace(r.action+" "+r.detail)))
	}
	generated(t, "docs/operations/alerts.md", b.String())
}

// linked turns names of alerts, and of documents, into links.
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

var (
	// bound is the number at the end of an expression, perhaps a part of another metric.
	bound = regexp.MustCompile(`[<>] (\d[\d. *]*?)( \* lockstep_\w+)?$`)
	// window is the time over which a counter must not grow.
	window = regexp.MustCompile(`\[(\d+)([mh])\]`)
)

// limit is the threshold of a rule as a Go expression, "" without one.
func (r rule) limit() string {
	if m := bound.FindStringSubmatch(r.expr); m != nil && m[1] != "0" {
		if m[2] != "" {
			return m[1]
		}
		return m[1] + " * time.Second"
	}
	if m := window.FindStringSubmatch(r.expr); m != nil {
		return m[1] + " * time." + map[string]string{"m": "Minute", "h": "Hour"}[m[2]]
	}
	return ""
}

// TestAlertsOfAlarms: alerts.go has the thresholds and the actions of the rules with an alarm.
func TestAlertsOfAlarms(t *testing.T) {
	first := map[string]rule{}
	for _, r := range rules(t) {
		if before, there := first[r.alarm]; !there {
			first[r.alarm] = r
		} else if r.alarm != "" {
			require.Equal(t, before.limit(), r.limit(), "%s and %s are the same alarm", before.name, r.name)
		}
	}
	delete(first, "")
	var limits, actions strings.Builder
	for _, alarm := range slices.Sorted(maps.Keys(first)) {
		r, name := first[alarm], ""
		for word := range strings.SplitSeq(alarm, "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		if limit := r.limit(); limit != "" {
			fmt.Fprintf(&limits, "%sLimit = %s\n", strings.ToLower(name[:1])+name[1:], limit)
		}
		action := strings.TrimSuffix(strings.ReplaceAll(r.action, "`", ""), ".")
		fmt.Fprintf(&actions, "%s: %q,\n", name, strings.ToLower(action[:1])+action[1:])
	}
	text, err := format.Source(fmt.Appendf(nil, `// Code generated from contrib/prometheus/alerts.yml by make reference; DO NOT EDIT.

package health

import "time"

// Thresholds of alerts, for the alarms of the same faults.
const (
%s)

// actions are the next steps of alerts, for the alarms of the same faults.
var actions = map[string]string{
%s}
`, limits.String(), actions.String()))
	require.NoError(t, err)
	generated(t, "internal/observe/health/alerts.go", string(text))
}

// TestSeverityOfAlerts: an alarm of a broker's report on itself has the severity of its alert, and is raised beyond its threshold.
func TestSeverityOfAlerts(t *testing.T) {
	own := map[string]health.Own{
		"LockstepCertificateExpires": {CertificateSeconds: map[string]float64{"client": 1}},
		"LockstepConnectionsRefused": {RefusedSecondsAgo: map[string]float64{"tcp_user": 1}},
		"LockstepAuthServiceSilent":  {AuthUnansweredSeconds: 31},
		"LockstepNetworkCorrupts":    {CorruptSecondsAgo: new(float64)},
		"LockstepMetadataFull":       {EtcdInUseBytes: 9, EtcdQuotaBytes: 10},
		"LockstepDiskStalled":        {JournalBusySeconds: 2},
		"LockstepCoreLoopStalled":    {LoopBusySeconds: 2},
	}
	seen := 0
	for _, r := range rules(t) {
		o, ok := own[r.name]
		if !ok {
			continue
		}
		seen++
		a := health.Assess(three(), nil, map[ident.Node]health.Own{"n2": o}).Alarms
		require.Len(t, a, 1, r.name)
		require.Equal(t, r.alarm, a[0].Code)
		require.Equal(t, map[string]health.State{"critical": health.Unsafe, "warning": health.Degraded}[r.severity], a[0].State, r.name)
		require.Contains(t, read(t, "docs/operations/run.md"), "`"+a[0].Code+"`", r.name)
	}
	require.Equal(t, len(own), seen)
}
