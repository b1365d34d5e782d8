package main

import (
	"bytes"
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// publisher is one connection that publishes.
type publisher struct {
	*repeat
	js   jetstream.JetStream
	body []byte
	done func(n int)
	took func(time.Duration)
}

func (r *repeat) publishers(puts int, done func(n int)) []bench.Task {
	tasks := make([]bench.Task, r.w.Connections)
	for i := range tasks {
		tasks[i] = r.publisher(i, puts, done)
	}
	return tasks
}

// publisher returns a task that keeps the workload's number of unanswered puts on one
// connection.
func (r *repeat) publisher(i, puts int, done func(n int)) bench.Task {
	return func(ctx context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		outstanding := max(r.w.Outstanding, 1) * max(r.w.Batch, 1)
		nc, js, err := connect(r.url(i), jetstream.WithPublishAsyncMaxPending(outstanding), jetstream.WithPublishAsyncTimeout(r.bounds.Timeout))
		if err != nil {
			return err
		}
		defer nc.Close()
		h := bench.NewHistogram()
		defer func() { r.Merge(h) }()
		p := &publisher{repeat: r, js: js, body: bytes.Repeat([]byte{'x'}, r.w.Size), done: done,
			took: func(d time.Duration) { _ = h.RecordValue(int64(d)) }}
		ready <- struct{}{}
		<-begin
		if outstanding == 1 {
			return p.oneByOne(ctx, puts)
		}
		return p.window(ctx, puts, outstanding)
	}
}

func connect(url string, options ...jetstream.JetStreamOpt) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, options...)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

func (p *publisher) oneByOne(ctx context.Context, puts int) error {
	for range puts {
		at := time.Now()
		if p.Over(at) {
			return nil
		}
		if _, err := p.js.Publish(ctx, p.stream, p.body); err != nil {
			return err
		}
		p.took(time.Since(at))
		p.done(1)
	}
	return nil
}

// window keeps that many puts outstanding.
func (p *publisher) window(ctx context.Context, puts, outstanding int) error {
	type call struct {
		at     time.Time
		answer jetstream.PubAckFuture
	}
	calls := make([]call, outstanding)
	next, answered := 0, 0
	for {
		now := time.Now()
		if p.Over(now) {
			puts = next
		}
		if answered >= puts {
			return nil
		}
		for next < puts && next-answered < len(calls) {
			answer, err := p.js.PublishAsync(p.stream, p.body)
			if err != nil {
				return err
			}
			calls[next%len(calls)] = call{now, answer}
			next++
		}
		c := calls[answered%len(calls)]
		select {
		case <-c.answer.Ok():
		case err := <-c.answer.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		p.took(time.Since(c.at))
		p.done(1)
		answered++
	}
}
