package stock

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// The client whose own tests are run, and the variable that marks the second run of
// the test binary, with the suite built.
const (
	goNSQ    = "github.com/nsqio/go-nsq"
	suiteEnv = "LOCKSTEP_E2E_SUITE"
)

// TestConformanceGoNSQ runs the tests of go-nsq against a lone broker and against
// a broker of a cluster that leads nothing. Those tests dial 127.0.0.1:4150 and
// :4151, so all of it happens in a network namespace of its own.
func TestConformanceGoNSQ(t *testing.T) {
	e2etest.Processes(t)
	if !env.Long() {
		env.Skip(t, "run by make conformance (LOCKSTEP_LONG=1)")
	}
	suite := os.Getenv(suiteEnv)
	if suite == "" {
		e2etest.InNamespace(t, suiteEnv+"="+buildSuite(t))
		return
	}
	t.Run("one broker", func(t *testing.T) {
		c := conformanceCluster(t, suite, 1)
		require.NoError(t, c.StartAll())
		c.WaitReady()
		runSuite(t, suite)
	})
	t.Run("a broker that leads nothing", func(t *testing.T) {
		c := conformanceCluster(t, suite, 3)
		startWithoutLeading(c, t, c.Brokers[0])
		runSuite(t, suite)
		require.NotEmpty(t, c.Topics())
		for _, topic := range c.Topics() {
			require.NotEqual(t, c.Brokers[0].Name, string(topic.Partitions[0].Leader), topic.Topic)
		}
	})
}

// buildSuite builds the tests of the module that this one depends on, in a
// writable copy of it.
func buildSuite(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", goNSQ).Output()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "go-nsq")
	require.NoError(t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(out)))))
	cmd := exec.Command("go", "test", "-mod=mod", "-c", "-o", "suite.test", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// conformanceCluster prepares brokers with the suite's certificates, the first
// at the default ports.
func conformanceCluster(t *testing.T, suite string, brokers int) *e2etest.Cluster {
	t.Helper()
	file := func(name string) string { return filepath.Join(suite, "test", name) }
	return e2etest.LayOut(t, 4150, brokers, "--replication-factor="+fmt.Sprint(max(1, brokers-1)),
		"--tls-cert="+file("server.pem"), "--tls-key="+file("server.key"), "--tls-root-ca-file="+file("ca.pem"),
		"--https-address=127.0.0.1:0")
}

// runSuite runs the tests of go-nsq; all of them pass, and no fewer than there are.
func runSuite(t *testing.T, suite string) {
	t.Helper()
	cmd := exec.Command("./suite.test", "-test.v", "-test.timeout=120s", "-test.skip="+withoutBroker)
	cmd.Dir = suite
	out, err := cmd.CombinedOutput()
	passed, failed := bytes.Count(out, []byte("--- PASS")), bytes.Count(out, []byte("--- FAIL"))
	t.Logf("go-nsq's own tests: %d passed, %d failed", passed, failed)
	if err != nil {
		t.Logf("%s", out)
	}
	require.NoError(t, err)
	require.GreaterOrEqual(t, passed, suiteTests)
}

const (
	// withoutBroker are tests that dial a server of their own: they prove nothing
	// about us, and some need the same free port twice, which a busy machine denies.
	withoutBroker = "^TestConsumer(Backoff|BackoffDisconnect|RequeueNoBackoff|Pause|LookupdAuthorization)$"
	// suiteTests is how many others go-nsq v1.1.0 has.
	suiteTests = 19
)

// suiteTopics are the topics that the suite uses; most get the second of their
// test behind the name.
var suiteTopics = []string{
	"rdr_test", "rdr_test_deflate", "rdr_test_snappy", "rdr_test_tls", "rdr_test_deflate_tls", "rdr_test_snappy_tls",
	"publish", "multi_publish", "async_publish", "heartbeat",
}

// startWithoutLeading makes the suite's topics, for each second in which it may
// run, while one broker is not there: with two replicas each, the other two have
// them all. Then it starts that broker too.
func startWithoutLeading(c *e2etest.Cluster, t *testing.T, idle devcluster.Broker) {
	t.Helper()
	const lead, window = 20 * time.Second, 60 // until the first second; seconds
	others := c.Brokers[1:]
	for _, b := range others {
		require.NoError(t, c.Start(b.Name))
	}
	first := time.Now().Add(lead)
	names := []string{"write_test"}
	for second := range window {
		for _, name := range suiteTopics {
			names = append(names, fmt.Sprint(name, first.Unix()+int64(second)))
		}
	}
	c.Until("two brokers that take puts", func() bool { return readyNow(c, others...) })
	createAll(c, others[0], names)
	t.Logf("%d topics, %s before the first is used", len(names), time.Until(first).Round(time.Millisecond))
	require.NoError(t, c.Start(idle.Name))
	c.WaitReady()
	c.Until("the first second", func() bool { return time.Now().After(first) })
}

func readyNow(c *e2etest.Cluster, brokers ...devcluster.Broker) bool {
	for _, b := range brokers {
		resp, err := c.HTTP.Get("http://" + b.HTTP + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			return false
		}
	}
	return true
}

// createAll makes topics, several at a time.
func createAll(c *e2etest.Cluster, b devcluster.Broker, names []string) {
	work := make(chan string, len(names))
	for _, name := range names {
		work <- name
	}
	close(work)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for name := range work {
				resp, err := c.HTTP.Post("http://"+b.HTTP+"/topic/create?"+url.Values{"topic": {name}}.Encode(), "", nil)
				if err != nil {
					c.T.Errorf("create %s: %v", name, err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					c.T.Errorf("create %s: %s", name, resp.Status)
				}
			}
		})
	}
	wg.Wait()
}
