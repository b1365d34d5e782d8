package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/testkit/loopdisk"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// judged asks for promtool, before the failures are caused.
func judged(t *testing.T) (promtool string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		env.Missing(t, "promtool (package prometheus)", err)
	}
	return promtool
}

// TestAlertsOfADisk: the disk of one broker gets full, and hangs.
func TestAlertsOfADisk(t *testing.T) {
	processes(t)
	promtool := judged(t)
	const size, reserve = 768 << 20, 64 << 20
	c := layOut(t, freePorts(t, 3), 3, fmt.Sprintf("--min-free-disk-bytes=%d", reserve))
	victim := c.Brokers[2]
	disk := c.ownDataPath(victim, size)
	require.NoError(t, c.StartAll())
	c.ready()
	c.create(topic, channel, 3)
	stop := c.publishing(topic, 1)
	w := newWalk(c)
	w.every = scrapeEvery / 3
	w.scrape(8)
	w.expect()

	full := filepath.Join(victim.DataDir, "another-program")
	f := w.fail("disk-full", "another program fills the disk of n3", "n1", func() { fillDisk(t, full, reserve*3/4) })
	f.shown("low_space: 1 broker is below its disk reserve")
	f.asked(2, "n3")
	w.scrape(1)
	w.expect("LockstepDiskReserveReached")
	w.scrape(42)
	f.fires("LockstepDiskReserveReached", "LockstepDiskFilling", "LockstepPutsFail")
	require.NoError(t, os.Remove(full))
	f.gone("low_space")
	f.noted()

	c.until("puts are taken again", func() bool { return putOnce(c.Brokers[0], topic, "again") == history.OK })
	hangs := 8 * time.Second
	if w.camera != nil {
		hangs *= 3
	}
	f = w.fail("disk-hangs", "the disk of n3 hangs for some seconds", "n1", func() {
		_, err := disk.Hang(hangs)
		require.NoError(t, err)
	})
	c.until("a journal that hangs", func() bool { w.scrape(1); return w.last("lockstep_journal_busy_seconds", "n3") > 1 })
	f.fires("LockstepDiskStalled")
	f.shown("n3 says that its disk or a core loop does not go on")
	f.asked(1, "1 broker hangs: its disk or a core loop does not go on")
	f.gone("broker_hangs")
	f.noted()
	c.whole(topic)
	stop()
	w.judge(promtool)
}

// ownDataPath gives a broker a data path on a disk of its own.
func (c *cluster) ownDataPath(b devcluster.Broker, size int64) *loopdisk.Disk {
	c.t.Helper()
	disk, err := loopdisk.Mount(filepath.Join(c.dir, b.Name+".disk"), b.DataDir, size)
	if err != nil {
		env.Missing(c.t, "a disk of its own", err)
	}
	c.t.Cleanup(func() {
		c.killProcesses()
		require.NoError(c.t, disk.Close())
	})
	return disk
}

// fillDisk writes a file until a disk has as many bytes free.
func fillDisk(t *testing.T, file string, free int64) {
	t.Helper()
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(filepath.Dir(file), &s))
	f, err := os.Create(file)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Bsize-free))
}

// publishing publishes to a topic, n messages at a time at each broker, until it is told to stop. Refused
// puts are no fault.
func (c *cluster) publishing(topic string, n int) (stop func()) {
	body := strings.Repeat("x\n", n)
	done := make(chan struct{})
	var all sync.WaitGroup
	for _, b := range c.Brokers {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
					if resp, err := c.http.Post("http://"+b.HTTP+"/mpub?topic="+topic, "", strings.NewReader(body)); err == nil {
						_ = resp.Body.Close()
					}
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); all.Wait() })
	c.t.Cleanup(stop)
	return stop
}

// TestAlertsOfClients: a flood of connections, a backlog, and a certificate that expires soon.
func TestAlertsOfClients(t *testing.T) {
	processes(t)
	promtool := judged(t)
	const seats = 40
	ca := certs.New(t)
	ca.Issue("broker") // for an hour
	c := start(t, 3, fmt.Sprintf("--max-connections=%d", seats), "--tls-cert="+ca.File("broker.pem"), "--tls-key="+ca.File("broker.key"))
	c.create(topic, channel, 3)
	w := newWalk(c)
	w.every = scrapeEvery / 10
	w.scrape(8)
	w.expect()

	var flood []net.Conn
	defer func() {
		for _, conn := range flood {
			_ = conn.Close()
		}
	}()
	f := w.fail("flood", fmt.Sprintf("a client opens more connections to n1 than its %d seats", seats), "n1", func() {
		for range 2 * seats {
			conn, err := net.Dial("tcp", c.Brokers[0].TCP)
			require.NoError(t, err)
			flood = append(flood, conn)
		}
	})
	w.scrape(3)
	for range seats { // it does not give up
		conn, err := net.Dial("tcp", c.Brokers[0].TCP)
		require.NoError(t, err)
		flood = append(flood, conn)
		w.scrape(1)
	}
	f.fires("LockstepConnectionsRefused")
	f.shown("clients_refused: n1 refuses clients, limit tcp_")
	f.asked(1, "n1 refuses clients, limit tcp_")
	f.noted()

	g := w.fail("certificate", "the certificate for clients expires in an hour", "n1", func() {})
	g.shown("certificate_expires: the client certificate of n1 expires in")
	g.asked(1, "the client certificate of n3 expires in")
	f = w.fail("backlog", "producers publish, and no consumer comes", "n1", func() {
		body := strings.Repeat("x\n", 10_000)
		for range 12 {
			resp, err := c.http.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic="+topic, "", strings.NewReader(body))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	})
	stop := c.publishing(topic, 100)
	f.shown(topic + "/" + channel + ": the channel has no consumers")
	w.scrape(250)
	f.fires("LockstepBacklogGrows")
	g.fires("LockstepCertificateExpires")
	f.noted()
	g.noted()
	stop()
	w.judge(promtool)
}

// TestAlertsOfStops: a broker stands still for longer than its registration lasts.
func TestAlertsOfStops(t *testing.T) {
	processes(t)
	promtool := judged(t)
	c := start(t, 3)
	c.create(topic, channel, 1)
	victim := c.other(c.leader(topic)).Name
	look := c.leader(topic)
	stop := c.publishing(topic, 1)
	w := newWalk(c)
	w.scrape(8)
	w.expect()
	f := w.fail("stopped", "a broker stands still for 5 s", look, func() { require.NoError(t, c.Signal(victim, syscall.SIGSTOP)) })
	f.shown("broker_dead")
	f.asked(1, victim)
	pause(time.Until(f.caused.Add(5 * time.Second)))
	require.NoError(t, c.Signal(victim, syscall.SIGCONT))
	f.gone("broker_dead")
	c.until("the loss of the registration", func() bool {
		w.scrape(1)
		return strings.Contains(c.logged(victim), "REGISTRATION lost")
	})
	w.scrape(2)
	f.fires("LockstepRegistrationLost")
	f.noted()
	stop()
	w.judge(promtool)
}

// networkEnv marks the process of TestAlertOfANetwork that is in a network of its own.
const networkEnv = "LOCKSTEP_E2E_NETWORK"

// TestAlertOfANetwork: the network changes bytes of frames between brokers.
func TestAlertOfANetwork(t *testing.T) {
	processes(t)
	promtool := judged(t)
	if os.Getenv(networkEnv) == "" {
		inNamespace(t, networkEnv+"=1")
		return
	}
	c := start(t, 3)
	c.create(topic, channel, 3)
	stop := c.publishing(topic, 1)
	w := newWalk(c)
	w.scrape(8)
	w.expect()
	_, port, err := net.SplitHostPort(c.Brokers[2].RPC)
	require.NoError(t, err)
	// One of 50 segments to n3 that are long enough has another byte behind its header of 32 bytes; on
	// a loopback nobody looks at TCP's own checksum.
	nft(t, fmt.Sprintf("table inet bad { chain out { type filter hook output priority 0\n tcp dport %s numgen random mod 50 == 0 @th,720,8 set 0x5a\n }\n}\n", port))
	f := w.fail("corrupt", "the network changes a byte of one of 50 segments to n3", "n1", func() {})
	c.until("a wrong checksum", func() bool {
		w.scrape(1)
		return w.last("lockstep_rpc_corrupt_connections_total", "n3") > 0
	})
	w.scrape(2)
	f.fires("LockstepNetworkCorrupts")
	f.shown("network_corrupts: bytes change on the way to n3")
	f.asked(1, "bytes change on the way to n3")
	require.Contains(t, c.logged("n3"), "CORRUPT frame")
	nft(t, "flush ruleset\n")
	c.whole(topic)
	f.noted()
	stop()
	c.check(topic)
	w.judge(promtool)
}

func nft(t *testing.T, rules string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		env.Missing(t, "nft", fmt.Sprintf("%v: %s", err, out))
	}
}
