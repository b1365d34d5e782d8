package tcp_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// void commits every put at once and stores nothing.
type void struct{}

func (void) Admit(context.Context, string, int) error { return nil }

func (void) Publish(_ string, _ int, _ []byte, _ queue.Draft, a api.Answerer) {
	a.Answer(api.PutResult{})
}

// BenchmarkPub is the path of a pipelined PUB from the socket to the answer, both ends in this
// process. One operation is one message.
func BenchmarkPub(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000} {
		b.Run(sizeName(size), func(b *testing.B) { benchmarkPub(b, size, 200) })
	}
	b.Run("100B_one_by_one", func(b *testing.B) { benchmarkPub(b, 100, 1) })
}

func sizeName(n int) string {
	return map[int]string{100: "100B", 1000: "1KB", 10_000: "10KB"}[n]
}

func benchmarkPub(b *testing.B, size, window int) {
	conn, served := connected(b)
	burst := []byte(strings.Repeat("PUB t\n"+sized(repeat("x", size)), window))
	answers := make([]byte, window*len("\x00\x00\x00\x06\x00\x00\x00\x00OK"))
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += window {
		if _, err := conn.Write(burst); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answers); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	_ = conn.Close()
	<-served
}

// connected returns a client of a handler with a void cluster. served is closed when the connection has ended.
func connected(b *testing.B) (conn net.Conn, served chan struct{}) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	conn, err = net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	server, err := l.Accept()
	require.NoError(b, err)
	handler := tcp.New(tcp.DefaultOptions(), tcp.Backend{Publisher: void{}, Subscribers: void{}, Log: log})
	served = make(chan struct{})
	go func() { defer close(served); handler.Serve(context.Background(), server) }()
	_, err = io.WriteString(conn, "  V2")
	require.NoError(b, err)
	return conn, served
}

// flood is a subscription that always has a message.
type flood struct {
	api.Subscription
	inFlight atomic.Int64
	body     []byte
}

func (void) Subscribe(context.Context, api.SubscribeRequest) (api.Subscription, error) {
	return &flood{body: make([]byte, 100)}, nil
}

func (f *flood) Wake() <-chan struct{}       { return nil }
func (f *flood) Refused() <-chan api.Refusal { return nil }
func (f *flood) Closed() <-chan struct{}     { return nil }
func (f *flood) SetReady(int)                {}
func (f *flood) Close(bool)                  {}
func (f *flood) Written([]api.Delivery)      {}
func (f *flood) InFlight() int               { return int(f.inFlight.Load()) }
func (f *flood) Finish(api.MessageID) error  { f.inFlight.Add(-1); return nil }

func (f *flood) Pull(credit int, dst []api.Delivery) []api.Delivery {
	f.inFlight.Add(int64(credit))
	for range credit {
		dst = append(dst, api.Delivery{Message: queue.Message{Body: f.body}})
	}
	return dst
}

// BenchmarkDeliver is the path of a message from Pull to the socket and of its FIN back. One operation is one message.
func BenchmarkDeliver(b *testing.B) {
	conn, served := connected(b)
	_, err := io.WriteString(conn, "SUB t c\nRDY 1000\n")
	require.NoError(b, err)
	_, err = io.ReadFull(conn, make([]byte, 10))
	require.NoError(b, err)
	const window = 100
	messages := make([]byte, window*(8+26+100))
	finishes := []byte(strings.Repeat("FIN 0123456789abcdef\n", window))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += window {
		if _, err := io.ReadFull(conn, messages); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Write(finishes); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	_ = conn.Close()
	<-served
}
