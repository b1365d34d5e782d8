package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/client"
)

// failures counts puts with an error.
type failures struct {
	client.NoObserver
	n atomic.Int64
}

func (f *failures) Published(_ string, _, _ int, _ time.Duration, err error) {
	if err != nil {
		f.n.Add(1)
	}
}

// BenchmarkSend publishes 100 bytes at a time through one pipeline to three brokers, plain and
// with a header.
func BenchmarkSend(b *testing.B) {
	c := start(b)
	c.create(topic, 1)
	for name, headers := range map[string]client.Headers{"plain": nil, "header": {"a": "b"}} {
		b.Run(name, func(b *testing.B) {
			failed := &failures{}
			p := c.open(client.Options{Observer: failed}).Producer(client.ProducerOptions{})
			for b.Loop() {
				p.Send(context.Background(), topic, client.Message{Body: make([]byte, 100), Headers: headers})
			}
			require.NoError(b, p.Close(context.Background()))
			require.Zero(b, failed.n.Load())
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkConsume receives and finishes 100 bytes at a time.
func BenchmarkConsume(b *testing.B) {
	c := start(b)
	c.create(topic, 1)
	x := c.open(client.Options{})
	p := x.Producer(client.ProducerOptions{})
	for range b.N {
		p.Send(context.Background(), topic, client.Message{Body: make([]byte, 100)})
	}
	require.NoError(b, p.Close(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	var got atomic.Int64
	b.ResetTimer()
	require.NoError(b, x.Consume(ctx, topic, channel, client.ConsumeOptions{MaxInFlight: 1000}, func(context.Context, *client.Delivery) error {
		if got.Add(1) == int64(b.N) {
			cancel()
		}
		return nil
	}))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
