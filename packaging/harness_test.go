// Package packaging tests the installable products: releases, the Debian package, the image,
// the compose file and the manifests of Kubernetes. Each is built from the current commit, and
// run. The tests need root, Debian, and the programs that packaging/tools installs; make
// test-packages does both. No test is skipped.
//
// Brokers run in containers, or in network namespaces of the tests; no test opens a port of
// the machine.
package packaging

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Versions of the tested packages: the second one is the upgrade.
const (
	version  = "1.2.3"
	upgraded = "1.2.4"
)

// limit bounds every wait for a condition.
const limit = 90 * time.Second

// cache keeps between runs the files that do not depend on the commit: a Debian system, the
// containers' storage, the compiler's results.
func cache(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	require.NoError(t, err)
	dir = filepath.Join(dir, "lockstep-packaging")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

// scratch returns a directory that every user may enter, unlike t.TempDir below a private one.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockstep-packaging-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sh runs a script and returns its output; a failure ends the test.
func sh(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	out, err := try(dir, script, env...)
	require.NoError(t, err, "%s\n%s", script, out)
	return out
}

// try is sh for scripts that may fail.
func try(dir, script string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// eventually waits for a script to end without an error.
func eventually(t *testing.T, what, script string) {
	t.Helper()
	var out string
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if out, err = try("", script); err == nil {
			return
		}
		wait(t, 200*time.Millisecond)
	}
	require.NoError(t, err, "%s: %s\n%s", what, script, out)
}

// wait waits between two checks of a condition.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// clone returns a copy of the current commit: uncommitted changes are not tested.
func clone(t *testing.T, dir string) string {
	t.Helper()
	sh(t, "..", "git clone -q . "+dir)
	return dir
}

// releases are made once for all tests.
var releases struct {
	sync.Mutex
	source, dir string
}

// release returns a clone, and the directory with its release for amd64.
func release(t *testing.T) (source, dir string) {
	t.Helper()
	require.Zero(t, os.Getuid(), "the tests of the packages need root")
	require.Equal(t, "linux/amd64", runtime.GOOS+"/"+runtime.GOARCH)
	releases.Lock()
	defer releases.Unlock()
	if releases.dir == "" {
		work := filepath.Join(shared, "release")
		require.NoError(t, os.MkdirAll(work, 0o755))
		releases.source = clone(t, filepath.Join(work, "source"))
		sh(t, releases.source, "packaging/release.sh "+version+" ../dist linux-amd64")
		releases.dir = filepath.Join(work, "dist")
	}
	return releases.source, releases.dir
}

// shared is the directory of files for all tests.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "lockstep-packaging-"); err == nil {
		err = os.Chmod(shared, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// included are the packages of debian in addition to the smallest system: systemd, what the package of nsqd
// depends on and its recommendations, because the containers have no network, and the programs in the
// base image of the container's build stage.
const included = "systemd,systemd-sysv,dbus,adduser,init-system-helpers,procps,psmisc,ca-certificates,curl,git"

// debian returns a Debian system with the packages included. It is built once per machine.
func debian(t *testing.T) string {
	t.Helper()
	root := filepath.Join(cache(t), fmt.Sprintf("bookworm-%08x", crc32.ChecksumIEEE([]byte(included))))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	sh(t, "", fmt.Sprintf(`rm -rf %[1]s.new
debootstrap --variant=minbase --include=%[2]s bookworm %[1]s.new
rm -rf %[1]s.new/var/cache/apt/archives/*.deb
mv %[1]s.new %[1]s`, root, included))
	return root
}

// podman returns the command line of a container engine with its own storage. Its limits are
// below those of any session, because raising them requires a privilege.
func podman(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cache(t), "containers")
	return "podman --root " + dir + "/root --runroot " + dir + "/run --storage-driver overlay --cgroup-manager cgroupfs --events-backend file --runtime runc"
}

// limits are flags for podman run.
const limits = "--ulimit nofile=10000:10000 --ulimit nproc=10000:10000"

// container removes a container at the end of the test, and prints its log if the test has
// failed.
func container(t *testing.T, name string) {
	t.Helper()
	p := podman(t)
	_, _ = try("", p+" rm -f -t 0 "+name) // left by an aborted run
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := try("", p+" logs "+name)
			t.Logf("log of %s:\n%s", name, log)
		}
		_, _ = try("", p+" rm -f -t 0 "+name)
	})
}

// network is a set of network namespaces, joined by a bridge in a further one.
type network struct {
	t     *testing.T
	name  string
	hosts string // file with all names
}

// addressOf returns the address of the i-th namespace; each generation has another one.
func addressOf(i, generation int) string { return fmt.Sprintf("10.77.%d.%d", generation, i+1) }

func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	n := &network{t: t, name: fmt.Sprintf("lstest%d", os.Getpid()), hosts: filepath.Join(scratch(t), "hosts")}
	t.Cleanup(func() {
		for i := range nodes {
			_, _ = try("", "ip netns del "+n.namespace(i))
		}
		_, _ = try("", "ip netns del "+n.name)
	})
	sh(t, "", fmt.Sprintf(`ip netns add %[1]s; ip -n %[1]s link set lo up
ip -n %[1]s link add br0 type bridge; ip -n %[1]s addr add 10.77.255.254/16 dev br0; ip -n %[1]s link set br0 up`, n.name))
	for i := range nodes {
		sh(t, "", fmt.Sprintf(`ip netns add %[1]s; ip -n %[1]s link set lo up
ip -n %[2]s link add v%[3]d type veth peer name eth0 netns %[1]s
ip -n %[2]s link set v%[3]d master br0 up
ip -n %[1]s addr add %[4]s/16 dev eth0; ip -n %[1]s link set eth0 up`, n.namespace(i), n.name, i, addressOf(i, 0)))
	}
	n.names(nil)
	return n
}

// names replaces the shared file with the names of nodes; generation[i] selects the i-th
// node's address.
func (n *network) names(name func(i int) string, generation ...int) {
	text := "127.0.0.1 localhost\n"
	for i, g := range generation {
		text += addressOf(i, g) + " " + name(i) + "\n"
	}
	require.NoError(n.t, os.WriteFile(n.hosts, []byte(text), 0o644))
}

// readdress changes the address of a node, like a restarted pod's.
func (n *network) readdress(i, from, to int) {
	sh(n.t, "", fmt.Sprintf("ip -n %[1]s addr del %[2]s/16 dev eth0; ip -n %[1]s addr add %[3]s/16 dev eth0",
		n.namespace(i), addressOf(i, from), addressOf(i, to)))
}

func (n *network) namespace(i int) string { return fmt.Sprintf("%s-%d", n.name, i) }

// outside runs a command on the bridge: as a client, or the kubelet.
func (n *network) outside(script string) string {
	return "ip netns exec " + n.name + " sh -euc '" + strings.ReplaceAll(script, "'", `'\''`) + "'"
}
