package bench

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// publishers returns tasks that share n messages.
func (r *nsq) publishers(n int) ([]Task, int) {
	per := max(r.w.Batch, 1)
	puts := n / r.w.Connections / per
	tasks := make([]Task, r.w.Connections)
	for i := range tasks {
		tasks[i] = r.publisher(i, puts, r.Add)
	}
	return tasks, puts * per * r.w.Connections
}

// publisher keeps w.Outstanding unanswered puts on one connection, in turn over the topics.
func (r *nsq) publisher(i, puts int, done func(n int)) Task {
	w, cfg, topics := r.w, r.cfg, r.topics()
	return func(_ context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		c, err := cfg.dial(i, usual)
		if err != nil {
			return err
		}
		defer c.Close()
		bodies := slices.Repeat([][]byte{bytes.Repeat([]byte{'x'}, w.Size)}, max(w.Batch, 1))
		h := NewHistogram()
		defer func() { r.Merge(h) }()
		sent := make([]time.Time, max(w.Outstanding, 1))
		ready <- struct{}{}
		<-begin
		next, answered := 0, 0
		for {
			now := time.Now()
			if r.Over(now) {
				puts = next
			}
			if answered >= puts {
				return nil
			}
			for next < puts && next-answered < len(sent) {
				c.Publish(topics[(i+next*w.Connections)%len(topics)], nil, bodies)
				sent[next%len(sent)] = now
				next++
			}
			if err := c.W.Flush(); err != nil {
				return err
			}
			for { // read every answer that has arrived
				if _, err := c.Response(); err != nil {
					return err
				}
				_ = h.RecordValue(int64(time.Since(sent[answered%len(sent)])))
				answered++
				done(max(w.Batch, 1))
				if c.R.Buffered() < 8 || answered == next {
					break
				}
			}
		}
	}
}

// fill publishes a backlog in multi-puts and returns the number of its messages.
func (r *nsq) fill(ctx context.Context, n int) (int, error) {
	w := Workload{Name: "fill", Connections: 4, Outstanding: 4, Batch: 100, Size: r.w.Size, Messages: n}
	cfg := *r.cfg
	cfg.Scale, cfg.PIDs, cfg.Progress = 1, nil, nil
	run, err := Measure(ctx, w, &cfg)
	return run.Messages, err
}
