package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Task is the part of one connection. It connects, signals ready, waits for begin, and returns
// when its part is done, the Repeat is finished or its time is over.
type Task func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error

// Repeat is one repeat of a workload, shared by its tasks.
type Repeat struct {
	bounds   Bounds
	pids     []int
	progress func(percent int)
	n        int64 // total number of messages
	done     atomic.Int64
	last     atomic.Int64 // time of the last message, since start
	start    time.Time    // written before begin is closed
	latency  struct {
		sync.Mutex
		h *hdrhistogram.Histogram
	}
}

// NewRepeat returns a repeat for servers with these pids; progress may be nil.
func NewRepeat(b Bounds, pids []int, progress func(percent int)) *Repeat {
	r := &Repeat{bounds: b, pids: pids, progress: progress}
	r.latency.h = NewHistogram()
	return r
}

// NewHistogram returns a histogram of latencies from 1 µs to a minute, in nanoseconds.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1_000, 60_000_000_000, 3) }

// Merge adds the latencies of one task.
func (r *Repeat) Merge(h *hdrhistogram.Histogram) {
	r.latency.Lock()
	defer r.latency.Unlock()
	r.latency.h.Merge(h)
}

// record adds one latency.
func (r *Repeat) record(d time.Duration) {
	r.latency.Lock()
	defer r.latency.Unlock()
	_ = r.latency.h.RecordValue(int64(d))
}

// Add counts finished messages; the last one ends the repeat for all tasks.
func (r *Repeat) Add(n int) {
	if done := r.done.Add(int64(n)); done >= r.n && done-int64(n) < r.n {
		r.last.Store(int64(time.Since(r.start)))
	}
}

// Finished reports whether all messages are done, or the time is over.
func (r *Repeat) Finished() bool { return r.done.Load() >= r.n || r.Over(time.Now()) }

// Over reports whether the limit has passed: no task may begin anything new.
func (r *Repeat) Over(now time.Time) bool {
	return r.bounds.Limit > 0 && now.Sub(r.start) > r.bounds.Limit
}

// Run starts all tasks together, to do n messages, and waits for all. A task that ends late,
// because it did not notice at once that others had done the last message, adds nothing to the
// time.
func (r *Repeat) Run(ctx context.Context, n int, tasks []Task) (Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.n = int64(n)
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
	defer stop()
	cpu, stolen := CPU(r.pids), Steal()
	r.start = time.Now()
	close(begin)
	var failed error
	for range tasks {
		failed = errors.Join(failed, <-errs)
	}
	took := time.Since(r.start)
	share := stealShare(Steal()-stolen, took)
	if last := time.Duration(r.last.Load()); last > 0 {
		took = last
	}
	run := r.result(took, CPU(r.pids)-cpu)
	run.Steal = share
	return run, failed
}

func (r *Repeat) result(took, cpu time.Duration) Run {
	done, h := int(r.done.Load()), r.latency.h
	quantile := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) }
	return Run{
		Messages: done, Took: took, Rate: float64(done) / took.Seconds(), CPU: cpu,
		P50: quantile(50), P99: quantile(99), P999: quantile(99.9), Max: time.Duration(h.Max()),
	}
}

// watch reports the progress until the returned function is called.
func (r *Repeat) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		concurrency.Every(ctx, 200*time.Millisecond, func() {
			if r.progress != nil {
				r.progress(int(100 * r.done.Load() / max(r.n, 1)))
			}
		})
	}()
	return func() { cancel(); <-ended }
}
