package attack

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const (
	// maxTimes is how many times their 99th percentile without the flood other clients may
	// wait during it.
	maxTimes = 3
	// leastP99 is the least percentile that is compared: below it the machine's other work decides.
	leastP99 = 20 * time.Millisecond
	tries    = 3
	// maxGrowth bounds the memory that a flood of one port takes, and perFile its part for each
	// file that the broker may open.
	maxGrowth = 256 << 20
	perFile   = 32 << 10
	// boundedRate is the highest rate at which the attacker counts as bounded. Faster ones take
	// as much of the machine as the broker: their figures are printed alone.
	boundedRate = 1500
	// probeLimit bounds the answer to a probe during a flood.
	probeLimit = 3 * time.Second
	// floodedFiles is the broker's limit of open files: a usual one, which a flood reaches.
	floodedFiles = 1024

	producers = 4
	putEvery  = 4 * time.Millisecond // of each producer
)

// target is a port under attack.
type target struct {
	name    string
	port    int
	opening string // what a connection says: the half of something
}

var targets = []target{
	{"TCP", tcpPort, "  V2IDENTIFY\n\x00\x00\xff\xff{\"client_id\":\""},
	{"HTTP", httpPort, "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "},
	{"HTTPS", httpsPort, "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "},
	{"lookup", lookupPort, "GET /topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "},
	{"RPC", rpcPort, "LF\x02\x06\x00\x00\x00\x00\xff\x0f\x00\x00"},
	{"etcd client", etcdPort, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04"},
	{"etcd peer", etcdPeerPort, "GET /members HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "},
}

// pace is the size of a flood.
type pace struct {
	rate    int // connections a second
	seconds float64
	hold    int
	files   int // the broker's limit
	from    []string
}

// paces are those of a short run, and of `make soak`.
func paces() (usual []pace, seconds time.Duration) {
	if !env.Long() {
		return []pace{{rate: 1000, seconds: 1.1, hold: 3000, files: floodedFiles, from: sources(1)}}, 800 * time.Millisecond
	}
	return []pace{
		{rate: 1500, seconds: 10, hold: 10_000, files: floodedFiles, from: sources(1)},
		{rate: 1500, seconds: 10, hold: 10_000, files: floodedFiles, from: sources(100)},
		{rate: 10_000, seconds: 30, hold: min(20_000, mostFiles()-200), files: min(65_536, mostFiles()), from: sources(100)},
	}, 5 * time.Second
}

// mostFiles is the limit of open files of this process, and so the highest one of its children.
func mostFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return floodedFiles
	}
	return int(min(files.Cur, 1<<20))
}

// sources are addresses of this machine that no other client has.
func sources(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("127.66.%d.%d", i/250, 1+i%250))
	}
	return all
}

// TestFloods: connections that say nothing, garbage, or the half of something, at every port,
// with and without TLS. Other clients continue, a probe is answered, memory and files stay within
// bounds; afterwards the broker is ready and stops in time, also under attack.
func TestFloods(t *testing.T) {
	var table []string
	usual, quiet := paces()
	for _, p := range usual {
		for _, tls := range []bool{false, true} {
			name := fmt.Sprintf("plain, %d/s from %d", p.rate, len(p.from))
			if tls {
				name = fmt.Sprintf("TLS, %d/s from %d", p.rate, len(p.from))
			}
			t.Run(name, func(t *testing.T) {
				b := start(t, options{tls: tls, files: p.files})
				b.create("victims")
				for _, at := range targets {
					if at.port == httpsPort && !tls {
						continue // not open
					}
					table = append(table, b.endures(t, at, p, quiet, name))
				}
				b.endsUnderAttack(t, p, name)
			})
		}
	}
	t.Logf("figures:\n\n%s%s\n", tableHead, strings.Join(table, "\n"))
}

const tableHead = "| port | flood | opened | closed by the broker | p99 before | p99 during | worst | put/s before | during | files | memory | probe |\n" +
	"|---|---|---|---|---|---|---|---|---|---|---|---|\n"

// endures floods one port, and gives the row of the table. Timing has some tries.
func (b *broker) endures(t *testing.T, at target, p pace, quiet time.Duration, name string) (row string) {
	t.Helper()
	for try := 1; ; try++ {
		clients := b.openVictims(t)
		before := measure(t, clients, quiet)
		b.resetPeak()
		memory := b.memory()
		a := flood(t, orders{Address: b.address(at.port), From: p.from, TLS: b.ca != nil, Opening: at.opening, Rate: p.rate, Seconds: p.seconds, Hold: p.hold})
		watch := b.watchProbes()
		during := measure(t, clients, time.Duration(p.seconds*float64(time.Second)))
		s := a.wait()
		files, probe := watch()
		grown := max(0, b.peakMemory()-memory)

		require.False(t, b.ended(), "%s: the broker ended", at.name)
		require.Positive(t, s.Opened, "%s: the flood reached the port", at.name)
		require.Less(t, files, p.files, at.name)
		require.Less(t, grown, max(maxGrowth, int64(perFile*p.files)), "%s: memory", at.name)
		if p.rate <= boundedRate {
			require.Less(t, probe, env.Within(t, probeLimit), "%s: a probe during the flood", at.name)
		}
		if len(p.from) == 1 { // many addresses together may take all seats
			newcomer := b.client(t, bootstrap)
			require.NoError(t, newcomer.put("victims", "of a newcomer"), at.name)
			_ = newcomer.conn.Close()
		}
		a.stop()
		b.until(at.name+": the broker is ready after the flood", b.isReady)
		row = fmt.Sprintf("| %s | %s | %d | %d | %s | %s | %s | %.0f | %.0f | %d | %d MiB | %s |", at.name, name, s.Opened, s.Refused,
			ms(before.p99()), ms(during.p99()), ms(during.worst()), before.rate(), during.rate(), files, grown>>20, ms(probe))
		t.Log(row)
		bound := maxTimes * max(before.p99(), leastP99)
		if during.p99() <= env.Within(t, bound) {
			return row
		}
		if p.rate > boundedRate {
			return row
		}
		require.Less(t, try, tries, "%s: other clients wait %s where they waited %s", at.name, during.p99(), before.p99())
	}
}

// unanswered is the time of a probe that failed.
const unanswered = time.Hour

func ms(d time.Duration) string {
	if d >= unanswered {
		return "refused"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// endsUnderAttack sends SIGTERM while connections of all ports are held.
func (b *broker) endsUnderAttack(t *testing.T, p pace, name string) {
	t.Helper()
	var all []*attacker
	for _, at := range targets {
		if at.port != httpsPort || b.ca != nil {
			all = append(all, flood(t, orders{Address: b.address(at.port), From: p.from, TLS: b.ca != nil, Opening: at.opening, Rate: 300, Seconds: 1, Hold: p.hold}))
		}
	}
	for _, a := range all {
		a.wait()
	}
	t.Logf("%s: ended %s after SIGTERM, with the connections of all floods open", name, b.terminate())
	for _, a := range all {
		a.stop()
	}
}

// latencies are those of the puts of other clients.
type latencies struct {
	sorted []time.Duration
	took   time.Duration
}

func (l latencies) p99() time.Duration   { return l.sorted[len(l.sorted)*99/100] }
func (l latencies) worst() time.Duration { return l.sorted[len(l.sorted)-1] }
func (l latencies) rate() float64        { return float64(len(l.sorted)) / l.took.Seconds() }

// openVictims connects the clients that are measured, before the flood.
func (b *broker) openVictims(t *testing.T) (clients []*client) {
	t.Helper()
	for range producers {
		clients = append(clients, b.client(t, bootstrap))
	}
	return clients
}

// measure publishes with each client for a time.
func measure(t *testing.T, clients []*client, d time.Duration) latencies {
	t.Helper()
	all := make([][]time.Duration, len(clients))
	errs := make([]error, len(clients))
	var running sync.WaitGroup
	began := time.Now()
	for i, c := range clients {
		_ = c.conn.SetDeadline(time.Now().Add(d + limit)) // a closed connection fails at the put
		running.Go(func() {
			tick := time.NewTicker(putEvery)
			defer tick.Stop()
			for time.Since(began) < d && errs[i] == nil {
				sent := time.Now()
				errs[i] = c.put("victims", "a message of a victim")
				all[i] = append(all[i], time.Since(sent))
				<-tick.C
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	for _, err := range errs {
		require.NoError(t, err, "a client that was there before the flood")
	}
	l := latencies{slices.Concat(all...), took}
	slices.Sort(l.sorted)
	return l
}

// watchProbes asks /healthz, as a supervisor does, and counts the open files until the
// returned function is called.
func (b *broker) watchProbes() (end func() (files int, slowest time.Duration)) {
	var most atomic.Int64
	var slowest atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			began := time.Now()
			resp, err := b.http.Get("http://" + b.address(httpPort) + "/healthz")
			took := time.Since(began)
			if err == nil {
				_ = resp.Body.Close()
			}
			if err != nil || resp.StatusCode != 200 {
				took = unanswered
			}
			slowest.Store(max(slowest.Load(), int64(took)))
			most.Store(max(most.Load(), int64(b.openFiles())))
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() (int, time.Duration) {
		close(stop)
		<-done
		return int(most.Load()), time.Duration(slowest.Load())
	}
}
