package mirror

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// island is a network namespace in which packets can be lost. A link of a side listens there at an address of that
// side's network, and passes connections to a broker outside: so the packets between the mirror and a side
// go over the loopback interface of the namespace, where nft drops them, and nothing outside is changed.
type island struct {
	t      *testing.T
	holder *exec.Cmd
}

// islandNets are the networks of the sides.
var islandNets = map[string]string{"east": "127.1.0.1", "west": "127.2.0.1"}

func newIsland(t *testing.T) *island {
	t.Helper()
	e2etest.Processes(t)
	for _, program := range []string{"nft", "ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	n := &island{t: t, holder: exec.Command("sleep", "infinity")}
	n.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := n.holder.Start(); err != nil {
		env.Missing(t, "the right to make a network namespace", err)
	}
	t.Cleanup(func() { _ = n.holder.Process.Kill(); _ = n.holder.Wait() })
	n.run("", "ip", "link", "set", "lo", "up")
	n.run("add table ip cut\nadd chain ip cut out { type filter hook output priority 0; }\n", "nft", "-f", "-")
	return n
}

// enter is the command that runs another one in the namespace.
func (n *island) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.holder.Process.Pid)}
}

func (n *island) run(input string, command ...string) {
	n.t.Helper()
	args := append(n.enter(), command...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	require.NoError(n.t, err, "%v: %s", args, out)
}

// do makes a socket in the namespace, on one thread.
func (n *island) do(what func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid))
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = what()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // a thread that stays there is never used again
	}
	return err
}

// link is a link of a side.
func (n *island) link(side, to string) *link {
	n.t.Helper()
	var l net.Listener
	require.NoError(n.t, n.do(func() (err error) {
		l, err = net.Listen("tcp", islandNets[side]+":0")
		return err
	}))
	return newLinkAt(n.t, l, to)
}

// client is an HTTP client in the namespace that keeps no connection.
func (n *island) client() *http.Client {
	return &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = n.do(func() error { c, err = net.DialTimeout(network, address, time.Second); return err })
			return c, err
		},
	}}
}

// lose drops packets: "to SIDE" those of the mirror to a side, "from SIDE" those of a side to the mirror. Packets of
// no other kind are dropped from now on.
func (n *island) lose(ways ...string) {
	n.t.Helper()
	rules := "flush chain ip cut out\n"
	for _, way := range ways {
		direction, side, _ := strings.Cut(way, " ")
		rules += fmt.Sprintf("add rule ip cut out ip %s %s drop\n", map[string]string{"to": "daddr", "from": "saddr"}[direction], islandNets[side])
	}
	n.run(rules, "nft", "-f", "-")
}

// supervisor starts the mirror again whenever it ends, as systemd does with Restart=always.
type supervisor struct {
	m      *mirrored
	mu     sync.Mutex // held by supervise while it starts the mirror, and by stop
	ended  bool
	starts int
	done   chan struct{}
}

func (m *mirrored) supervised() *supervisor {
	s := &supervisor{m: m, done: make(chan struct{})}
	s.start()
	go s.supervise()
	return s
}

func (s *supervisor) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.starts++
	s.m.process = s.m.g.Command("run", fmt.Sprintf("--batch=%d", mirrorBatch), "--poll=300ms")
	s.m.process.Stdout, s.m.process.Stderr = &s.m.out, io.Discard
	if testing.Verbose() {
		s.m.process.Stderr = os.Stderr
	}
	return s.m.process.Start() == nil
}

func (s *supervisor) supervise() {
	defer close(s.done)
	for {
		_ = s.m.process.Wait()
		e2etest.Pause(500 * time.Millisecond)
		if !s.start() {
			return
		}
	}
}

// signal sends a signal to the mirror.
func (s *supervisor) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.m.process.Process.Signal(sig)
}

// stop ends the mirror permanently.
func (s *supervisor) stop() {
	s.mu.Lock()
	s.ended = true
	_ = s.m.process.Process.Signal(syscall.SIGTERM)
	s.mu.Unlock()
	<-s.done
}

// copiesEverything waits until the target has what the source has now.
func (m *mirrored) copiesEverything(since string) {
	m.t.Helper()
	began, least := time.Now(), m.east.Committed("orders")
	e2etest.Within(m.t, 3*e2etest.WaitLimit, "copies "+since, func() bool { return m.west.Committed("orders") >= least })
	m.t.Logf("%s: the target has all %d messages %s later", since, least, time.Since(began).Round(time.Millisecond))
}

// TestMirrorOverACut: all packets between the mirror and both clusters are lost for 5 seconds, with LOCKSTEP_LONG for 5
// minutes (LOCKSTEP_CUT: seconds), while producers continue. During that a leader of each cluster and the mirror
// are killed. Before, packets are lost in one direction alone. After the cut exactly the missing messages are
// copied, and at most one put of each partition twice.
func TestMirrorOverACut(t *testing.T) {
	n := newIsland(t)
	length := time.Duration(env.Number(t, "LOCKSTEP_CUT", e2etest.Rounds(5, 300))) * time.Second
	m := mirroredOver(t, "127.0.0.1:9130", n.link)
	m.g.Inside, m.client = n.enter(), n.client()
	m.east.Create("orders", "billing", 2)
	go m.produce()
	s := m.supervised()
	t.Cleanup(s.stop)
	e2etest.Within(t, e2etest.WaitLimit, "the first copies", func() bool { return m.west.Committed("orders") > 100 })
	m.copiesEverything("at first")

	for way, length := range map[string]time.Duration{"from west": length / 2, "to west": length / 10, "from east": length / 10, "to east": length / 10} {
		n.lose(way)
		e2etest.Pause(length)
		n.lose()
		m.copiesEverything(fmt.Sprintf("packets %s lost for %s", way, length))
	}

	began, before := time.Now(), m.published.Load()
	n.lose("from west", "to west", "from east", "to east")
	e2etest.Pause(length / 3)
	for _, c := range []*e2etest.Cluster{m.east, m.west} {
		leader := leaderOf0(c)
		c.Crash(leader)
		e2etest.Pause(time.Second)
		c.Restart(leader)
	}
	s.signal(syscall.SIGKILL)
	e2etest.Pause(time.Until(began.Add(length)))
	there, producedMeanwhile := m.west.Committed("orders"), m.published.Load()-before
	require.Positive(t, producedMeanwhile)
	n.lose()
	m.copiesEverything(fmt.Sprintf("all packets lost for %s", length))

	finished := m.consumed()
	close(m.stop)
	<-m.stopped
	m.copiesEverything("at last")
	var copied float64
	e2etest.Within(t, e2etest.WaitLimit, "the counts of the mirror", func() (ok bool) {
		copied, ok = m.sum("lockstep_mirror_messages_total")                          // of the process that was started during the cut
		return ok && uint64(copied)+2*mirrorBatch >= m.west.Committed("orders")-there // the system may still deliver a put of the killed process
	})
	missing := m.east.Committed("orders") - there
	t.Logf("%d published during the cut; when it ended the target had %d; %.0f copied since, %d were missing; the mirror was started %d times",
		producedMeanwhile, there, copied, missing, s.starts)
	s.stop()
	m.judge(7, finished, 2*mirrorBatch)
	require.InDelta(t, float64(missing), copied, 2*mirrorBatch, "the missing part, and at most one put of each partition twice")
	require.FileExists(t, filepath.Join(m.g.Dir, "mirror.json"))
}
