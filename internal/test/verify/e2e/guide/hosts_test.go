package guide

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// hostLimit bounds the commands of a block of a page.
const hostLimit = 3 * time.Minute

// hosts are machines for a page: namespaces with a network address, a name, and an /etc, a /var/lib and a home
// of their own. ssh and scp reach them, from a folder that is the operator's machine.
type hosts struct {
	t     *testing.T
	names []string
	by    map[string]*machine
	dir   string // the operator's machine
	env   []string
}

// machine is one host, held open by a process that sleeps.
type machine struct {
	name   string
	holder *exec.Cmd
	home   string
	broker *exec.Cmd
	log    string
}

// newHosts makes the machines, on a bridge of this network namespace.
func newHosts(t *testing.T, names ...string) *hosts {
	t.Helper()
	h := &hosts{t: t, names: names, by: map[string]*machine{}, dir: t.TempDir()}
	bin := t.TempDir()
	h.ip("link add lan type bridge", "link set lan up")
	h.env = append(os.Environ(), "PATH="+bin+":"+filepath.Dir(e2etest.Built.Path("nsqctl"))+":"+os.Getenv("PATH"))
	table := "127.0.0.1 localhost\n"
	for i, name := range names {
		table += fmt.Sprintf("10.88.0.%d %s\n", i+1, name)
	}
	resolver := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, os.WriteFile(resolver, []byte(table), 0o644))
	var cases string
	for i, name := range names {
		h.by[name] = h.machine(i, name, resolver)
		cases += fmt.Sprintf("root@%s) into='nsenter --target %d --net --mount --uts' ;;\n", name, h.by[name].holder.Process.Pid)
	}
	// They replace the network between the operator's machine and the hosts, and nothing else of a command.
	h.program(bin, "ssh", "case $1 in\n"+cases+"esac\nshift\nexec $into sh -c \"$*\"\n")
	h.program(bin, "scp", "[ \"$1\" = -rp ]\nto=${3#*:}\ncase ${3%%:*} in\n"+cases+"esac\nexec $into cp -rp \"$PWD/$2\" \"$to\"\n")
	return h
}

func (h *hosts) program(dir, name, script string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nset -eu\n"+script), 0o755))
}

func (h *hosts) ip(lines ...string) {
	h.t.Helper()
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, "%s", out)
}

func (h *hosts) machine(i int, name, resolver string) *machine {
	h.t.Helper()
	m := &machine{name: name, home: h.t.TempDir()}
	m.log = filepath.Join(m.home, "nsqd.log")
	short, _, _ := strings.Cut(name, ".")
	m.holder = exec.Command("sh", "-euc", `mount --make-rprivate /
mount -t tmpfs none /var/lib
cp "$1" /var/lib/hosts
mount -t tmpfs none /etc
mv /var/lib/hosts /etc/hosts
hostname "$2"
echo up
exec sleep infinity`, "holder", resolver, short)
	m.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	out, err := m.holder.StdoutPipe()
	require.NoError(h.t, err)
	m.holder.Stderr = os.Stderr
	require.NoError(h.t, m.holder.Start())
	h.t.Cleanup(func() { _ = m.holder.Process.Kill(); _ = m.holder.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(h.t, err)
	require.Equal(h.t, "up\n", line)
	h.ip(fmt.Sprintf("link add m%d type veth peer name eth0 netns %d", i, m.holder.Process.Pid), fmt.Sprintf("link set m%d master lan up", i))
	h.must(m.command(h, "ip link set lo up && ip addr add 10.88.0."+fmt.Sprint(i+1)+"/24 dev eth0 && ip link set eth0 up"))
	return m
}

// command runs a script on a machine, in root's home.
func (m *machine) command(h *hosts, script string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), "nsenter", "--target", fmt.Sprint(m.holder.Process.Pid), "--net", "--mount", "--uts",
		"sh", "-euc", "cd "+m.home+"\n"+script)
	cmd.Env = append(h.env, "HOME="+m.home, "XDG_CONFIG_HOME="+m.home)
	return cmd
}

// must runs a command, and returns what it prints.
func (h *hosts) must(cmd *exec.Cmd) string {
	h.t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, "%s\n%s%s", cmd.Args, out, h.logs())
	return string(out)
}

// here runs a script on the operator's machine.
func (h *hosts) here(script string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), hostLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir, cmd.Env = h.dir, h.env
	return h.must(cmd)
}

// on runs a script on a machine.
func (h *hosts) on(name, script string) string {
	h.t.Helper()
	return h.must(h.by[name].command(h, script))
}

// start runs a script that ends with a broker, whose log goes to a file.
func (h *hosts) start(name, script string) {
	h.t.Helper()
	m := h.by[name]
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(h.t, err)
	defer log.Close()
	m.broker = m.command(h, "exec "+script)
	m.broker.Stdout, m.broker.Stderr = log, log
	m.broker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(h.t, m.broker.Start())
	broker := m.broker
	h.t.Cleanup(func() { _ = broker.Process.Kill(); _ = broker.Wait() })
}

// logged returns the log of a machine's broker.
func (h *hosts) logged(name string) string {
	text, _ := os.ReadFile(h.by[name].log) // none before its start
	return string(text)
}

// logs returns the ends of all logs.
func (h *hosts) logs() string {
	var all strings.Builder
	for _, name := range h.names {
		if m := h.by[name]; m != nil {
			lines := strings.Split(strings.TrimSpace(h.logged(name)), "\n")
			fmt.Fprintf(&all, "%s:\n%s\n", name, strings.Join(lines[max(0, len(lines)-8):], "\n"))
		}
	}
	return all.String()
}
