package bench

import (
	"bytes"
	"context"
	"time"
)

// publishers share n messages.
func (r *repeat) publishers(n int) ([]task, int64) {
	per := max(r.w.Batch, 1)
	puts := n / r.w.Connections / per
	tasks := make([]task, r.w.Connections)
	for i := range tasks {
		tasks[i] = r.publisher(i, puts, r.add)
	}
	return tasks, int64(puts * per * r.w.Connections)
}

// publisher keeps w.Outstanding puts under way on one connection.
func (r *repeat) publisher(i, puts int, done func(n int)) task {
	w, cfg := r.w, r.cfg
	return func(_ context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		c, err := dial(cfg.Addresses[i%len(cfg.Addresses)], cfg.Timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		body := bytes.Repeat([]byte{'x'}, w.Size)
		h := newHistogram()
		defer func() { r.merge(h) }()
		sent := make([]time.Time, max(w.Outstanding, 1))
		ready <- struct{}{}
		<-begin
		next, answered := 0, 0
		for answered < puts {
			now := time.Now()
			for next < puts && next-answered < len(sent) {
				c.put(cfg.Topic, body, w.Batch)
				sent[next%len(sent)] = now
				next++
			}
			if err := c.w.Flush(); err != nil {
				return err
			}
			for { // take every answer that is here already
				if _, err := c.response(); err != nil {
					return err
				}
				_ = h.RecordValue(int64(time.Since(sent[answered%len(sent)])))
				answered++
				done(max(w.Batch, 1))
				if c.r.Buffered() < 8 || answered == next {
					break
				}
			}
		}
		return nil
	}
}

// fill publishes a backlog in multi-puts.
func (r *repeat) fill(ctx context.Context, n int) error {
	w := Workload{Name: "fill", Connections: 4, Outstanding: 4, Batch: 100, Size: r.w.Size, Messages: n}
	_, err := Measure(ctx, w, &Config{Addresses: r.cfg.Addresses, Topic: r.cfg.Topic, Timeout: r.cfg.Timeout, Scale: 1})
	return err
}
