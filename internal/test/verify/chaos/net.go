package chaos

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// lane is one of the two networks between brokers.
type lane int

// Every host has an address on each: clients and rpc use the first, etcd the second.
const (
	rpcLane lane = iota
	etcdLane
)

var bothLanes = []lane{rpcLane, etcdLane}

func address(l lane, host int) string { return fmt.Sprintf("10.77.%d.%d", l, host) }

// damage is what happens to packets.
type damage string

const (
	drop  damage = "drop"
	reset damage = "reject with tcp reset"
	lossy damage = "numgen random mod 100 < 8 drop"
	// noRoute lets connects fail as over a link that is down. A refused connect, as of reset, looks
	// like a process that has ended.
	noRoute damage = "tcp flags & (syn | ack) == syn reject with icmp type host-unreachable"
)

// cut damages what one host sends to another on a lane.
type cut struct {
	from, to int
	lane     lane
	damage   damage
}

// host is a network namespace, held open by a process that sleeps.
type host struct {
	number int
	holder *exec.Cmd
}

// enter is the command that runs another one in the host's namespace.
func (h *host) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", h.holder.Process.Pid)}
}

// network is a bridge with hosts 1…n; the test itself is host 254. Any goroutine may add and
// mend cuts.
type network struct {
	t      *testing.T
	health *health
	hosts  []*host
	mu     sync.Mutex
	cuts   []cut // under mu
	// slowWays counts them, for their names.
	slowWays int
}

func newNetwork(t *testing.T, hosts int) *network {
	n := &network{t: t, health: newHealth()}
	n.script("link set lo up", "link add lockstep type bridge", "addr add 10.77.0.254/24 dev lockstep",
		"addr add 10.77.1.254/24 dev lockstep", "link set lockstep up")
	t.Cleanup(n.remove)
	for i := 1; i <= hosts; i++ {
		n.hosts = append(n.hosts, n.addHost(i))
	}
	return n
}

func (n *network) addHost(number int) *host {
	h := &host{number: number, holder: exec.Command("sleep", "infinity")}
	h.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	require.NoError(n.t, h.holder.Start())
	out := fmt.Sprintf("b%d", h.holder.Process.Pid) // the kernel may still be removing those of the last round
	n.script(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", out, h.holder.Process.Pid),
		"link set "+out+" master lockstep", "link set "+out+" up")
	n.run(strings.Join([]string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev eth0", address(rpcLane, number)),
		fmt.Sprintf("addr add %s/24 dev eth0", address(etcdLane, number)),
		"link set eth0 up",
	}, "\n"), append(h.enter(), "ip", "-batch", "-")...)
	n.run("add table ip chaos\nadd chain ip chaos out { type filter hook output priority 0; }\n", append(h.enter(), "nft", "-f", "-")...)
	return h
}

// script runs ip commands here.
func (n *network) script(lines ...string) {
	n.t.Helper()
	n.run(strings.Join(lines, "\n"), "ip", "-batch", "-")
}

func (n *network) run(input string, command ...string) {
	n.t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	require.NoError(n.t, err, "%v: %s", command, out)
}

// remove ends the namespaces; their interfaces go with them.
func (n *network) remove() {
	for _, h := range n.hosts {
		_ = h.holder.Process.Kill()
		_ = h.holder.Wait()
	}
	n.script("link del lockstep")
}

// add brings more cuts into force.
func (n *network) add(cuts ...cut) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range cuts {
		n.health.between(c.from, c.to, 1)
	}
	n.cuts = append(n.cuts, cuts...)
	n.apply()
}

// mend removes cuts, each as often as it is named.
func (n *network) mend(cuts ...cut) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range cuts {
		for i := range n.cuts {
			if n.cuts[i] == c {
				n.cuts = append(n.cuts[:i:i], n.cuts[i+1:]...)
				defer n.health.between(c.from, c.to, -1) // once it is mended
				break
			}
		}
	}
	n.apply()
}

// apply replaces each host's rules as a whole. Its caller holds mu.
func (n *network) apply() {
	n.t.Helper()
	for _, h := range n.hosts {
		rules := []string{"flush chain ip chaos out"}
		for _, c := range n.cuts {
			if c.from != h.number {
				continue
			}
			match := "ip daddr " + address(c.lane, c.to)
			if c.damage == reset {
				match += " meta l4proto tcp"
			}
			rules = append(rules, fmt.Sprintf("add rule ip chaos out %s %s", match, c.damage))
		}
		n.run(strings.Join(rules, "\n")+"\n", append(h.enter(), "nft", "-f", "-")...)
	}
}

// between are the cuts in both directions between two groups.
func between(a, b []int, lanes []lane, d damage) (cuts []cut) {
	return append(oneWay(a, b, lanes, d), oneWay(b, a, lanes, d)...)
}

// down are the cuts of a link that is down: connections break at once, and new ones find no route.
func down(a, b []int, lanes []lane) []cut {
	return append(between(a, b, lanes, noRoute), between(a, b, lanes, reset)...)
}

// oneWay are the cuts of what one group sends to another.
func oneWay(from, to []int, lanes []lane, d damage) (cuts []cut) {
	for _, f := range from {
		for _, t := range to {
			for _, l := range lanes {
				if f != t {
					cuts = append(cuts, cut{f, t, l, d})
				}
			}
		}
	}
	return cuts
}
