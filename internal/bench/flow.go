package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// flow gives producers at a fixed rate, in turn over the topics, and consumers
// of each topic. Bodies begin with the time at which they were due.
func (r *repeat) flow(n int) ([]task, int64) {
	w := r.w
	per := n / w.Connections
	topics := make([]string, max(w.Topics, 1))
	for i := range topics {
		topics[i] = r.cfg.Topic
		if w.Topics > 0 {
			topics[i] = fmt.Sprintf("%s_%d", r.cfg.Topic, i)
		}
	}
	base := time.Now()
	var tasks []task
	for i := range w.Connections {
		tasks = append(tasks, r.metronome(i, per, topics, base))
	}
	for t, topic := range topics {
		for i := range w.Consumers {
			tasks = append(tasks, r.consumer(t+i, topic, "bench", func() func([]byte) { return r.stopwatch(base) }))
		}
	}
	return tasks, int64(per * w.Connections)
}

// stopwatch records for each body how long ago it was due.
func (r *repeat) stopwatch(base time.Time) func(body []byte) {
	return func(body []byte) {
		late := time.Since(base) - time.Duration(binary.BigEndian.Uint64(body))
		r.latency.Lock()
		_ = r.latency.h.RecordValue(int64(late))
		r.latency.Unlock()
	}
}

// metronome puts one message at each of its times. It does not wait for answers:
// a stall of the broker must not lower the rate. If it comes late itself, it
// puts everything that is due, with the time at which it was due.
func (r *repeat) metronome(i, n int, topics []string, base time.Time) task {
	w, cfg := r.w, r.cfg
	every := time.Second * time.Duration(w.Connections) / time.Duration(w.Rate)
	return func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		c, err := dial(cfg.Addresses[i%len(cfg.Addresses)], cfg.Timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		ready <- struct{}{}
		<-begin
		answered := make(chan error, 1)
		go func() { // ends with the last answer or the connection
			for range n {
				if _, err := c.response(); err != nil {
					answered <- err
					return
				}
			}
			answered <- nil
		}()
		body := make([]byte, max(w.Size, 8))
		due := time.Now().Add(every * time.Duration(i) / time.Duration(w.Connections))
		for k := range n {
			if wait := time.Until(due); wait > 0 {
				if err := c.w.Flush(); err != nil {
					return err
				}
				time.Sleep(wait)
			}
			binary.BigEndian.PutUint64(body, uint64(due.Sub(base)))
			c.put(topics[(i+k*w.Connections)%len(topics)], body, 0)
			due = due.Add(every)
		}
		if err := c.w.Flush(); err != nil {
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
