package packaging

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// limitsOf has the kernel's files of a cgroup with limits of 400 MiB and of three processors.
// The test places them into its own root, so that both versions of cgroups are tested on any
// machine.
var limitsOf = map[string]map[string]string{
	"cgroup v1": {
		"proc/self/cgroup":                               "5:memory:/box\n4:cpu,cpuacct:/box\n",
		"proc/self/mountinfo":                            "40 30 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 30 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
		"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "419430400\n",
		"sys/fs/cgroup/memory/box/memory.stat":           "hierarchical_memory_limit 419430400\n",
		"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us":         "300000\n",
		"sys/fs/cgroup/cpu/box/cpu.cfs_period_us":        "100000\n",
	},
	"cgroup v2": {
		"proc/self/cgroup":                 "0::/box\n",
		"proc/self/mountinfo":              "40 30 0:35 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/box/memory.max":     "419430400\n",
		"sys/fs/cgroup/box/cpu.max":        "300000 100000\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
	},
	"no limits": {},
}

// TestLimitsOfTheContainer: the broker uses at most 90 % of the memory, and the Go runtime the
// three processors of eight. strace answers in place of the kernel, since this machine may
// have no more processors than Go always uses.
func TestLimitsOfTheContainer(t *testing.T) {
	nsqd := filepath.Join(unpacked(t), "bin", "nsqd")
	for name, want := range map[string]struct{ memory, processors float64 }{
		"cgroup v1": {360 << 20, 3}, "cgroup v2": {360 << 20, 3}, "no limits": {math.MaxInt64, 8},
	} {
		t.Run(name, func(t *testing.T) {
			root := scratch(t)
			for file, text := range limitsOf[name] {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
			}
			require.NoError(t, os.MkdirAll(filepath.Join(root, "data"), 0o755))
			sh(t, "", "cp "+nsqd+" "+root+"/nsqd")
			n := newNetwork(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, "ip", "netns", "exec", n.namespace(0),
				"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sched_getaffinity", "-e", "inject=sched_getaffinity:retval=8:poke_exit=@arg3=ff00000000000000",
				"chroot", root, "/nsqd", "--data-path=/data", "--node-name=n1", "--broadcast-address=127.0.0.1")
			cmd.Env = append(os.Environ(), "GODEBUG=schedtrace=0") // without this setting the broker would restart itself
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			var log strings.Builder
			cmd.Stdout, cmd.Stderr = &log, &log
			require.NoError(t, cmd.Start())
			defer func() {
				_, _ = try("", "kill $(ip netns pids "+n.namespace(0)+")")
				cancel()
				_ = cmd.Wait() // the signal ends strace
				if t.Failed() {
					t.Log(log.String())
				}
			}()
			ask := "ip netns exec " + n.namespace(0) + " curl -sSf http://127.0.0.1:4151/metrics"
			eventually(t, "answers", ask)
			metrics := sh(t, "", ask)
			require.InDelta(t, want.processors, metric(t, metrics, "go_sched_gomaxprocs_threads"), 0)
			require.InDelta(t, want.memory, metric(t, metrics, "go_gc_gomemlimit_bytes"), 1)
		})
	}
}

// metric returns the value of a series without labels.
func metric(t *testing.T, metrics, name string) (value float64) {
	t.Helper()
	_, rest, found := strings.Cut(metrics, "\n"+name+" ")
	require.True(t, found, name)
	_, err := fmt.Sscan(rest, &value)
	require.NoError(t, err)
	return value
}
