package alerts

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestAlertsOfADisk: the disk of one broker gets full, and hangs.
func TestAlertsOfADisk(t *testing.T) {
	e2etest.Processes(t)
	promtool := e2etest.Judged(t)
	const size, reserve = 768 << 20, 64 << 20
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3, fmt.Sprintf("--min-free-disk-bytes=%d", reserve))
	victim := c.Brokers[2]
	disk := c.OwnDataPath(victim, size)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	stop := c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Every = e2etest.ScrapeEvery / 3
	w.Scrape(8)
	w.Expect()

	full := filepath.Join(victim.DataDir, "another-program")
	f := w.Fail("disk-full", "another program fills the disk of n3", "n1", func() { e2etest.FillDisk(t, full, reserve*3/4) })
	f.Shown("low_space: 1 broker is below its disk reserve")
	f.Asked(1, "n3") // degraded: the others take the puts
	w.Scrape(1)
	w.Expect("LockstepDiskReserveReached")
	w.Scrape(42)
	f.Fires("LockstepDiskReserveReached", "LockstepDiskFilling")
	w.Only("LockstepDiskReserveReached", "LockstepDiskFilling", "LockstepUnderReplicated", "LockstepReplicaBehind") // not LockstepPutsFail: the others take the puts
	require.NoError(t, os.Remove(full))
	f.Gone("low_space")
	f.Noted()

	c.Until("puts are taken again", func() bool { return e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "again") == judge.OK })
	hangs := 8 * time.Second
	if w.Camera != nil {
		hangs *= 3
	}
	f = w.Fail("disk-hangs", "the disk of n3 hangs for some seconds", "n1", func() {
		_, err := disk.Hang(hangs)
		require.NoError(t, err)
	})
	c.Until("a journal that hangs", func() bool { w.Scrape(1); return last(w.Scrapes, "lockstep_journal_busy_seconds", "n3") > 1 })
	f.Fires("LockstepDiskStalled")
	f.Shown("n3 says that its disk or a core loop does not make progress")
	f.Asked(1, "1 broker hangs: its disk or a core loop is stuck")
	f.Gone("broker_hangs")
	f.Noted()
	c.Whole(e2etest.Topic)
	stop()
	w.Judge(promtool)
}

// TestAlertsOfClients: a flood of connections, a backlog, and a certificate that expires soon.
func TestAlertsOfClients(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	promtool := e2etest.Judged(t)
	const seats = 40
	ca := certs.New(t)
	ca.Issue("broker") // for an hour
	c := e2etest.Start(t, 3, fmt.Sprintf("--max-connections=%d", seats), "--tls-cert="+ca.File("broker.pem"), "--tls-key="+ca.File("broker.key"))
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	w := e2etest.NewWalk(c)
	w.Every = e2etest.ScrapeEvery / 10
	w.Scrape(8)
	w.Expect()

	var flood []net.Conn
	closeAll := func() {
		for _, conn := range flood {
			_ = conn.Close()
		}
		flood = nil
	}
	defer closeAll()
	f := w.Fail("flood", fmt.Sprintf("a client opens more connections to n1 than its %d seats", seats), "n1", func() {
		for range 2 * seats {
			conn, err := net.Dial("tcp", c.Brokers[0].TCP)
			require.NoError(t, err)
			flood = append(flood, conn)
		}
	})
	w.Scrape(3)
	for range seats { // it does not give up
		conn, err := net.Dial("tcp", c.Brokers[0].TCP)
		require.NoError(t, err)
		flood = append(flood, conn)
		w.Scrape(1)
	}
	f.Fires("LockstepConnectionsRefused")
	w.Only("LockstepConnectionsRefused", "LockstepCertificateExpires")
	f.Shown("clients_refused: n1 refuses clients, limit tcp_")
	f.Asked(1, "n1 refuses clients, limit tcp_")
	f.Noted()
	// Connections that stay silent are cut off after --login-timeout. Each counts as refused, so the alert would fire again some time later.
	closeAll()

	g := w.Fail("certificate", "the certificate for clients expires in an hour", "n1", func() {})
	g.Shown("certificate_expires: the client certificate of n1 expires in")
	g.Asked(1, "the client certificate of n3 expires in")
	f = w.Fail("backlog", "producers publish, and no consumer comes", "n1", func() {
		body := strings.Repeat("x\n", 10_000)
		for range 12 {
			resp, err := c.HTTP.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic="+e2etest.Topic, "", strings.NewReader(body))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	})
	stop := c.Publishing(e2etest.Topic, 100)
	f.Shown(e2etest.Topic + "/" + e2etest.Channel + ": the channel has no consumers")
	w.Scrape(250)
	f.Fires("LockstepBacklogGrows")
	g.Fires("LockstepCertificateExpires")
	w.Only("LockstepBacklogGrows", "LockstepCertificateExpires", "LockstepConsumerStuck")
	f.Noted()
	g.Noted()
	stop()
	w.Judge(promtool)
}

// TestAlertsOfStops: a broker stands still for longer than its registration lasts.
func TestAlertsOfStops(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	promtool := e2etest.Judged(t)
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	victim := c.Other(c.Leader(e2etest.Topic)).Name
	look := c.Leader(e2etest.Topic)
	stop := c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	f := w.Fail("stopped", "a broker stands still for 5 s", look, func() { require.NoError(t, c.Signal(victim, syscall.SIGSTOP)) })
	f.Shown("broker_dead")
	f.Asked(1, victim)
	e2etest.Pause(time.Until(f.Caused.Add(5 * time.Second)))
	require.NoError(t, c.Signal(victim, syscall.SIGCONT))
	f.Gone("broker_dead")
	c.Until("the loss of the registration", func() bool {
		w.Scrape(1)
		return strings.Contains(c.Logged(victim), "registration lost")
	})
	w.Scrape(2)
	f.Fires("LockstepRegistrationLost")
	w.Only("LockstepRegistrationLost")
	f.Noted()
	stop()
	w.Judge(promtool)
}

// TestAlertOfANetwork: the network changes bytes of frames between brokers.
func TestAlertOfANetwork(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	promtool := e2etest.Judged(t)
	if os.Getenv(e2etest.NetworkEnv) == "" {
		e2etest.InNamespace(t, e2etest.NetworkEnv+"=1")
		return
	}
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	stop := c.Publishing(e2etest.Topic, 1)
	w := e2etest.NewWalk(c)
	w.Scrape(8)
	w.Expect()
	_, port, err := net.SplitHostPort(c.Brokers[2].RPC)
	require.NoError(t, err)
	// One of 50 segments to n3 that are long enough has another byte behind its header of 32 bytes; on
	// a loopback nobody looks at TCP's own checksum.
	e2etest.Nft(t, fmt.Sprintf("table inet bad { chain out { type filter hook output priority 0\n tcp dport %s numgen random mod 50 == 0 @th,720,8 set 0x5a\n }\n}\n", port))
	f := w.Fail("corrupt", "the network changes a byte of one of 50 segments to n3", "n1", func() {})
	c.Until("a wrong checksum", func() bool {
		w.Scrape(1)
		return last(w.Scrapes, "lockstep_rpc_corrupt_connections_total", "n3") > 0
	})
	w.Scrape(2)
	f.Fires("LockstepNetworkCorrupts")
	w.Only("LockstepNetworkCorrupts")
	f.Shown("network_corrupts: bytes change on the way to n3")
	require.Contains(t, c.Logged("n3"), "corrupt frame")
	// While it continues, n3's connections end again and again, and its partition may be without a leader
	// when nsqctl asks. The alarm stays for an hour.
	e2etest.Nft(t, "flush ruleset\n")
	c.Whole(e2etest.Topic)
	f.Gone("no live leader")
	f.Asked(1, "bytes change on the way to n3")
	f.Noted()
	stop()
	c.Check(e2etest.Topic)
	w.Judge(promtool)
}
