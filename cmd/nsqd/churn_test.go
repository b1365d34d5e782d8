package main

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConnectionChurn: clients that connect and disconnect as fast as possible, some within a
// command or with a reset, leave no resources in use and keep no other client from publishing.
func TestConnectionChurn(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	b.churn(500, nil) // resources that are allocated once and kept
	c.put("orders", "x")
	before, files := b.memory(), b.files()
	b.churn(2000, func() { c.put("orders", "x") })
	require.Less(t, b.memory()-before, memoryFactor*64<<20)
	b.eventually("closes them all", func() bool { return b.files() <= files+10 })
	b.quiet()
}

// churn connects and disconnects so often, from a few goroutines. It calls beside, if any, repeatedly during the churn.
func (b *broker) churn(times int64, beside func()) {
	b.t.Helper()
	var count atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := count.Add(1); n <= times; n = count.Add(1) {
				_ = b.visit(int(n)) // the broker may refuse it
			}
		})
	}
	for beside != nil && count.Load() < times {
		beside()
	}
	clients.Wait()
}

// visit is one short connection; how it ends depends on its number.
func (b *broker) visit(n int) error {
	conn, err := net.Dial("tcp", b.address(0))
	if err != nil {
		return err
	}
	ends := []string{"", "  V2", "  V2PUB t\n" + size(100) + "half", "  V2SUB t c#ephemeral\nRDY 1\n", "  V2NOP\nCLS\n"}
	_, err = conn.Write([]byte(ends[n%len(ends)]))
	if n%2 == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset; the other connections end with a FIN
	}
	_ = conn.Close()
	return err
}

// files returns the number of open files of the process.
func (b *broker) files() int {
	b.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	require.NoError(b.t, err)
	return len(open)
}
