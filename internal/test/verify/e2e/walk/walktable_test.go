package walk

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// signs names for each row of "When something is wrong" (docs/operations/failures.md), by the beginning of its
// sign, a test that causes the failure and requires the sign: of this package, or PACKAGE.TestName.
var signs = map[string]string{
	"a topic without a leader":                               "TestWalkOfTheTable",
	"`not enough in-sync replicas":                           "TestWalkOfTheTable",
	"`no leader, not stored`":                                "TestWalkOfTheTable",
	"`in doubt, may be stored`":                              "TestWalkOfTheTable",
	"`is reachable from the network":                         "TestWalkOfAnExposedPort",
	"`left out lines of a message":                           "TestAlertsOfClients",
	"`data path … another process uses it`":                  "TestWalkOfTheTable",
	"`the data path was removed":                             "TestWalkOfTheTable",
	"`holds the queues of a stock nsqd`":                     "TestWalkOfTheTable",
	"`its files are damaged`":                                "TestWalkOfTheTable",
	"`the disk is full; make room":                           "coordinator/metadata/etcd.TestWhyEtcdGivesUp",
	"`the operating system refuses access":                   "TestWalkOfForeignDisks",
	"`waiting for n3: no metadata directory":                 "TestWalkOfAStart",
	"`waiting for …: the data path is a copy":                "TestWalkOfForeignDisks",
	"`waiting for …: the metadata directory":                 "TestWalkOfTheTable",
	"`waiting for n1: n1 runs on an old copy":                "TestWalkOfAFork",
	"`The metadata has two histories`":                       "TestWalkOfTwoHistories",
	"`belongs to another foundation`":                        "TestWalkOfForeignDisks",
	"`acknowledged data may be missing":                      "TestWalkOfRefusedStarts",
	"`waiting for the metadata: …`":                          "cmd/nsqd.TestWaitsForAnExternalEtcd",
	"`cannot reach the metadata`":                            "TestWalkOfTheTable",
	"puts at one broker wait for seconds":                    "TestWalkOfACutOffBroker",
	"`this broker needs a --node-name of its own`":           "TestCopiedConfigurationHurtsNobody",
	"`mvcc: database space exceeded`":                        "TestAlertOfTheMetadata",
	"`not the certificate of the broker: …`":                 "TestWalkOfCertificates",
	"`it refuses this broker":                                "TestGuideSecureCluster",
	"`other brokers will refuse this one's certificate`":     "TestWalkOfCertificates",
	"`1 of 3 members of the metadata run, 2 are needed":      "TestWalkOfTheTable",
	"`another process was started under this broker's name`": "TestWalkOfATwin",
	"`stalled: …`":                                           "TestAlertsOfADisk",
	"`registration lost`":                                    "TestAlertsOfStops",
	"`address already in use`":                               "TestWalkOfTheTable",
}

// TestWalkOfTheTable causes the failures of the table one after another.
func TestWalkOfTheTable(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 3, "--leader-hold=1s", "--put-hold=2s")
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	single := c.OnOneDisk("n3")
	w := e2etest.NewWalk(c)
	n3 := c.Brokers[2]

	f := w.Fail("no-leader", "n3 is killed; a topic has one replica", "n1", func() { c.Crash("n3") })
	f.Shown("no_leader")
	f.Asked(2, "no live leader")
	answered(c, single, "no leader, not stored")
	c.Restart("n3")
	f.Gone("no_leader")
	f.Noted()
	c.Whole(e2etest.Topic)
	c.Until("n1 to lead again", func() bool { return c.Preferred(e2etest.Topic) })

	f = w.Fail("below-minimum", "n2 and n3 are killed", "n1", func() { c.Crash("n2"); c.Crash("n3") })
	f.Shown("below_minimum")
	answered(c, e2etest.Topic, "not enough in-sync replicas")
	f.Asked(2, "fewer in-sync replicas answer than the minimum")
	f.Noted()
	g := &e2etest.Failure{W: w, Name: "metadata-silent", Row: "the same: the majority of etcd is away", Looked: f.Looked, Caused: f.Caused, Cli: f.Cli}
	g.Shown("metadata_silent")
	g.Asked(2, "n1 has had no answer from etcd")
	require.NoError(t, c.Start("n2"))
	require.NoError(t, c.Start("n3"))
	c.ReadyAgain("n2")
	c.ReadyAgain("n3")
	g.Gone("metadata_silent")
	g.Noted()
	c.Whole(e2etest.Topic)
	c.Until("n1 to lead again", func() bool { return c.Preferred(e2etest.Topic) })

	f = w.Fail("in-doubt", "both followers of a leader stand still while it commits", "n1", func() {
		require.NoError(t, c.Signal("n2", syscall.SIGSTOP))
		require.NoError(t, c.Signal("n3", syscall.SIGSTOP))
	})
	answered(c, e2etest.Topic, "in doubt, may be stored")
	f.Shown("below_minimum")
	f.Asked(2, "")
	require.NoError(t, c.Signal("n2", syscall.SIGCONT))
	require.NoError(t, c.Signal("n3", syscall.SIGCONT))
	f.Gone("below_minimum")
	f.Noted()
	c.Whole(e2etest.Topic)

	require.Contains(t, startsNot(c, "n3", ""), "another process uses it")
	require.Contains(t, startsNot(c, "n3", t.TempDir()), "address already in use")
	stock := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(stock, "nsqd.dat"), []byte("{}"), 0o600))
	require.Contains(t, startsNot(c, "n3", stock), "holds the queues of a stock nsqd")

	f = w.Fail("path-removed", "the data path of n3 is moved away while it runs", "n1", func() {
		c.Down.Begin("n3")
		require.NoError(t, os.Rename(n3.DataDir, n3.DataDir+".moved"))
	})
	f.Shown("broker_dead")
	f.Asked(2, "1 broker is dead")
	c.Until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.Contains(t, c.Logged("n3"), "the data path was removed, or another one put in its place")
	require.NoError(t, os.RemoveAll(n3.DataDir))
	require.NoError(t, os.Rename(n3.DataDir+".moved", n3.DataDir))
	c.Restart("n3")
	f.Gone("broker_dead")
	f.Noted()
	c.Whole(e2etest.Topic)

	f = w.Fail("etcd-damaged", "a byte of n3's etcd log is damaged while n3 is down, and n3 is started", "n1", func() {
		c.Crash("n3")
		logs, err := filepath.Glob(filepath.Join(n3.DataDir, "etcd", "member", "wal", "*.wal"))
		require.NoError(t, err)
		require.NotEmpty(t, logs)
		text, err := os.ReadFile(logs[0])
		require.NoError(t, err)
		text[600] ^= 0xff
		require.NoError(t, os.WriteFile(logs[0], text, 0o600))
		require.NoError(t, c.Start("n3"))
	})
	f.Shown("broker_dead")
	f.Asked(2, "1 broker is dead")
	c.Until("the reason", func() bool { return strings.Contains(c.Logged("n3"), "its files are damaged") })
	c.Until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.NoError(t, os.Rename(filepath.Join(n3.DataDir, "etcd"), filepath.Join(t.TempDir(), "etcd")))
	c.Restart("n3")
	f.Gone("broker_dead")
	f.Noted()
	c.Whole(e2etest.Topic)

	c.CrashAll()
	require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
	require.NoError(t, c.Start("n3"))
	waits(c, "n3", "the metadata directory of this broker is gone")
	require.NoError(t, c.Start("n1"))
	waits(c, "n1", "members of the metadata run, 2 are needed")
	out, err := c.Nsqctl("cluster", "health")
	require.Error(t, err)
	t.Logf("nsqctl of a broker that waits: %s", out)
	require.NoError(t, c.Start("n2"))
	for _, name := range e2etest.Names(c) {
		c.ReadyAgain(name)
	}
	c.Whole(e2etest.Topic)
}

// answered publishes to n1 until a put is answered with a text.
func answered(c *e2etest.Cluster, topic, text string) {
	c.T.Helper()
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	last := ""
	for end := time.Now().Add(e2etest.WaitLimit); !strings.Contains(last, text); {
		if time.Now().After(end) {
			c.T.Fatalf("no put is answered %q; the last: %s", text, last)
		}
		resp, err := client.Post("http://"+c.Brokers[0].HTTP+"/pub?topic="+topic, "", strings.NewReader("x"))
		require.NoError(c.T, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(c.T, err)
		require.NoError(c.T, resp.Body.Close())
		last = string(body)
	}
}

// startsNot runs nsqd with the flags of a broker that runs, and another data path if one is given, and
// returns its log.
func startsNot(c *e2etest.Cluster, name, dataPath string) string {
	c.T.Helper()
	args, err := c.Args(name)
	require.NoError(c.T, err)
	if dataPath != "" {
		args = append(slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--data-path=") }), "--data-path="+dataPath)
	}
	var out bytes.Buffer
	cmd := exec.Command(e2etest.Built.Path("nsqd"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.T, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.Error(c.T, err)
	case <-time.After(e2etest.WaitLimit):
		_ = cmd.Process.Kill()
		c.T.Fatalf("nsqd goes on: %s", &out)
	}
	return out.String()
}

// TestWalkOfAStart: two brokers of a new cluster of three are started.
func TestWalkOfAStart(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3)
	require.NoError(t, c.Start("n1"))
	require.NoError(t, c.Start("n2"))
	waits(c, "n1", "waiting for n3: no metadata directory; a new cluster is founded when all its members are there")
	require.NoError(t, c.Start("n3"))
	c.WaitReady()
}

// TestWalkOfCertificates: a broker gets a certificate without its name, then one that has expired.
func TestWalkOfCertificates(t *testing.T) {
	e2etest.Walking(t)
	ca := certs.New(t)
	ca.Issue("broker", "n1", "n2", "n3")
	c := e2etest.Start(t, 3, "--rpc-tls-cert="+ca.File("broker.pem"), "--rpc-tls-key="+ca.File("broker.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	f := w.Fail("certificate-name", "n3 is started with a certificate that has not its name", "n1", func() {
		c.Crash("n3")
		ca.Issue("broker", "n1", "n2", "other")
		require.NoError(t, c.Start("n3"))
	})
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	c.Until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.Contains(t, c.Logged("n3"), "not the certificate of the broker")
	ca.Issue("broker", "n1", "n2", "n3")
	c.Restart("n3")
	f.Gone("broker_dead")
	f.Noted()
	c.Whole(e2etest.Topic)
	f = w.Fail("certificate-expired", "the certificate of n3 has expired when it is started", "n1", func() {
		c.Crash("n3")
		ca.IssueUntil(time.Now().Add(-time.Hour), "broker", "n1", "n2", "n3")
		require.NoError(t, c.Start("n3"))
	})
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	c.Until("the reason", func() bool {
		return strings.Contains(c.Logged("n3"), "other brokers will refuse this one's certificate")
	})
	ca.Issue("broker", "n1", "n2", "n3")
	c.ReadyAgain("n3")
	f.Gone("broker_dead")
	f.Noted()
}

// TestWalkOfADisk: a broker that has lost its etcd directory is started on a full disk.
func TestWalkOfADisk(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3)
	n3 := c.Brokers[2]
	c.OwnDataPath(n3, 512<<20)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	full := filepath.Join(n3.DataDir, "another-program")
	f := w.Fail("etcd-disk-full", "n3 is started on a full disk, without its etcd directory", "n1", func() {
		c.Crash("n3")
		require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
		e2etest.FillDisk(t, full, 0)
		require.NoError(t, c.Start("n3"))
	})
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	waits(c, "n3", "no space left on device")
	e2etest.Pause(time.Second) // more attempts
	require.Equal(t, 1, strings.Count(c.Logged("n3"), "about to join the cluster"), "the log of each attempt to join")
	require.NoError(t, os.Remove(full))
	c.ReadyAgain("n3") // by itself
	f.Gone("broker_dead")
	f.Noted()
}

// TestWalkOfATwin: n2 stands still until its registration has ended, and a process of its name is started.
func TestWalkOfATwin(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.External(t, e2etest.ExternalEtcd(t).Endpoint, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	f := w.Fail("twin", "n2 stands still for 5 s, and another process is started under its name", "n1", func() {
		require.NoError(t, c.Signal("n2", syscall.SIGSTOP))
	})
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	c.Until("the end of the registration", func() bool { return c.BrokerView("n2").Incarnation == 0 })
	twin := startTwin(c, "n2")
	c.Until("the twin to register", func() bool { return c.BrokerView("n2").Incarnation != 0 })
	require.NoError(t, c.Signal("n2", syscall.SIGCONT))
	c.Until("n2 to end", func() bool { return slices.Contains(c.Dead(), "n2") })
	require.Contains(t, c.Logged("n2"), "another process was started under this broker's name")
	require.NoError(t, twin.Process.Kill())
	_ = twin.Wait() // "signal: killed"
	c.Down.Begin("n2")
	c.Restart("n2")
	f.Gone("broker_dead")
	f.Noted()
}

// startTwin starts a process under the name of a broker, with another data path and other ports.
func startTwin(c *e2etest.Cluster, name string) *exec.Cmd {
	c.T.Helper()
	args, err := c.Args(name)
	require.NoError(c.T, err)
	own := []string{"--data-path=" + c.T.TempDir()}
	port := e2etest.FreePorts(c.T, 1)
	for i, kind := range []string{"tcp", "http", "https", "rpc"} {
		own = append(own, fmt.Sprintf("--%s-address=127.0.0.1:%d", kind, port+i))
	}
	args = slices.DeleteFunc(args, func(a string) bool {
		flag, _, _ := strings.Cut(a, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, flag+"=") })
	})
	log, err := os.Create(filepath.Join(c.T.TempDir(), "twin.log"))
	require.NoError(c.T, err)
	defer log.Close()
	cmd := exec.Command(e2etest.Built.Path("nsqd"), append(args, own...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.T, cmd.Start())
	return cmd
}

// waits waits until a broker gives a reason why it is not ready.
func waits(c *e2etest.Cluster, name, reason string) {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	c.Until(name+" to say: "+reason, func() bool {
		resp, err := c.HTTP.Get("http://" + b.HTTP + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), reason)
	})
}

// TestEachSignHasItsCause: each row of the table has a test that causes its failure.
func TestEachSignHasItsCause(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/operations/failures.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\n## When something is wrong\n")
	table, _, found := strings.Cut(rest, "\nCommands that change nothing")
	require.True(t, found)
	rows := regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1)[1:]
	require.Len(t, rows, len(signs))
	for _, row := range rows {
		n := 0
		for sign := range maps.Keys(signs) {
			if strings.HasPrefix(row[1], sign) {
				n++
			}
		}
		assert.Equal(t, 1, n, "signs that begin the row %s", row[1])
	}
	for sign, test := range signs {
		dir := "../*" // the packages of e2e
		if at := strings.LastIndex(test, "."); at >= 0 {
			dir, test = filepath.Join("../../../../..", test[:at]), test[at+1:]
		}
		assert.True(t, hasTest(t, dir, test), "%s: there is no %s in %s", sign, test, dir)
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t ")
	})
}

// TestWalkOfRefusedStarts: processes that refuse to start alongside n3, n3 without its etcd directory and on an
// older copy of its disk, and a broker that waits for the others.
func TestWalkOfRefusedStarts(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	n3 := c.Brokers[2]

	f := w.Fail("second-process", "processes are started on the data path of n3, at its addresses, under its name, and on the path of a stock nsqd", "n1", func() {
		require.Contains(t, startsNot(c, "n3", ""), "another process uses it")
		require.Contains(t, startsNot(c, "n3", t.TempDir()), "address already in use")
		stock := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(stock, "nsqd.dat"), []byte("{}"), 0o600))
		require.Contains(t, startsNot(c, "n3", stock), "holds the queues of a stock nsqd")
		code, said := c.Twin(t, n3, true)
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "this broker needs a --node-name of its own")
	})
	f.Until("healthy", func(said string) bool { return strings.HasPrefix(said, "healthy: 3 of 3 brokers alive") })
	require.NotContains(t, w.Said(f.Looked), "acknowledged data may be missing", "new disks have lost nothing")
	f.Page = "nothing: n3 goes on"
	f.Asked(0, "healthy: 3 of 3 brokers alive")
	f.Noted()

	f = w.Fail("etcd-directory", "n3 is killed, and started without its etcd directory", "n1", func() {
		c.Crash("n3")
		require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
	})
	ends(f, "n3")

	yesterday := n3.DataDir + ".yesterday"
	c.Crash("n3")
	require.NoError(t, exec.Command("cp", "-a", n3.DataDir, yesterday).Run())
	c.Restart("n3")
	c.Whole(e2etest.Topic)
	e2etest.MultiPut(t, c.Brokers[0], e2etest.Topic, e2etest.Numbered("new", 500), 20)
	f = w.Fail("old-copy", "n3 is killed, and started on an older copy of its disk", "n1", func() {
		c.Crash("n3")
		require.NoError(t, os.RemoveAll(n3.DataDir))
		require.NoError(t, os.Rename(yesterday, n3.DataDir))
	})
	ends(f, "n3")
	require.Contains(t, c.Logged("n3"), "acknowledged data may be missing")
	f.Until("what n3 says", func(said string) bool {
		_, events, _ := strings.Cut(said, e2etest.EventsMark)
		return strings.Contains(events, "alarm: acknowledged data may be missing on the disk of n3")
	})
	c.Check(e2etest.Topic)

	f = w.Fail("waits", "all brokers are killed, and n1 alone is started", "n1", func() { c.CrashAll(); require.NoError(t, c.Start("n1")) })
	const reason = "1 of 3 members of the metadata run, 2 are needed"
	noPage(f, reason)
	f.Noted()
}

// TestWalkOfAnExternalEtcd: an external etcd is stopped, and a broker is killed and started.
func TestWalkOfAnExternalEtcd(t *testing.T) {
	e2etest.Walking(t)
	e := e2etest.ExternalEtcd(t)
	c := e2etest.External(t, e.Endpoint, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	f := w.Fail("external-etcd", "the external etcd is stopped; n3 is killed and started", "n1", func() {
		require.NoError(t, e.Cmd.Process.Kill())
		_ = e.Cmd.Wait() // "signal: killed"
		c.Crash("n3")
		require.NoError(t, c.Start("n3"))
	})
	waits(c, "n3", "waiting for the metadata")
	f.Shown("metadata_silent")
	f.Asked(2, "n1 has had no answer from etcd")
	e.Start()
	c.ReadyAgain("n3")
	f.Gone("metadata_silent")
	c.Whole(e2etest.Topic)
	f.Noted()
}

// ends is for a broker that is dead, and joins by itself when it is started: mostly before the page is asked again.
func ends(f *e2etest.Failure, broker string) {
	f.W.C.T.Helper()
	f.Shown("broker_dead")
	f.Asked(1, "1 broker is dead")
	started := time.Now()
	f.W.C.Restart(broker)
	f.Gone("broker_dead")
	f.W.C.Whole(e2etest.Topic)
	f.Page += fmt.Sprintf("; in sync %.1f s after its start", time.Since(started).Seconds())
	f.Noted()
}
