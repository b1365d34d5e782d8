package bench

import (
	"context"
	"encoding/binary"
	"time"
)

// flow returns the tasks of producers at a fixed rate, in turn over the topics, and of
// consumers of each topic. Bodies begin with the time at which they were due.
func (r *nsq) flow(n int) ([]Task, int) {
	w := r.w
	if limit := r.cfg.Limit; limit > 0 {
		n = min(n, int(float64(w.Rate)*limit.Seconds()))
	}
	per, topics := n/w.Connections, r.topics()
	base := time.Now()
	var tasks []Task
	for i := range w.Connections {
		tasks = append(tasks, r.metronome(i, per, topics, base))
	}
	for t, topic := range topics {
		for i := range w.Consumers {
			tasks = append(tasks, r.consumer(t+i, topic, "bench", func() func([]byte) { return r.stopwatch(base) }))
		}
	}
	return tasks, per * w.Connections
}

// stopwatch returns a function that records for each body how long ago it was due.
func (r *nsq) stopwatch(base time.Time) func(body []byte) {
	return func(body []byte) {
		r.record(time.Since(base) - time.Duration(binary.BigEndian.Uint64(body)))
	}
}

// metronome publishes one message at each of its times. It does not wait for answers: a stall
// of the broker must not lower the rate. If it is late itself, it publishes all messages that
// are due, with the times at which they were due.
func (r *nsq) metronome(i, n int, topics []string, base time.Time) Task {
	w, cfg := r.w, r.cfg
	every := time.Second * time.Duration(w.Connections) / time.Duration(w.Rate)
	return func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		c, err := cfg.dial(i, usual)
		if err != nil {
			return err
		}
		defer c.Close()
		ready <- struct{}{}
		<-begin
		answered := make(chan error, 1)
		go func() { // ends with the last answer or the connection
			for range n {
				if _, err := c.Response(); err != nil {
					answered <- err
					return
				}
			}
			answered <- nil
		}()
		body := make([]byte, max(w.Size, 8))
		bodies := [][]byte{body}
		due := time.Now().Add(every * time.Duration(i) / time.Duration(w.Connections))
		for k := range n {
			if wait := time.Until(due); wait > 0 {
				if err := c.W.Flush(); err != nil {
					return err
				}
				time.Sleep(wait)
			}
			binary.BigEndian.PutUint64(body, uint64(due.Sub(base)))
			c.Publish(topics[(i+k*w.Connections)%len(topics)], nil, bodies)
			due = due.Add(every)
		}
		if err := c.W.Flush(); err != nil {
			return err
		}
		select {
		case err := <-answered:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
