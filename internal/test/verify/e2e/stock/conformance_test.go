package stock

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/stocknsq"
)

// The client whose own tests are run, and the variable that marks the second run of
// the test binary, with the suite built.
const (
	goNSQ    = "github.com/nsqio/go-nsq"
	suiteEnv = "LOCKSTEP_E2E_SUITE"
)

// inNamespace returns the directory of a suite to the second run of its test. That run has a network of its own, because the
// suites use the default ports. The first run prepares the suite, and starts the second one.
func inNamespace(t *testing.T, prepare func(*testing.T) string) (suite string, second bool) {
	t.Helper()
	e2etest.Processes(t)
	if !env.Long() {
		env.Skip(t, "run by make conformance (LOCKSTEP_LONG=1)")
	}
	if suite = os.Getenv(suiteEnv); suite != "" {
		return suite, true
	}
	e2etest.InNamespace(t, suiteEnv+"="+prepare(t))
	return "", false
}

// TestConformanceGoNSQ runs the tests of go-nsq against a lone broker, against a broker of a cluster that leads nothing, and
// against the broker that go-nsq's test.sh starts itself, 0.3 s before the first test.
func TestConformanceGoNSQ(t *testing.T) {
	suite, second := inNamespace(t, buildSuite)
	if !second {
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
	t.Run("a broker that test.sh starts", func(t *testing.T) {
		script := rewritten(t, filepath.Join(suite, "test.sh"), "--data-path=/tmp", "--data-path="+t.TempDir())
		bin, err := filepath.Abs(filepath.Join(e2etest.Root, "bin", "nsq-"+stocknsq.Version))
		require.NoError(t, err)
		lookupd := stocknsq.Apps(t, bin, "nsqlookupd")
		environment := append(withBrokers(string(lookupd)), "GOFLAGS=-mod=mod", "GOWORK=off", "NSQD_TCP_ADDRESS=127.0.0.1:4150",
			"NSQD_HTTP_ADDRESS=127.0.0.1:4151", "NSQD_HTTPS_ADDRESS=127.0.0.1:4152") // an open port on all interfaces is refused
		out := runSuiteThatStarts(t, suite, environment, "bash", script)
		require.Equal(t, suiteTests+withoutBrokerTests, strings.Count(out, "--- PASS"), "%s", out)
	})
}

// TestConformanceNSQJS runs the tests of nsqjs. They start a broker for each test, with a new data path, and
// use it as soon as /ping answers.
func TestConformanceNSQJS(t *testing.T) {
	suite, second := inNamespace(t, installNSQJS)
	if !second {
		return
	}
	out := runSuiteThatStarts(t, suite, withBrokers(), "node", "../mocha/bin/mocha", "--reporter", "spec")
	require.Regexp(t, fmt.Sprintf(`\n +%d passing`, nsqjsTests), out)
	require.NotRegexp(t, `\d+ (failing|pending)`, out)
}

// installNSQJS installs nsqjs, whose package has its tests, and the packages that the tests require.
func installNSQJS(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "nsqjs@0.13.0", "mocha@9.2.2", "async-retry@1.3.3",
		"debug@4.4.3", "nock@13.5.6", "p-event@4.2.0", "should@13.2.3", "sinon@11.1.2", "snappystream@2.1.1", "temp@0.9.4")
	install.Dir = home
	if out, err := install.CombinedOutput(); err != nil {
		env.Missing(t, "the npm package nsqjs", fmt.Sprintf("%v: %s", err, out))
	}
	return filepath.Join(home, "node_modules", "nsqjs")
}

// withBrokers is this environment with our nsqd, and these directories, before all others in PATH.
func withBrokers(more ...string) []string {
	path := append([]string{filepath.Dir(e2etest.Built.Path("nsqd"))}, more...)
	return append(os.Environ(), "PATH="+strings.Join(append(path, os.Getenv("PATH")), string(filepath.ListSeparator)))
}

// runSuiteThatStarts runs a suite that starts brokers itself, and returns its output. At its end it kills the brokers that a
// failed suite leaves behind.
func runSuiteThatStarts(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = cmd.Cancel() // the group is gone already if nothing was left behind
	}
	require.NoError(t, err, "%s", out)
	return string(out)
}

// rewritten replaces a text in a file, which has it, and returns the name of the file.
func rewritten(t *testing.T, file, before, after string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), before)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), before, after)), 0o755))
	return file
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
	// suiteTests is how many others go-nsq v1.1.0 has, nsqjsTests how many nsqjs 0.13.0 has.
	withoutBrokerTests, suiteTests, nsqjsTests = 5, 19, 171
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
	require.NoError(t, c.StartAll()) // all of them found the cluster
	c.WaitReady()
	c.Crash(idle.Name)
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
	c.Restart(idle.Name)
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
