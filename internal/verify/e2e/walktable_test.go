package e2e

import (
	"bytes"
	"errors"
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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/certs"
)

// signs names for each row of "When something is wrong" (docs/OPERATIONS.md), by the beginning of its
// sign, a test that causes the failure and requires the sign: of this package, or PACKAGE.TestName.
var signs = map[string]string{
	"a topic without a leader":                               "TestWalkOfTheTable",
	"`not enough in-sync replicas":                           "TestWalkOfTheTable",
	"`no leader, not stored`":                                "TestWalkOfTheTable",
	"`in doubt, may be stored`":                              "TestWalkOfTheTable",
	"`is reachable from the network":                         "cmd/nsqd.TestExposedClientPorts",
	"`left out lines of a message":                           "TestAlertsOfClients",
	"`data path … another process uses it`":                  "TestWalkOfTheTable",
	"`the data path was removed":                             "TestWalkOfTheTable",
	"`holds the queues of a stock nsqd`":                     "TestWalkOfTheTable",
	"`its files are damaged`":                                "TestWalkOfTheTable",
	"`the disk is full; make room":                           "internal/etcdserver.TestWhyEtcdGivesUp",
	"`the operating system refuses access":                   "internal/etcdserver.TestFilesThatTheSystemRefuses",
	"`waiting for n3: no metadata directory":                 "TestWalkOfAStart",
	"`waiting for …: the data path is a copy":                "internal/etcdserver.TestOldCopyDoesNotVote",
	"`waiting for …: the metadata directory":                 "TestWalkOfTheTable",
	"`waiting for n1: n1 runs on an old copy":                "internal/etcdserver.TestForkIsNotJoined",
	"`belongs to another foundation`":                        "internal/etcdserver.TestOtherFoundation",
	"`acknowledged data may be missing":                      "TestWalkOfRefusedStarts",
	"`waiting for the metadata: …`":                          "cmd/nsqd.TestWaitsForAnExternalEtcd",
	"`METADATA does not answer`":                             "TestWalkOfTheTable",
	"puts at one broker wait for seconds":                    "coordinator.TestLeaderThatReachesOnlyTheMetadataIsReplaced",
	"`this broker needs a --node-name of its own`":           "TestCopiedConfigurationHurtsNobody",
	"`mvcc: database space exceeded`":                        "TestAlertOfTheMetadata",
	"`not the certificate of the broker: …`":                 "TestWalkOfCertificates",
	"`other brokers will refuse this one's certificate`":     "TestWalkOfCertificates",
	"`1 of 3 members of the metadata run, 2 are needed":      "TestWalkOfTheTable",
	"`another process was started under this broker's name`": "TestWalkOfATwin",
	"`STALLED: …`":                                           "TestAlertsOfADisk",
	"`REGISTRATION lost`":                                    "TestAlertsOfStops",
	"`address already in use`":                               "TestWalkOfTheTable",
}

// TestWalkOfTheTable causes the failures of the table one after another.
func TestWalkOfTheTable(t *testing.T) {
	walking(t)
	c := start(t, 3, "--leader-hold=1s", "--put-hold=2s")
	c.create(topic, channel, 3)
	single := c.onOneDisk("n3")
	w := newWalk(c)
	n3 := c.Brokers[2]

	f := w.fail("no-leader", "n3 is killed; a topic has one replica", "n1", func() { c.kill("n3") })
	f.shown("no_leader")
	f.asked(2, "no live leader")
	c.answered(single, "no leader, not stored")
	c.restart("n3")
	f.gone("no_leader")
	f.noted()
	c.whole(topic)

	f = w.fail("below-minimum", "n2 and n3 are killed", "n1", func() { c.kill("n2"); c.kill("n3") })
	f.shown("below_minimum")
	c.answered(topic, "not enough in-sync replicas")
	f.asked(2, "fewer in-sync replicas answer than the minimum")
	f.noted()
	g := &failure{w: w, name: "metadata-silent", row: "the same: the majority of etcd is away", looked: f.looked, caused: f.caused, cli: f.cli}
	g.shown("metadata_silent")
	g.asked(2, "the metadata has not answered n1")
	require.NoError(t, c.Start("n2"))
	require.NoError(t, c.Start("n3"))
	c.readyAgain("n2")
	c.readyAgain("n3")
	g.gone("metadata_silent")
	g.noted()
	c.whole(topic)

	f = w.fail("in-doubt", "both followers of a leader stand still while it commits", "n1", func() {
		require.NoError(t, c.Signal("n2", syscall.SIGSTOP))
		require.NoError(t, c.Signal("n3", syscall.SIGSTOP))
	})
	c.answered(topic, "in doubt, may be stored")
	f.shown("below_minimum")
	f.asked(2, "")
	require.NoError(t, c.Signal("n2", syscall.SIGCONT))
	require.NoError(t, c.Signal("n3", syscall.SIGCONT))
	f.gone("below_minimum")
	f.noted()
	c.whole(topic)

	require.Contains(t, c.startsNot("n3", ""), "another process uses it")
	require.Contains(t, c.startsNot("n3", t.TempDir()), "address already in use")
	stock := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(stock, "nsqd.dat"), []byte("{}"), 0o600))
	require.Contains(t, c.startsNot("n3", stock), "holds the queues of a stock nsqd")

	f = w.fail("path-removed", "the data path of n3 is moved away while it runs", "n1", func() {
		c.down.begin("n3")
		require.NoError(t, os.Rename(n3.DataDir, n3.DataDir+".moved"))
	})
	f.shown("broker_dead")
	f.asked(2, "1 broker is dead")
	c.until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.Contains(t, c.logged("n3"), "the data path was removed, or another one put in its place")
	require.NoError(t, os.RemoveAll(n3.DataDir))
	require.NoError(t, os.Rename(n3.DataDir+".moved", n3.DataDir))
	c.restart("n3")
	f.gone("broker_dead")
	f.noted()
	c.whole(topic)

	f = w.fail("etcd-damaged", "a byte of n3's etcd log is damaged while n3 is down, and n3 is started", "n1", func() {
		c.kill("n3")
		logs, err := filepath.Glob(filepath.Join(n3.DataDir, "etcd", "member", "wal", "*.wal"))
		require.NoError(t, err)
		require.NotEmpty(t, logs)
		text, err := os.ReadFile(logs[0])
		require.NoError(t, err)
		text[600] ^= 0xff
		require.NoError(t, os.WriteFile(logs[0], text, 0o600))
		require.NoError(t, c.Start("n3"))
	})
	f.shown("broker_dead")
	f.asked(2, "1 broker is dead")
	c.until("the reason", func() bool { return strings.Contains(c.logged("n3"), "its files are damaged") })
	c.until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.NoError(t, os.Rename(filepath.Join(n3.DataDir, "etcd"), filepath.Join(t.TempDir(), "etcd")))
	c.restart("n3")
	f.gone("broker_dead")
	f.noted()
	c.whole(topic)

	c.killAll()
	require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
	require.NoError(t, c.Start("n3"))
	c.waits("n3", "the metadata directory of this broker is gone")
	require.NoError(t, c.Start("n1"))
	c.waits("n1", "members of the metadata run, 2 are needed")
	out, err := c.nsqctl("cluster", "health")
	require.Error(t, err)
	t.Logf("nsqctl of a broker that waits: %s", out)
	require.NoError(t, c.Start("n2"))
	for _, name := range names(c) {
		c.readyAgain(name)
	}
	c.whole(topic)
}

// onOneDisk creates topics of one replica until a broker has one, and returns its name.
func (c *cluster) onOneDisk(broker string) (topic string) {
	c.t.Helper()
	for i := 0; ; i++ {
		topic = fmt.Sprintf("single%d", i)
		c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "partitions": {"1"}, "replication_factor": {"1"}, "min_in_sync": {"1"}})
		if c.leader(topic) == broker {
			return topic
		}
	}
}

// answered publishes to n1 until a put is answered with a text.
func (c *cluster) answered(topic, text string) {
	c.t.Helper()
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	last := ""
	for end := time.Now().Add(waitLimit); !strings.Contains(last, text); {
		if time.Now().After(end) {
			c.t.Fatalf("no put is answered %q; the last: %s", text, last)
		}
		resp, err := client.Post("http://"+c.Brokers[0].HTTP+"/pub?topic="+topic, "", strings.NewReader("x"))
		require.NoError(c.t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(c.t, err)
		require.NoError(c.t, resp.Body.Close())
		last = string(body)
	}
}

// startsNot runs nsqd with the flags of a broker that runs, and another data path if one is given, and
// returns its log.
func (c *cluster) startsNot(name, dataPath string) string {
	c.t.Helper()
	args, err := c.Args(name)
	require.NoError(c.t, err)
	if dataPath != "" {
		args = append(slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--data-path=") }), "--data-path="+dataPath)
	}
	var out bytes.Buffer
	cmd := exec.Command(built.path("nsqd"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.Error(c.t, err)
	case <-time.After(waitLimit):
		_ = cmd.Process.Kill()
		c.t.Fatalf("nsqd goes on: %s", &out)
	}
	return out.String()
}

// TestWalkOfAStart: two brokers of a new cluster of three are started.
func TestWalkOfAStart(t *testing.T) {
	walking(t)
	c := layOut(t, freePorts(t, 3), 3)
	require.NoError(t, c.Start("n1"))
	require.NoError(t, c.Start("n2"))
	c.waits("n1", "waiting for n3: no metadata directory; a new cluster is founded when all its members are there")
	require.NoError(t, c.Start("n3"))
	c.ready()
}

// TestWalkOfCertificates: a broker gets a certificate without its name, then one that has expired.
func TestWalkOfCertificates(t *testing.T) {
	walking(t)
	ca := certs.New(t)
	ca.Issue("broker", "n1", "n2", "n3")
	c := start(t, 3, "--rpc-tls-cert="+ca.File("broker.pem"), "--rpc-tls-key="+ca.File("broker.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	c.create(topic, channel, 3)
	w := newWalk(c)
	f := w.fail("certificate-name", "n3 is started with a certificate that has not its name", "n1", func() {
		c.kill("n3")
		ca.Issue("broker", "n1", "n2", "other")
		require.NoError(t, c.Start("n3"))
	})
	f.shown("broker_dead")
	f.asked(1, "1 broker is dead")
	c.until("n3 to end", func() bool { return slices.Contains(c.Dead(), "n3") })
	require.Contains(t, c.logged("n3"), "not the certificate of the broker")
	ca.Issue("broker", "n1", "n2", "n3")
	c.restart("n3")
	f.gone("broker_dead")
	f.noted()
	c.whole(topic)
	f = w.fail("certificate-expired", "the certificate of n3 has expired when it is started", "n1", func() {
		c.kill("n3")
		ca.IssueUntil(time.Now().Add(-time.Hour), "broker", "n1", "n2", "n3")
		require.NoError(t, c.Start("n3"))
	})
	f.shown("broker_dead")
	f.asked(1, "1 broker is dead")
	c.until("the reason", func() bool {
		return strings.Contains(c.logged("n3"), "other brokers will refuse this one's certificate")
	})
	ca.Issue("broker", "n1", "n2", "n3")
	c.readyAgain("n3")
	f.gone("broker_dead")
	f.noted()
}

// TestWalkOfADisk: a broker that has lost its etcd directory is started on a full disk.
func TestWalkOfADisk(t *testing.T) {
	walking(t)
	c := layOut(t, freePorts(t, 3), 3)
	n3 := c.Brokers[2]
	c.ownDataPath(n3, 512<<20)
	require.NoError(t, c.StartAll())
	c.ready()
	c.create(topic, channel, 3)
	w := newWalk(c)
	full := filepath.Join(n3.DataDir, "another-program")
	f := w.fail("etcd-disk-full", "n3 is started on a full disk, without its etcd directory", "n1", func() {
		c.kill("n3")
		require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
		fillDisk(t, full, 0)
		require.NoError(t, c.Start("n3"))
	})
	f.shown("broker_dead")
	f.asked(1, "1 broker is dead")
	c.waits("n3", "no space left on device")
	pause(time.Second) // more attempts
	require.Equal(t, 1, strings.Count(c.logged("n3"), "about to join the cluster"), "the log of each attempt to join")
	require.NoError(t, os.Remove(full))
	c.readyAgain("n3") // by itself
	f.gone("broker_dead")
	f.noted()
}

// TestWalkOfATwin: n2 stands still until its registration has ended, and a process of its name is started.
func TestWalkOfATwin(t *testing.T) {
	walking(t)
	c := external(t, externalEtcd(t).endpoint, 3)
	c.create(topic, channel, 3)
	w := newWalk(c)
	f := w.fail("twin", "n2 stands still for 5 s, and another process is started under its name", "n1", func() {
		require.NoError(t, c.Signal("n2", syscall.SIGSTOP))
	})
	f.shown("broker_dead")
	f.asked(1, "1 broker is dead")
	c.until("the end of the registration", func() bool { return c.broker("n2").Incarnation == 0 })
	twin := c.startTwin("n2")
	c.until("the twin to register", func() bool { return c.broker("n2").Incarnation != 0 })
	require.NoError(t, c.Signal("n2", syscall.SIGCONT))
	c.until("n2 to end", func() bool { return slices.Contains(c.Dead(), "n2") })
	require.Contains(t, c.logged("n2"), "another process was started under this broker's name")
	require.NoError(t, twin.Process.Kill())
	_ = twin.Wait() // "signal: killed"
	c.down.begin("n2")
	c.restart("n2")
	f.gone("broker_dead")
	f.noted()
}

// startTwin starts a process under the name of a broker, with another data path and other ports.
func (c *cluster) startTwin(name string) *exec.Cmd {
	c.t.Helper()
	args, err := c.Args(name)
	require.NoError(c.t, err)
	own := []string{"--data-path=" + c.t.TempDir()}
	port := freePorts(c.t, 1)
	for i, kind := range []string{"tcp", "http", "https", "rpc"} {
		own = append(own, fmt.Sprintf("--%s-address=127.0.0.1:%d", kind, port+i))
	}
	args = slices.DeleteFunc(args, func(a string) bool {
		flag, _, _ := strings.Cut(a, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, flag+"=") })
	})
	log, err := os.Create(filepath.Join(c.t.TempDir(), "twin.log"))
	require.NoError(c.t, err)
	defer log.Close()
	cmd := exec.Command(built.path("nsqd"), append(args, own...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, cmd.Start())
	return cmd
}

// waits waits until a broker gives a reason why it is not ready.
func (c *cluster) waits(name, reason string) {
	c.t.Helper()
	b, err := c.Broker(name)
	require.NoError(c.t, err)
	c.until(name+" to say: "+reason, func() bool {
		resp, err := c.http.Get("http://" + b.HTTP + "/readyz")
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
	text, err := os.ReadFile("../../../docs/OPERATIONS.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\n## When something is wrong\n")
	table, _, found := strings.Cut(rest, "\nTo look without changing anything")
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
		dir := "."
		if at := strings.LastIndex(test, "."); at >= 0 {
			dir, test = filepath.Join("../../..", test[:at]), test[at+1:]
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

// TestWalkOfRefusedStarts: processes that refuse to start beside n3, n3 without its etcd directory and on an
// older copy of its disk, and a broker that waits for the others.
func TestWalkOfRefusedStarts(t *testing.T) {
	walking(t)
	c := start(t, 3)
	c.create(topic, channel, 3)
	w := newWalk(c)
	n3 := c.Brokers[2]

	f := w.fail("second-process", "processes are started on the data path of n3, at its addresses, under its name, and on the path of a stock nsqd", "n1", func() {
		require.Contains(t, c.startsNot("n3", ""), "another process uses it")
		require.Contains(t, c.startsNot("n3", t.TempDir()), "address already in use")
		stock := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(stock, "nsqd.dat"), []byte("{}"), 0o600))
		require.Contains(t, c.startsNot("n3", stock), "holds the queues of a stock nsqd")
		code, said := c.twin(t, n3, true)
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "this broker needs a --node-name of its own")
	})
	f.until("well", func(said string) bool { return strings.HasPrefix(said, "well: 3 of 3 brokers alive") })
	require.NotContains(t, w.said(f.looked), "acknowledged data may be missing", "new disks have lost nothing")
	f.page = "nothing: n3 goes on"
	f.asked(0, "well: 3 of 3 brokers alive")
	f.noted()

	f = w.fail("etcd-directory", "n3 is started without its etcd directory", "n1", func() {
		c.kill("n3")
		require.NoError(t, os.RemoveAll(filepath.Join(n3.DataDir, "etcd")))
		require.NoError(t, c.Start("n3"))
	})
	f.ends("n3")

	yesterday := n3.DataDir + ".yesterday"
	c.kill("n3")
	require.NoError(t, exec.Command("cp", "-a", n3.DataDir, yesterday).Run())
	c.restart("n3")
	c.whole(topic)
	multiPut(t, c.Brokers[0], topic, numbered("new", 500), 20)
	f = w.fail("old-copy", "n3 is started on an older copy of its disk", "n1", func() {
		c.kill("n3")
		require.NoError(t, os.RemoveAll(n3.DataDir))
		require.NoError(t, os.Rename(yesterday, n3.DataDir))
		require.NoError(t, c.Start("n3"))
	})
	f.ends("n3")
	require.Contains(t, c.logged("n3"), "acknowledged data may be missing")
	f.until("what n3 says", func(said string) bool {
		_, events, _ := strings.Cut(said, eventsMark)
		return strings.Contains(events, "alarm: acknowledged data may be missing on the disk of n3")
	})
	c.check(topic)

	c.killAll()
	f = w.fail("waits", "all brokers are killed, and n1 alone is started", "n1", func() { require.NoError(t, c.Start("n1")) })
	const reason = "1 of 3 members of the metadata run, 2 are needed"
	c.waits("n1", reason)
	resp, err := c.http.Get("http://" + f.looked.HTTP + "/ui")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Contains(t, string(text), reason)
	f.page = fmt.Sprintf("%.1f s: no page; in its place %d: %s …", time.Since(f.caused).Seconds(), resp.StatusCode, reason)
	out, err := c.nsqctl("cluster", "health")
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(t, err, &exit)
	require.Contains(t, out, reason)
	f.cli = fmt.Sprintf("%d: %s", exit.ExitCode(), strings.SplitN(out, "\n", 2)[0])
	f.noted()
}

// TestWalkOfAnExternalEtcd: an external etcd is stopped, and a broker is killed and started.
func TestWalkOfAnExternalEtcd(t *testing.T) {
	walking(t)
	e := externalEtcd(t)
	c := external(t, e.endpoint, 3)
	c.create(topic, channel, 3)
	w := newWalk(c)
	f := w.fail("external-etcd", "the external etcd is stopped; n3 is killed and started", "n1", func() {
		require.NoError(t, e.cmd.Process.Kill())
		_ = e.cmd.Wait() // "signal: killed"
		c.kill("n3")
		require.NoError(t, c.Start("n3"))
	})
	c.waits("n3", "waiting for the metadata")
	f.shown("metadata_silent")
	f.asked(2, "the metadata has not answered n1")
	e.start()
	c.readyAgain("n3")
	f.gone("metadata_silent")
	c.whole(topic)
	f.noted()
}

// ends is shown, asked and gone for a broker that is dead until it has joined again.
func (f *failure) ends(broker string) {
	f.w.c.t.Helper()
	f.shown("broker_dead")
	f.asked(1, "1 broker is dead")
	f.w.c.readyAgain(broker)
	f.gone("broker_dead")
	f.w.c.whole(topic)
	f.page += fmt.Sprintf("; in sync again after %.1f s", time.Since(f.caused).Seconds())
	f.noted()
}
