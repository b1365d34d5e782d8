package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// backlog fills a stream and consumes it with each of the channels. The filling is not
// measured.
func (r *repeat) backlog(ctx context.Context, n int) (bench.Run, error) {
	channels := max(r.w.Channels, 1)
	var tasks []bench.Task
	for ch := range channels {
		consumers, err := r.consumers(ctx, fmt.Sprintf("bench%d", ch), r.w.Connections)
		if err != nil {
			return bench.Run{}, err
		}
		tasks = append(tasks, consumers...)
	}
	filled, err := r.fill(ctx, n)
	if err != nil {
		return bench.Run{}, err
	}
	return r.Run(ctx, filled*channels, tasks)
}

// fill publishes a backlog and returns the number of its messages.
func (r *repeat) fill(ctx context.Context, n int) (int, error) {
	w := bench.Workload{Name: "fill", Connections: 4, Outstanding: 400, Size: r.w.Size}
	f := &repeat{Repeat: bench.NewRepeat(r.bounds, nil, nil), cluster: r.cluster, w: w, bounds: r.bounds, stream: r.stream}
	puts := (n + w.Connections - 1) / w.Connections
	run, err := f.Run(ctx, puts*w.Connections, f.publishers(puts, f.Add))
	return run.Messages, err
}

// consumers creates a durable consumer and returns the tasks of the connections that share it.
func (r *repeat) consumers(ctx context.Context, name string, connections int) ([]bench.Task, error) {
	_, err := r.js.CreateConsumer(ctx, r.stream, jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: bench.Credit * connections,
	})
	if err != nil {
		return nil, err
	}
	tasks := make([]bench.Task, connections)
	for i := range tasks {
		tasks[i] = r.consumer(i, name)
	}
	return tasks, nil
}

// consumer receives messages and acknowledges each until all of the repeat are done.
func (r *repeat) consumer(i int, name string) bench.Task {
	return func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		nc, js, err := connect(r.url(i))
		if err != nil {
			return err
		}
		defer nc.Close()
		c, err := js.Consumer(ctx, r.stream, name)
		if err != nil {
			return err
		}
		ready <- struct{}{}
		<-begin
		deliveries, err := c.Consume(func(m jetstream.Msg) {
			if m.Ack() == nil {
				r.Add(1)
			}
		}, jetstream.PullMaxMessages(bench.Credit))
		if err != nil {
			return err
		}
		defer deliveries.Stop()
		tick := time.NewTicker(poll)
		defer tick.Stop()
		for !r.Finished() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}
