package e2etest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// Judged asks for promtool, before the failures are caused.
func Judged(t *testing.T) (promtool string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		env.Missing(t, "promtool (package prometheus)", err)
	}
	return promtool
}

const (
	alertRules = Root + "contrib/prometheus/alerts.yml"
	// ScrapeEvery is the usual time between two scrapes of a test. The rules see them scrapeShown apart,
	// as Prometheus would make them: an alert that fires after five minutes needs 20 scrapes.
	ScrapeEvery = 300 * time.Millisecond
	scrapeShown = 15 * time.Second
)

// Scrapes are the samples of all brokers, as the input of promtool's unit tests.
type Scrapes struct {
	C      *Cluster
	Every  time.Duration
	epoch  time.Time      // the rules see it as the beginning of 1970
	used   *regexp.Regexp // the metrics of the rules
	Taken  int
	Series map[string][]string // values, "_" where there is none
	checks []string            // of promql_expr_test
}

// NewScrapes returns no scrapes of a cluster yet.
func NewScrapes(c *Cluster) *Scrapes {
	rules, err := os.ReadFile(alertRules)
	require.NoError(c.T, err)
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`lockstep_[a-z_]+`).FindAllString(string(rules), -1) {
		names[name] = true
	}
	used := regexp.MustCompile(`^(` + strings.Join(slices.Collect(maps.Keys(names)), "|") + `)[{ ]`)
	return &Scrapes{C: c, Every: ScrapeEvery, epoch: time.Now(), used: used, Series: map[string][]string{}}
}

// Scrape reads the metrics of all brokers n times.
func (s *Scrapes) Scrape(n int) {
	for range n {
		began := time.Now()
		for _, b := range s.C.Brokers {
			labels := fmt.Sprintf(`cluster="c",instance="%s",job="lockstep"`, b.Name)
			text, err := s.Get(b.HTTP)
			up := "1"
			if err != nil {
				up = "0"
			}
			s.add(`up{`+labels+`}`, up)
			for line := range strings.Lines(text) {
				if !s.used.MatchString(line) {
					continue
				}
				at := strings.LastIndexByte(line, ' ')
				name, rest, labelled := strings.Cut(line[:at], "{")
				if !labelled {
					rest = "}"
				} else {
					rest = "," + rest
				}
				value := strings.TrimSpace(line[at:])
				if strings.HasSuffix(name, "_timestamp_seconds") {
					value = s.sinceEpoch(value)
				}
				s.add(name+"{"+labels+rest, value)
			}
		}
		s.Taken++
		Pause(time.Until(began.Add(s.Every)))
	}
}

// sinceEpoch moves a time: the clock of the rules begins with the scrapes.
func (s *Scrapes) sinceEpoch(value string) string {
	unix, err := strconv.ParseFloat(value, 64)
	require.NoError(s.C.T, err)
	return fmt.Sprint(int64(unix) - s.epoch.Unix())
}

// Get returns the text of a scrape.
func (s *Scrapes) Get(address string) (string, error) {
	resp, err := s.C.HTTP.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), err
}

// add adds the value of this scrape. A series that is missing in between is stale.
func (s *Scrapes) add(series, value string) {
	values := s.Series[series]
	for len(values) < s.Taken {
		gap := "_"
		if n := len(values); n > 0 && values[n-1] != "_" {
			gap = "stale"
		}
		values = append(values, gap)
	}
	s.Series[series] = append(values, value)
}

// Expect notes that after the scrapes so far these alerts fire; without any, that none does; with
// "quiet" before them, that these do not.
func (s *Scrapes) Expect(alerts ...string) {
	test := func(name, sample string) { s.check(`alertname=~"`+name+`"`, sample) }
	switch {
	case len(alerts) == 0:
		test(".*", "")
	case alerts[0] == "quiet":
		test(strings.Join(alerts[1:], "|"), "")
	default:
		for _, name := range alerts {
			test(name, fmt.Sprintf(`{labels: '{alertname="%s"}', value: 1}`, name))
		}
	}
}

// away are the alerts of a broker that goes and comes back, or of an election of the metadata. The rules see a pause of half a
// second as minutes, so a slow machine may make them fire in any test.
var away = []string{
	"LockstepBrokerDown", "LockstepNotScraped", "LockstepPartitionsLeaderless", "LockstepReplicaBehind", "LockstepUnderReplicated",
	"LockstepInSyncSetsUnstable", "LockstepMetadataSilent",
}

// Only notes that after the scrapes so far none but these alerts fire, and those of a broker that was away.
func (s *Scrapes) Only(alerts ...string) {
	s.check(`alertname!~"`+strings.Join(slices.Concat(alerts, away), "|")+`"`, "")
}

// check notes which of the firing alerts that a matcher selects there are after the scrapes so far.
func (s *Scrapes) check(matcher, sample string) {
	at := time.Duration(s.Taken-1) * scrapeShown
	s.checks = append(s.checks, fmt.Sprintf(`      - {expr: 'count by (alertname) (ALERTS{alertstate="firing", %s}) > bool 0', eval_time: %s, exp_samples: [%s]}`+"\n", matcher, at, sample))
}

// Judge has promtool evaluate the rules over the scrapes.
func (s *Scrapes) Judge(promtool string) {
	t := s.C.T
	t.Helper()
	rules, err := filepath.Abs(alertRules)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: %s\ntests:\n  - interval: %[2]s\n    input_series:\n", rules, scrapeShown)
	for _, name := range slices.Sorted(maps.Keys(s.Series)) {
		values := s.Series[name]
		if len(values) < s.Taken {
			values = append(values, "stale")
		}
		fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", name, strings.Join(values, " "))
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n%s", strings.Join(s.checks, ""))
	file := filepath.Join(s.C.Dir, "alerts_test.yml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Walking skips a test that is a part of the long walk alone.
func Walking(t *testing.T) {
	t.Helper()
	Processes(t)
	if !env.Long() {
		env.Skip(t, "run by make walk (LOCKSTEP_LONG=1)")
	}
}
