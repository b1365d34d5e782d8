// Package bench measures a broker that speaks the NSQ protocol: a Lockstep
// cluster or a stock nsqd, with the same client. It needs none of our
// extensions. It starts nothing and knows nothing of clusters; what surrounds a
// figure (durability, in-sync replicas) is its caller's.
//
// Every workload is bounded in count and time. A rate is messages answered (or
// finished) divided by wall-clock time. Latencies are recorded in HDR
// histograms: of whole calls where each connection waits for its answer; at a
// fixed rate from the time at which a message was due, so that a stall counts
// for everything that it delayed (no coordinated omission).
//
// Filling a backlog is not part of what is measured, neither time nor CPU.
package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kind is what the connections of a workload do.
type Kind uint8

// The kinds of workloads.
const (
	Publish Kind = iota // keep puts outstanding
	Consume             // take a backlog, finish each message
	Mixed               // producers that wait for each answer, and consumers
	Flow                // puts at a fixed rate, and consumers
	Idle                // partitions that nobody uses; the caller makes them
)

// Workload is one row of the table.
type Workload struct {
	Name        string
	Kind        Kind
	Connections int // producers; of Consume: consumers of each channel
	Consumers   int // of Mixed: in all; of Flow: of each topic
	Outstanding int // puts in flight on each connection
	Batch       int // messages in one multi-put; 0 = PUB
	Size        int // bytes of one message
	Messages    int // in one repeat
	Channels    int // of Consume; 0 = 1
	Topics      int // of Flow; 0 = 1
	Rate        int // of Flow: messages a second in all
	Partitions  int // of Idle
}

// Workloads are the standard rows, in order.
func Workloads() []Workload {
	return []Workload{
		{Name: "pub-1", Connections: 1, Outstanding: 1, Size: 100, Messages: 5_000},
		{Name: "pub-8", Connections: 8, Outstanding: 1, Size: 100, Messages: 40_000},
		{Name: "pub-64", Connections: 64, Outstanding: 1, Size: 100, Messages: 200_000},
		{Name: "pipeline-8x100", Connections: 8, Outstanding: 100, Size: 100, Messages: 600_000},
		{Name: "mpub-8x100", Connections: 8, Outstanding: 2, Batch: 100, Size: 100, Messages: 2_000_000},
		{Name: "pub-16k", Connections: 8, Outstanding: 4, Size: 16 << 10, Messages: 30_000},
		{Name: "consume-1", Kind: Consume, Connections: 1, Size: 100, Messages: 1_000_000},
		{Name: "consume-4", Kind: Consume, Connections: 4, Size: 100, Messages: 1_000_000},
		{Name: "mixed-4x4", Kind: Mixed, Connections: 4, Consumers: 4, Size: 100, Messages: 30_000},
		{Name: "mixed-64x4", Kind: Mixed, Connections: 64, Consumers: 4, Size: 100, Messages: 150_000},
		{Name: "e2e-5000", Kind: Flow, Connections: 4, Consumers: 1, Size: 100, Rate: 5_000, Messages: 50_000},
		{Name: "channels-8", Kind: Consume, Connections: 1, Channels: 8, Size: 1 << 10, Messages: 100_000},
		{Name: "topics-200", Kind: Flow, Connections: 20, Consumers: 1, Topics: 200, Size: 100, Rate: 2_000, Messages: 20_000},
		{Name: "idle-10000", Kind: Idle, Partitions: 10_000},
	}
}

// Config says where and how long to measure.
type Config struct {
	Addresses []string // TCP; connections are spread over them
	Topic     string   // of Flow with several topics: what their names begin with
	Timeout   time.Duration
	Scale     float64      // multiplies the message counts
	PIDs      []int        // of the servers, for their CPU time
	Progress  func(n int)  // told of messages done, now and then; may be nil
	done      atomic.Int64 // messages answered or finished
}

// Run is what one repeat measured.
type Run struct {
	Messages int           `json:"messages"`
	Took     time.Duration `json:"took_ns"`
	Rate     float64       `json:"messages_per_second"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	P999     time.Duration `json:"p999_ns"`
	Max      time.Duration `json:"max_ns"`
	CPU      time.Duration `json:"server_cpu_ns"`
}

// task is one connection's part. It connects, tells ready, waits for begin, and
// returns when its part is done.
type task func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error

// repeat is what the connections of one repeat share.
type repeat struct {
	w       Workload
	cfg     *Config
	n       int64 // messages in all
	latency struct {
		sync.Mutex
		h *hdrhistogram.Histogram
	}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1_000, 60_000_000_000, 3) }

func (r *repeat) merge(h *hdrhistogram.Histogram) {
	r.latency.Lock()
	defer r.latency.Unlock()
	r.latency.h.Merge(h)
}

// add counts messages; the others see when all are done.
func (r *repeat) add(n int) { r.cfg.done.Add(int64(n)) }

func (r *repeat) finished() bool { return r.cfg.done.Load() >= r.n }

// Measure runs one repeat of a workload.
func Measure(ctx context.Context, w Workload, cfg *Config) (Run, error) {
	n := max(int(float64(w.Messages)*cfg.Scale), w.Connections*max(w.Batch, 1))
	r := &repeat{w: w, cfg: cfg}
	r.latency.h = newHistogram()
	var tasks []task
	var err error
	switch w.Kind {
	case Publish:
		tasks, r.n = r.publishers(n)
	case Consume:
		tasks, r.n, err = r.backlog(ctx, n)
	case Mixed:
		tasks, r.n = r.mixed(n)
	case Flow:
		tasks, r.n = r.flow(n)
	default:
		err = errors.New("nothing to do over the protocol")
	}
	if err != nil {
		return Run{}, fmt.Errorf("bench: %s: %w", w.Name, err)
	}
	run, err := r.run(ctx, tasks)
	if err != nil {
		return Run{}, fmt.Errorf("bench: %s: %w", w.Name, err)
	}
	return run, nil
}

// run starts all tasks together and waits for all.
func (r *repeat) run(ctx context.Context, tasks []task) (Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.cfg.done.Store(0)
	ready, begin := make(chan struct{}, len(tasks)), make(chan struct{})
	errs := make(chan error, len(tasks))
	for _, t := range tasks {
		go func() { errs <- t(ctx, ready, begin) }() // ends with its part, or its connection's deadline
	}
	for range tasks {
		select {
		case <-ready:
		case err := <-errs:
			return Run{}, err
		case <-ctx.Done():
			return Run{}, ctx.Err()
		}
	}
	stop := r.watch(ctx)
	cpu, start := CPU(r.cfg.PIDs), time.Now()
	close(begin)
	var failed error
	for range tasks {
		failed = errors.Join(failed, <-errs)
	}
	took := time.Since(start)
	cpu = CPU(r.cfg.PIDs) - cpu
	stop()
	done, h := int(r.cfg.done.Load()), r.latency.h
	quantile := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) }
	return Run{
		Messages: done, Took: took, Rate: float64(done) / took.Seconds(), CPU: cpu,
		P50: quantile(50), P99: quantile(99), P999: quantile(99.9), Max: time.Duration(h.Max()),
	}, failed
}

// watch tells the progress until the returned function is called.
func (r *repeat) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if r.cfg.Progress != nil {
					r.cfg.Progress(int(100 * r.cfg.done.Load() / max(r.n, 1)))
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}
