//go:build linux

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMonitorThreadIsPaced: a broker restarts itself with the setting that slows the runtime's
// monitor thread, unless the operator has set it. Measuring the gain needs three brokers and a
// quiet machine: docs/adr/0005.
func TestMonitorThreadIsPaced(t *testing.T) {
	require.Contains(t, environ(t), "GODEBUG="+slowTrace+"\x00")
	t.Setenv("GODEBUG", "madvdontneed=1")
	require.Contains(t, environ(t), "GODEBUG=madvdontneed=1,"+slowTrace+"\x00")
	t.Setenv("GODEBUG", "schedtrace=0")
	require.NotContains(t, environ(t), slowTrace)
}

// environ returns the environment of a broker that answers.
func environ(t *testing.T) string {
	t.Helper()
	b := start(t)
	defer b.stop()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.cmd.Process.Pid))
	require.NoError(t, err)
	return string(env) + "\x00"
}
