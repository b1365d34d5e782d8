//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMonitorThreadIsPaced: a broker restarts itself with the setting that slows the runtime's monitor thread, unless
// the operator has set it. Measuring the gain needs three brokers and a quiet machine: docs/adr/0005.
func TestMonitorThreadIsPaced(t *testing.T) {
	t.Parallel()
	require.Contains(t, environ(t, ""), "GODEBUG="+slowTrace+"\x00")
	require.Contains(t, environ(t, "madvdontneed=1"), "GODEBUG=madvdontneed=1,"+slowTrace+"\x00")
	require.NotContains(t, environ(t, "schedtrace=0"), slowTrace)
}

// environ returns the environment of a broker that was started with a GODEBUG.
func environ(t *testing.T, debug string) string {
	t.Helper()
	b := prepare(t)
	b.env = []string{"GODEBUG=" + debug}
	b.run()
	b.eventually("has its settings", func() bool { return strings.Contains(b.logged(), "settings that differ") }) // after the restart
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.cmd.Process.Pid))
	require.NoError(t, err)
	return string(env) + "\x00"
}
