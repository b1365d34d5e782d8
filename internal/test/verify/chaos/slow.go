package chaos

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	tunDevice = "/dev/net/tun"
	// mtu is that of all interfaces.
	mtu = 1500
	// underWay is how many packets one host may have on the slow way; a router
	// whose queue is full drops them too.
	underWay = 4096
)

// slowWay is a second way between hosts, in addition to the bridge: every host has an
// interface whose packets this process takes, keeps for a while, and writes to the
// interface of the destination. A route leads to it, so it also slows
// connections that exist. The kernel's own delay (netem) is not in all kernels.
type slowWay struct {
	*network
	name  string           // of its interfaces
	delay time.Duration    // one way
	ends  map[int]*os.File // host → its interface
	wg    sync.WaitGroup
}

// packet waits to be handed on.
type packet struct {
	due time.Time
	to  *os.File
	raw []byte
}

// slow delays all that hosts of two groups send to each other, until healed.
func (n *network) slow(a, b []int, lanes []lane, delay time.Duration) (heal func()) {
	n.t.Helper()
	n.slowWays++
	w := &slowWay{network: n, name: fmt.Sprintf("slow%d", n.slowWays), delay: delay, ends: map[int]*os.File{}}
	for _, c := range between(a, b, lanes, "") {
		w.open(c.from)
		w.open(c.to)
	}
	for _, c := range between(a, b, lanes, "") {
		w.ip(c.from, fmt.Sprintf("route replace %s dev %s src %s", address(c.lane, c.to), w.name, address(c.lane, c.from)))
	}
	for _, end := range w.ends {
		w.wg.Go(func() { w.take(end) }) // ends when its interface is closed
	}
	pairs := between(a, b, lanes, "")
	for _, c := range pairs {
		n.health.between(c.from, c.to, 1)
	}
	heal = sync.OnceFunc(func() {
		w.close()
		for _, c := range pairs {
			n.health.between(c.from, c.to, -1)
		}
	})
	n.t.Cleanup(heal)
	return heal
}

// close ends it: the routes go with the interfaces, and these with their files.
func (w *slowWay) close() {
	for _, end := range w.ends {
		_ = end.Close()
	}
	w.wg.Wait()
}

// ip runs one command in a host.
func (w *slowWay) ip(host int, line string) {
	w.t.Helper()
	w.run(line, append(w.hosts[host-1].enter(), "ip", "-batch", "-")...)
}

// open makes a host's interface; once.
func (w *slowWay) open(host int) {
	w.t.Helper()
	if w.ends[host] != nil {
		return
	}
	w.hosts[host-1].do(w.t, func() {
		fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		require.NoError(w.t, err)
		request, err := unix.NewIfreq(w.name)
		require.NoError(w.t, err)
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		require.NoError(w.t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
		w.ends[host] = os.NewFile(uintptr(fd), tunDevice)
	})
	w.ip(host, fmt.Sprintf("link set %s mtu %d up", w.name, mtu))
}

// take reads what a host sends and passes it on when its time has come.
func (w *slowWay) take(from *os.File) {
	queue := make(chan packet, underWay)
	defer close(queue)
	w.wg.Go(func() { // ends after the one that reads
		for p := range queue {
			pause(time.Until(p.due))
			_, _ = p.to.Write(p.raw) // lost, if the way is being closed
		}
	})
	buffer := make([]byte, mtu)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		to := w.ends[destination(buffer[:n])]
		if to == nil {
			continue
		}
		select {
		case queue <- packet{time.Now().Add(w.delay), to, append([]byte(nil), buffer[:n]...)}:
		default:
		}
	}
}

// destination is the number of the host that an IPv4 packet is for; 0: of another.
func destination(raw []byte) int {
	const lastOfDestination, header = 19, 20
	if len(raw) < header || raw[0]>>4 != 4 {
		return 0
	}
	return int(raw[lastOfDestination])
}

// do runs something in the host's network namespace, on one thread.
func (h *host) do(t *testing.T, what func()) {
	t.Helper()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer home.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.holder.Process.Pid))
	require.NoError(t, err)
	defer there.Close()
	require.NoError(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { // a thread that stays there is never used again
		require.NoError(t, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
		runtime.UnlockOSThread()
	}()
	what()
}

// slowNetwork delays everything between brokers, and to an external etcd.
func (r *round) slowNetwork() func() {
	all := r.hosts(r.brokers...)
	return r.net.slow(all, all, bothLanes, time.Duration(5+r.IntN(60))*time.Millisecond)
}

// slowLeader is far away from all others, on both networks or one.
func (r *round) slowLeader() func() {
	b := r.leader()
	lanes := [][]lane{bothLanes, {rpcLane}, {etcdLane}}[r.IntN(3)]
	return r.net.slow(r.numbers(b), r.hosts(r.except(b)...), lanes, time.Duration(20+r.IntN(400))*time.Millisecond)
}
