package publisher

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// network has brokers in memory, by address. An address without a broker refuses connections.
type network map[string]func() net.Conn

func (n network) dial(_ context.Context, _, address string) (net.Conn, error) {
	if dial := n[address]; dial != nil {
		return dial(), nil
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: memory(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// memory is the address of a broker in memory.
type memory string

func (memory) Network() string  { return "tcp" }
func (a memory) String() string { return string(a) }

// inMemory is a broker in a bubble, with the options that reach it.
func inMemory(t *testing.T, o tcp.Options) (Options, *edgetest.Cluster) {
	t.Helper()
	dial, cluster := brokertest.Memory(t, o)
	with := defaults("memory")
	with.Dialer.Open = network{"memory": dial}.dial
	return with, cluster
}

// silent opens connections that nobody answers.
func silent(t *testing.T) func() net.Conn {
	return func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		return near
	}
}

// running is a run whose input is not at its end.
type running struct {
	t      *testing.T
	in     *io.PipeWriter
	cancel context.CancelFunc // Ctrl-C
	done   chan struct{}
	totals Totals // after done
	err    error  // after done
}

// defaults returns the options of nsqctl pub.
func defaults(addresses ...string) Options {
	return Options{
		Topic: "orders", Addresses: addresses, Dialer: nsqclient.Dialer{Timeout: wait.Limit},
		Batch: 1, Linger: 100 * time.Millisecond, Window: 500, Retry: 30 * time.Second, Timeout: 15 * time.Second,
		Report: func(string) {}, Progress: func(int) {},
	}
}

func begin(t *testing.T, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	r := &running{t: t, in: out, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.totals, r.err = Run(ctx, in, o)
	}()
	t.Cleanup(func() { _ = out.Close(); cancel(); <-r.done })
	return r
}

func (r *running) line(text string) {
	r.t.Helper()
	_, err := io.WriteString(r.in, text+"\n")
	require.NoError(r.t, err)
}

// ends waits for the end of the run.
func (r *running) ends() error {
	r.t.Helper()
	wait.For(r.t, r.done, "the end of the run")
	return r.err
}

// run publishes lines, and returns the reports too.
func run(t *testing.T, o Options, lines ...string) (totals Totals, reports string, err error) {
	t.Helper()
	var b bytes.Buffer
	report := o.Report
	said := cli.NewReporter(&b)
	o.Report = func(line string) { said.Report(line); report(line) }
	totals, err = Run(wait.Context(t), strings.NewReader(strings.Join(lines, "\n")+"\n"), o)
	return totals, b.String(), err
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestPubLooksAtAnswersMeanwhile: a slow input delays neither puts nor their answers.
func TestPubLooksAtAnswersMeanwhile(t *testing.T) {
	small := tcp.DefaultOptions()
	small.MaxMsgSize = 10
	for _, batch := range []int{1, 100} {
		address, cluster := brokertest.Start(t, small)
		o := defaults(address)
		o.Batch = batch
		r := begin(t, o)
		r.line("one")
		wait.Until(t, func() bool { return sum(cluster.Puts()) == 1 }, "a message is published")
		r.line("much too long a line")
		require.ErrorContains(t, r.ends(), "E_BAD_MESSAGE", "while the input is open")
		require.Equal(t, Totals{Messages: 1}, r.totals)
	}
}

// TestPubIsInterrupted: Ctrl-C ends the run at once. The totals have the published messages,
// also if the broker does not answer or the input blocks.
func TestPubIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, cluster := inMemory(t, tcp.DefaultOptions())
		r := begin(t, o)
		r.line("one")
		wait.Until(t, func() bool { return sum(cluster.Puts()) == 1 }, "a message is published")
		cluster.Hold()
		r.line("two")
		wait.Until(t, func() bool { return cluster.Held() == 1 }, "a put waits for its answer")
		began := time.Now()
		r.cancel()
		err := r.ends()
		require.Equal(t, lastAnswers, time.Since(began))
		require.EqualError(t, err, "interrupted; 1 put without an answer may be stored")
		require.Equal(t, Totals{Messages: 1}, r.totals)
		cluster.Release()
	})
}

// TestPubReportsRefusals: a refused put is reported before its retry, and a put in doubt is
// counted.
func TestPubReportsRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		refusal error
		told    string
		retried func(Totals) int64
	}{
		"not stored": {outcome.ErrDiskFull, "E_PUB_FAILED PUB failed disk reserve reached, not stored: retrying for up to 30s", func(n Totals) int64 { return n.Retried }},
		"in doubt":   {outcome.ErrInDoubt, "E_PUB_FAILED PUB failed in doubt, may be stored: publishing the put again, so it may be stored twice", func(n Totals) int64 { return n.InDoubt }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, cluster := inMemory(t, tcp.DefaultOptions())
				cluster.FailPuts(test.refusal)
				o.Report = func(string) { cluster.FailPuts(nil) }
				totals, reports, err := run(t, o, "one")
				require.NoError(t, err)
				require.Contains(t, reports, test.told)
				require.EqualValues(t, 1, totals.Messages)
				require.EqualValues(t, 1, test.retried(totals))
				require.EqualValues(t, 1, totals.Retried+totals.InDoubt)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		o, cluster := inMemory(t, tcp.DefaultOptions())
		cluster.FailPuts(outcome.ErrNotEnough)
		o.Retry = 300 * time.Millisecond
		totals, reports, err := run(t, o, "one")
		require.ErrorContains(t, err, "not enough in-sync replicas, not stored")
		require.Zero(t, totals.Messages)
		require.Equal(t, 1, strings.Count(reports, "retrying"), "%s", reports)
	})
}

// TestPubNamesTheSilentBroker: a port that is dead, or accepts connections without answering,
// is named, and given up after Options.Retry.
func TestPubNamesTheSilentBroker(t *testing.T) {
	brokers := func(t *testing.T) network {
		held, cluster := brokertest.Memory(t, tcp.DefaultOptions())
		cluster.Hold()
		t.Cleanup(cluster.Release)
		live, _ := brokertest.Memory(t, tcp.DefaultOptions())
		return network{"silent": silent(t), "held": held, "live": live}
	}
	for address, test := range map[string]struct{ says, fails string }{
		"dead":   {"dead: nothing listens there: the broker is not started, or has another address; retrying for up to 500ms", "given up after 500ms"},
		"silent": {"it accepts connections but does not answer within 200ms", "given up after 500ms"},
		"held":   {"held: no answer within 200ms; in doubt: 1 put without an answer, published again and possibly stored twice", "a put failed"},
	} {
		t.Run(address, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := defaults(address)
				o.Dialer.Open = brokers(t).dial
				o.Retry, o.Timeout = 500*time.Millisecond, 200*time.Millisecond
				totals, reports, err := run(t, o, "one")
				require.ErrorContains(t, err, test.fails)
				require.Zero(t, totals.Messages)
				require.Contains(t, reports, test.says)
			})
		})
		t.Run("the one behind "+address+" answers", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := defaults(address, "live")
				o.Dialer.Open = brokers(t).dial
				o.Timeout = 200 * time.Millisecond
				totals, _, err := run(t, o, "one", "two")
				require.NoError(t, err)
				require.EqualValues(t, 2, totals.Messages)
			})
		})
	}
}

// TestPubGivesUpWhatCannotBe: a message that every broker refuses is not retried.
func TestPubGivesUpWhatCannotBe(t *testing.T) {
	small := tcp.DefaultOptions()
	small.MaxMsgSize = 10
	address, _ := brokertest.Start(t, small)
	o := defaults(address)
	o.Window = 1
	totals, _, err := run(t, o, "one", "much too long a line")
	require.ErrorContains(t, err, "a put failed: E_BAD_MESSAGE")
	require.Equal(t, Totals{Messages: 1}, totals)
}

// TestPubRetriesARefusedPutSlowly: a broker that refuses for now does not get thousands of
// puts a second.
func TestPubRetriesARefusedPutSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, cluster := inMemory(t, tcp.DefaultOptions())
		cluster.FailPuts(outcome.ErrDiskFull)
		o.Retry = time.Second
		_, _, err := run(t, o, "one")
		require.ErrorContains(t, err, "E_PUB_FAILED")
		require.LessOrEqual(t, len(cluster.Puts()), 25)
		require.Greater(t, len(cluster.Puts()), 1)
	})
}

// TestPubRetriesAWindow: hundreds of puts that were refused together do not wait for one
// another.
func TestPubRetriesAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, cluster := inMemory(t, tcp.DefaultOptions())
		cluster.FailPuts(outcome.ErrDiskFull)
		var healing sync.WaitGroup
		defer healing.Wait()
		healing.Go(func() {
			assert.True(t, wait.Holds(func() bool { return sum(cluster.Puts()) >= 500 }))
			cluster.FailPuts(nil)
		})
		began := time.Now()
		totals, _, err := run(t, o, strings.Repeat("line\n", 500))
		require.NoError(t, err)
		require.EqualValues(t, 500, totals.Messages)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}
