// Package bench measures a broker that speaks the NSQ protocol: a Lockstep
// cluster or a stock nsqd, with the same client. It needs none of our
// extensions; where the broker has them it reports durability and in-sync
// replicas beside each figure.
//
// Every workload is bounded in count and time. A rate is messages answered (or
// finished) divided by wall-clock time; latencies are of whole calls, recorded
// in an HDR histogram.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Workload is one row of the table.
type Workload struct {
	Name        string
	Connections int
	Outstanding int // puts in flight on each connection
	Batch       int // messages in one multi-put; 0 = PUB
	Size        int // bytes of one message
	Messages    int // in one repeat
	Consume     bool
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
		{Name: "consume-1", Connections: 1, Size: 100, Messages: 1_000_000, Consume: true},
		{Name: "consume-4", Connections: 4, Size: 100, Messages: 1_000_000, Consume: true},
	}
}

// Config says where and how long to measure.
type Config struct {
	Addresses []string // TCP; connections are spread over them
	Topic     string
	Timeout   time.Duration // of one repeat
	Scale     float64       // multiplies the message counts
}

// Run is what one repeat measured.
type Run struct {
	Messages int           `json:"messages"`
	Took     time.Duration `json:"took_ns"`
	Rate     float64       `json:"messages_per_second"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	P999     time.Duration `json:"p999_ns"`
}

// latencies is a histogram shared by connections: 1 µs to 60 s, 3 digits.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1_000, 60_000_000_000, 3)}
}

func (l *latencies) merge(h *hdrhistogram.Histogram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Merge(h)
}

// Measure runs one repeat of a workload. A consume workload is filled first,
// outside of the measured time.
func Measure(ctx context.Context, w Workload, cfg Config) (Run, error) {
	n := max(int(float64(w.Messages)*cfg.Scale), w.Connections*max(w.Batch, 1))
	lat := newLatencies()
	work := publish
	if w.Consume {
		if err := fill(ctx, w, n, cfg); err != nil {
			return Run{}, err
		}
		work = consume
	}
	var done atomic.Int64
	var start time.Time
	ready, begin := make(chan struct{}, w.Connections), make(chan struct{})
	errs := make(chan error, w.Connections)
	for i := range w.Connections {
		go func() { // ends with its share of the messages, or the connection's deadline
			errs <- work(ctx, w, cfg, i, n, &done, lat, ready, begin)
		}()
	}
	for range w.Connections {
		select {
		case <-ready:
		case err := <-errs:
			return Run{}, err
		case <-ctx.Done():
			return Run{}, ctx.Err()
		}
	}
	start = time.Now()
	close(begin)
	var failed error
	for range w.Connections {
		failed = errors.Join(failed, <-errs)
	}
	took := time.Since(start)
	if failed != nil {
		return Run{}, fmt.Errorf("%s: %w", w.Name, failed)
	}
	return Run{
		Messages: int(done.Load()), Took: took, Rate: float64(done.Load()) / took.Seconds(),
		P50: quantile(lat.h, 50), P99: quantile(lat.h, 99), P999: quantile(lat.h, 99.9),
	}, nil
}

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q))
}

// fill publishes a backlog in multi-puts, with a channel that waits for it.
func fill(ctx context.Context, w Workload, n int, cfg Config) error {
	c, err := dial(cfg.Addresses[0], cfg.Timeout)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.w, "SUB %s bench\n", cfg.Topic) // RDY stays 0
	if err := c.w.Flush(); err != nil {
		return err
	}
	if _, err := c.response(); err != nil {
		return err
	}
	defer c.Close()
	f := Workload{Name: "fill", Connections: 4, Outstanding: 4, Batch: 100, Size: w.Size, Messages: n}
	_, err = Measure(ctx, f, Config{Addresses: cfg.Addresses, Topic: cfg.Topic, Timeout: cfg.Timeout, Scale: 1})
	return err
}

// publish keeps w.Outstanding puts under way on one connection.
func publish(_ context.Context, w Workload, cfg Config, i, n int, done *atomic.Int64, lat *latencies, ready chan<- struct{}, begin <-chan struct{}) error {
	c, err := dial(cfg.Addresses[i%len(cfg.Addresses)], cfg.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	body := bytes.Repeat([]byte{'x'}, w.Size)
	per := max(w.Batch, 1)
	puts := n / w.Connections / per
	h := hdrhistogram.New(1_000, 60_000_000_000, 3)
	defer func() { lat.merge(h) }()
	sent := make([]time.Time, w.Outstanding)
	ready <- struct{}{}
	<-begin
	next, answered := 0, 0
	for answered < puts {
		now := time.Now()
		for next < puts && next-answered < w.Outstanding {
			if w.Batch > 0 {
				c.mpub(cfg.Topic, body, w.Batch)
			} else {
				c.pub(cfg.Topic, body)
			}
			sent[next%w.Outstanding] = now
			next++
		}
		if err := c.w.Flush(); err != nil {
			return err
		}
		for { // take every answer that is here already
			if _, err := c.response(); err != nil {
				return err
			}
			_ = h.RecordValue(int64(time.Since(sent[answered%w.Outstanding])))
			answered++
			if c.r.Buffered() < 8 || answered == next {
				break
			}
		}
	}
	done.Add(int64(answered * per))
	return nil
}

// consume takes messages and finishes each, until all are done.
func consume(_ context.Context, w Workload, cfg Config, i, n int, done *atomic.Int64, _ *latencies, ready chan<- struct{}, begin <-chan struct{}) error {
	c, err := dial(cfg.Addresses[i%len(cfg.Addresses)], cfg.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c.w, "SUB %s bench\n", cfg.Topic)
	if err := c.w.Flush(); err != nil {
		return err
	}
	if _, err := c.response(); err != nil {
		return err
	}
	ready <- struct{}{}
	<-begin
	_, _ = c.w.WriteString("RDY 250\n")
	if err := c.w.Flush(); err != nil {
		return err
	}
	for done.Load() < int64(n) {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // others may take the last ones
		kind, data, err := c.frame()
		switch {
		case err != nil && done.Load() >= int64(n):
			return nil
		case err != nil && isTimeout(err) && c.r.Buffered() == 0:
			continue
		case err != nil:
			return err
		case kind == frameError:
			return errors.New("bench: the broker answered " + string(data))
		case kind != frameMessage:
			_, _ = c.w.WriteString("NOP\n")
		default:
			_, _ = c.w.WriteString("FIN ")
			_, _ = c.w.Write(data[10:26])
			_ = c.w.WriteByte('\n')
			done.Add(1)
		}
		if c.r.Buffered() < 34 {
			if err := c.w.Flush(); err != nil {
				return err
			}
		}
	}
	return c.w.Flush()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
