package publisher

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/brokertest"
)

// deadAddress is an address without a listener.
const deadAddress = "127.0.0.1:1"

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
		Topic: "orders", Addresses: addresses, Dialer: Dialer{Timeout: 3 * time.Second},
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
	select {
	case <-r.done:
	case <-time.After(10 * time.Second):
		require.FailNow(r.t, "it goes on")
	}
	return r.err
}

// run publishes lines, and returns the reports too.
func run(t *testing.T, o Options, lines ...string) (totals Totals, reports string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var b bytes.Buffer
	o.Report = func(line string) { b.WriteString(line + "\n") }
	totals, err = Run(ctx, strings.NewReader(strings.Join(lines, "\n")+"\n"), o)
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
	small := protocol.DefaultOptions()
	small.MaxMsgSize = 10
	for _, batch := range []int{1, 100} {
		address, cluster := brokertest.Start(t, small)
		o := defaults(address)
		o.Batch = batch
		r := begin(t, o)
		r.line("one")
		require.Eventually(t, func() bool { return sum(cluster.Puts()) == 1 }, 10*time.Second, time.Millisecond)
		r.line("much too long a line")
		require.ErrorContains(t, r.ends(), "E_BAD_MESSAGE", "while the input is open")
		require.Equal(t, Totals{Messages: 1}, r.totals)
	}
}

// TestPubIsInterrupted: Ctrl-C ends the run at once. The totals have the published messages,
// also if the broker does not answer or the input blocks.
func TestPubIsInterrupted(t *testing.T) {
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	r := begin(t, defaults(address))
	r.line("one")
	require.Eventually(t, func() bool { return sum(cluster.Puts()) == 1 }, 10*time.Second, time.Millisecond)
	cluster.Hold()
	r.line("two")
	require.Eventually(t, func() bool { return cluster.Held() == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	r.cancel()
	err := r.ends()
	require.Less(t, time.Since(began), 5*time.Second)
	require.EqualError(t, err, "interrupted; 1 puts have no answer and may be stored")
	require.Equal(t, Totals{Messages: 1}, r.totals)
	cluster.Release()
}

// TestPubReportsRefusals: a refused put is reported before its retry, and a put in doubt is
// counted.
func TestPubReportsRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		refusal error
		told    string
		retried func(Totals) int64
	}{
		"not stored": {edge.ErrDiskFull, "E_PUB_FAILED PUB failed disk reserve reached, not stored: retrying for up to 30s", func(n Totals) int64 { return n.Retried }},
		"in doubt":   {edge.ErrInDoubt, "E_PUB_FAILED PUB failed in doubt, may be stored: publishing the put again, so it may be stored twice", func(n Totals) int64 { return n.InDoubt }},
	} {
		t.Run(name, func(t *testing.T) {
			address, cluster := brokertest.Start(t, protocol.DefaultOptions())
			cluster.FailPuts(test.refusal)
			var healing sync.WaitGroup
			defer healing.Wait()
			healing.Go(func() {
				assert.Eventually(t, func() bool { return len(cluster.Puts()) == 1 }, 10*time.Second, time.Microsecond)
				cluster.FailPuts(nil)
			})
			totals, reports, err := run(t, defaults(address), "one")
			require.NoError(t, err)
			require.Contains(t, reports, test.told)
			require.EqualValues(t, 1, totals.Messages)
			require.Positive(t, test.retried(totals))
			require.Equal(t, test.retried(totals), totals.Retried+totals.InDoubt)
		})
	}
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	cluster.FailPuts(edge.ErrNotEnough)
	o := defaults(address)
	o.Retry = 300 * time.Millisecond
	totals, reports, err := run(t, o, "one")
	require.ErrorContains(t, err, "not enough in-sync replicas, not stored")
	require.Zero(t, totals.Messages)
	require.Equal(t, 1, strings.Count(reports, "retrying"), "%s", reports)
}

// TestPubNamesTheSilentBroker: a port that is dead, or accepts connections without answering,
// is named, and given up after Options.Retry.
func TestPubNamesTheSilentBroker(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // without Accept
	require.NoError(t, err)
	defer silent.Close()
	held, cluster := brokertest.Start(t, protocol.DefaultOptions())
	cluster.Hold()
	defer cluster.Release()
	for name, test := range map[string]struct{ address, says, fails string }{
		"dead":               {deadAddress, deadAddress + ": dial tcp 127.0.0.1:1: connect: connection refused; retrying for up to 500ms", "given up after 500ms"},
		"silent":             {silent.Addr().String(), "it accepts connections but does not answer within 200ms", "given up after 500ms"},
		"silent after hello": {held, held + ": no answer within 200ms; 1 puts without an answer are in doubt and are published again, so they may be stored twice", "a put failed"},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaults(test.address)
			o.Retry, o.Timeout = 500*time.Millisecond, 200*time.Millisecond
			totals, reports, err := run(t, o, "one")
			require.ErrorContains(t, err, test.fails)
			require.Zero(t, totals.Messages)
			require.Contains(t, reports, test.says)
		})
	}
	t.Run("the next one answers", func(t *testing.T) {
		live, _ := brokertest.Start(t, protocol.DefaultOptions())
		for _, first := range []string{deadAddress, silent.Addr().String(), held} {
			o := defaults(first, live)
			o.Timeout = 200 * time.Millisecond
			totals, _, err := run(t, o, "one", "two")
			require.NoError(t, err)
			require.EqualValues(t, 2, totals.Messages)
		}
	})
}

// TestPubGivesUpWhatCannotBe: a message that every broker refuses is not retried.
func TestPubGivesUpWhatCannotBe(t *testing.T) {
	small := protocol.DefaultOptions()
	small.MaxMsgSize = 10
	address, _ := brokertest.Start(t, small)
	o := defaults(address)
	o.Window = 1
	totals, _, err := run(t, o, "one", "much too long a line")
	require.ErrorContains(t, err, "a put failed 1 times, last: E_BAD_MESSAGE")
	require.Equal(t, Totals{Messages: 1}, totals)
}

// TestPubRetriesARefusedPutSlowly: a broker that refuses for now does not get thousands of
// puts a second.
func TestPubRetriesARefusedPutSlowly(t *testing.T) {
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	cluster.FailPuts(edge.ErrDiskFull)
	o := defaults(address)
	o.Retry = time.Second
	_, _, err := run(t, o, "one")
	require.ErrorContains(t, err, "E_PUB_FAILED")
	require.LessOrEqual(t, len(cluster.Puts()), 25)
	require.Greater(t, len(cluster.Puts()), 1)
}

// TestPubRetriesAWindow: hundreds of puts that were refused together do not wait for one
// another.
func TestPubRetriesAWindow(t *testing.T) {
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	cluster.FailPuts(edge.ErrDiskFull)
	var healing sync.WaitGroup
	defer healing.Wait()
	healing.Go(func() {
		assert.Eventually(t, func() bool { return sum(cluster.Puts()) >= 500 }, 10*time.Second, time.Millisecond)
		cluster.FailPuts(nil)
	})
	began := time.Now()
	totals, _, err := run(t, defaults(address), strings.Repeat("line\n", 500))
	require.NoError(t, err)
	require.EqualValues(t, 500, totals.Messages)
	require.Less(t, time.Since(began), 10*time.Second)
}
