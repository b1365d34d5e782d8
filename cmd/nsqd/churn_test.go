package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnectionChurn: clients that connect and disconnect as fast as possible, some within a
// command or with a reset, leave no resources in use and keep no other client from publishing.
func TestConnectionChurn(t *testing.T) {
	b := start(t)
	c := b.dial()
	alone := putTimes(c, 200)
	b.churn(500*time.Millisecond, nil) // resources that are allocated once and kept
	before := b.memory()
	files := b.files()
	var beside []time.Duration
	n := b.churn(3*time.Second, func() { beside = append(beside, putTimes(c, 50)...) })
	grown := b.memory() - before
	t.Logf("%d connections a second; %d bytes more; puts alone p50 %v, p99 %v; beside %v, %v", n/3, grown,
		quantile(alone, 0.5), quantile(alone, 0.99), quantile(beside, 0.5), quantile(beside, 0.99))
	require.Greater(t, n, 1000)
	require.Less(t, grown, memoryFactor*64<<20)
	require.Less(t, quantile(beside, 0.99), 2*time.Second)
	b.eventually("closes them all", func() bool { return b.files() <= files+10 })
	b.quiet()
}

// churn connects and disconnects for a while from a few goroutines, and returns how often. It
// calls beside, if any, repeatedly meanwhile.
func (b *broker) churn(d time.Duration, beside func()) int {
	b.t.Helper()
	var count atomic.Int64
	var clients sync.WaitGroup
	end := time.Now().Add(d)
	for range 8 {
		clients.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				if b.visit(i) == nil {
					count.Add(1)
				}
			}
		})
	}
	for beside != nil && time.Now().Before(end) {
		beside()
	}
	clients.Wait()
	return int(count.Load())
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

func putTimes(c *client, n int) []time.Duration {
	c.t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		c.put("orders", "x")
		times[i] = time.Since(began)
	}
	return times
}

func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))].Round(time.Microsecond)
}
