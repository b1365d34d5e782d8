package alerts

import (
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestAlertsFire feeds the alerts with real scrapes of three brokers: when all is well none fires,
// when one broker is killed those for a lost broker, when a second one is killed those for messages
// on one disk, and none of them when the brokers are back.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		env.Missing(t, "promtool (package prometheus)", err)
	}
	c := e2etest.Start(t, 3, "--leader-hold=1s", "--put-hold=2s")
	c.Create("orders", "billing", 3)
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {"single"}, "partitions": {"3"}, "replication_factor": {"1"}, "min_in_sync": {"1"}})
	c.Whole("single")
	s := e2etest.NewScrapes(c)

	s.Scrape(8)
	s.Expect() // nothing
	c.Crash("n3")
	s.Scrape(25)
	lost := []string{"LockstepBrokerDown", "LockstepNotScraped", "LockstepPartitionsLeaderless", "LockstepReplicaBehind", "LockstepUnderReplicated"}
	s.Expect(lost...)
	s.Only(lost...)
	c.Crash("n2")
	var puts sync.WaitGroup
	for range 22 {
		puts.Go(func() { refusedPut(s, c.Brokers[0].HTTP) })
		s.Scrape(1)
	}
	unsafe := []string{"LockstepMessagesUnsafe", "LockstepPutsWouldBeRefused", "LockstepMetadataSilent", "LockstepPutsFail", "LockstepBrokerNotReady"}
	s.Expect(unsafe...)
	s.Only(slices.Concat(lost, unsafe)...)
	puts.Wait()
	require.NoError(t, c.Start("n2"))
	require.NoError(t, c.Start("n3"))
	c.ReadyAgain("n2")
	c.ReadyAgain("n3")
	c.Whole("orders")
	s.Scrape(10)
	s.Expect("quiet", "LockstepBrokerDown", "LockstepPartitionsLeaderless", "LockstepMessagesUnsafe", "LockstepPutsWouldBeRefused",
		"LockstepMetadataSilent", "LockstepBrokerNotReady", "LockstepNotScraped", "LockstepReplicaBehind", "LockstepUnderReplicated")
	s.Judge(promtool)
}

// refusedPut publishes to a broker that cannot store.
func refusedPut(s *e2etest.Scrapes, address string) {
	resp, err := s.C.HTTP.Post("http://"+address+"/pub?topic=orders", "", strings.NewReader("x"))
	if err != nil {
		return // the put is counted when its time is over
	}
	_ = resp.Body.Close()
	assert.NotEqual(s.C.T, http.StatusOK, resp.StatusCode)
}

// last is the largest value of a metric of a broker in the last scrape, 0 without any.
func last(s *e2etest.Scrapes, metric, broker string) (largest float64) {
	for series, values := range s.Series {
		if name, labels, _ := strings.Cut(series, "{"); name == metric && strings.Contains(labels, `instance="`+broker+`"`) && len(values) == s.Taken {
			v, err := strconv.ParseFloat(values[len(values)-1], 64)
			if err == nil {
				largest = max(largest, v)
			}
		}
	}
	return largest
}
