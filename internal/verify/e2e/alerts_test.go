package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

const (
	alertRules = "../../../contrib/prometheus/alerts.yml"
	// scrapeEvery is the usual time between two scrapes of a test. The rules see them scrapeShown apart,
	// as Prometheus would make them: an alert that fires after five minutes needs 20 scrapes.
	scrapeEvery = 300 * time.Millisecond
	scrapeShown = 15 * time.Second
)

// TestAlertsFire feeds the alerts with real scrapes of three brokers: when all is well none fires,
// when one broker is killed those for a lost broker, when a second one is killed those for messages
// on one disk, and none of them when the brokers are back.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		env.Missing(t, "promtool (package prometheus)", err)
	}
	c := start(t, 3, "--leader-hold=1s", "--put-hold=2s")
	c.create("orders", "billing", 3)
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {"single"}, "partitions": {"3"}, "replication_factor": {"1"}, "min_in_sync": {"1"}})
	c.whole("single")
	s := newScrapes(c)

	s.scrape(8)
	s.expect() // nothing
	c.kill("n3")
	s.scrape(25)
	s.expect("LockstepBrokerDown", "LockstepNotScraped", "LockstepPartitionsLeaderless", "LockstepReplicaBehind", "LockstepUnderReplicated")
	c.kill("n2")
	var puts sync.WaitGroup
	for range 22 {
		puts.Go(func() { s.refusedPut(c.Brokers[0].HTTP) })
		s.scrape(1)
	}
	s.expect("LockstepMessagesUnsafe", "LockstepPutsWouldBeRefused", "LockstepMetadataSilent", "LockstepPutsFail", "LockstepBrokerNotReady")
	puts.Wait()
	require.NoError(t, c.Start("n2"))
	require.NoError(t, c.Start("n3"))
	c.readyAgain("n2")
	c.readyAgain("n3")
	c.whole("orders")
	s.scrape(10)
	s.expect("quiet", "LockstepBrokerDown", "LockstepPartitionsLeaderless", "LockstepMessagesUnsafe", "LockstepPutsWouldBeRefused",
		"LockstepMetadataSilent", "LockstepBrokerNotReady", "LockstepNotScraped", "LockstepReplicaBehind", "LockstepUnderReplicated")
	s.judge(promtool)
}

// scrapes are the samples of all brokers, as the input of promtool's unit tests.
type scrapes struct {
	c      *cluster
	every  time.Duration
	epoch  time.Time      // the rules see it as the beginning of 1970
	used   *regexp.Regexp // the metrics of the rules
	taken  int
	series map[string][]string // values, "_" where there is none
	checks []string            // of promql_expr_test
}

func newScrapes(c *cluster) *scrapes {
	rules, err := os.ReadFile(alertRules)
	require.NoError(c.t, err)
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`lockstep_[a-z_]+`).FindAllString(string(rules), -1) {
		names[name] = true
	}
	used := regexp.MustCompile(`^(` + strings.Join(slices.Collect(maps.Keys(names)), "|") + `)[{ ]`)
	return &scrapes{c: c, every: scrapeEvery, epoch: time.Now(), used: used, series: map[string][]string{}}
}

// scrape reads the metrics of all brokers n times.
func (s *scrapes) scrape(n int) {
	for range n {
		began := time.Now()
		for _, b := range s.c.Brokers {
			labels := fmt.Sprintf(`cluster="c",instance="%s",job="lockstep"`, b.Name)
			text, err := s.get(b.HTTP)
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
		s.taken++
		pause(time.Until(began.Add(s.every)))
	}
}

// sinceEpoch moves a time: the clock of the rules begins with the scrapes.
func (s *scrapes) sinceEpoch(value string) string {
	unix, err := strconv.ParseFloat(value, 64)
	require.NoError(s.c.t, err)
	return fmt.Sprint(int64(unix) - s.epoch.Unix())
}

// refusedPut publishes to a broker that cannot store.
func (s *scrapes) refusedPut(address string) {
	resp, err := s.c.http.Post("http://"+address+"/pub?topic=orders", "", strings.NewReader("x"))
	if err != nil {
		return // the put is counted when its time is over
	}
	_ = resp.Body.Close()
	assert.NotEqual(s.c.t, http.StatusOK, resp.StatusCode)
}

func (s *scrapes) get(address string) (string, error) {
	resp, err := s.c.http.Get("http://" + address + "/metrics")
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
func (s *scrapes) add(series, value string) {
	values := s.series[series]
	for len(values) < s.taken {
		gap := "_"
		if n := len(values); n > 0 && values[n-1] != "_" {
			gap = "stale"
		}
		values = append(values, gap)
	}
	s.series[series] = append(values, value)
}

// expect notes that after the scrapes so far these alerts fire; without any, that none does; with
// "quiet" before them, that these do not.
func (s *scrapes) expect(alerts ...string) {
	at := time.Duration(s.taken-1) * scrapeShown
	test := func(name, sample string) {
		s.checks = append(s.checks, fmt.Sprintf(`      - {expr: 'count by (alertname) (ALERTS{alertstate="firing", alertname=~"%s"}) > bool 0', eval_time: %s, exp_samples: [%s]}`+"\n", name, at, sample))
	}
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

// judge has promtool evaluate the rules over the scrapes.
func (s *scrapes) judge(promtool string) {
	t := s.c.t
	t.Helper()
	rules, err := filepath.Abs(alertRules)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: %s\ntests:\n  - interval: %[2]s\n    input_series:\n", rules, scrapeShown)
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		values := s.series[name]
		if len(values) < s.taken {
			values = append(values, "stale")
		}
		fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", name, strings.Join(values, " "))
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n%s", strings.Join(s.checks, ""))
	file := filepath.Join(s.c.dir, "alerts_test.yml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// last is the largest value of a metric of a broker in the last scrape, 0 without any.
func (s *scrapes) last(metric, broker string) (largest float64) {
	for series, values := range s.series {
		if name, labels, _ := strings.Cut(series, "{"); name == metric && strings.Contains(labels, `instance="`+broker+`"`) && len(values) == s.taken {
			v, err := strconv.ParseFloat(values[len(values)-1], 64)
			if err == nil {
				largest = max(largest, v)
			}
		}
	}
	return largest
}
