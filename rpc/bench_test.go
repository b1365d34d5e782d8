package rpc

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// counter counts frames and keeps none.
type counter struct {
	flight chan struct{} // frames on their way; its capacity is the window
	up     chan struct{}
}

func (c *counter) Drained() {}

func (c *counter) Frame(ident.Node, ident.Incarnation, Received) {
	<-c.flight
}

func (c *counter) Peer(_ ident.Node, _ ident.Incarnation, up, _ bool) {
	if up {
		c.up <- struct{}{}
	}
}

func (c *counter) Serve(_ context.Context, _ ident.Node, _ string, req []byte) (any, error) {
	return len(req), nil
}

func benchPair(b *testing.B, window int) (*broker, *counter) {
	b.Helper()
	c := &counter{flight: make(chan struct{}, window), up: make(chan struct{}, 8)}
	handle := func(o *Options) { o.Handler = c }
	x, y := newBroker(b, "a", handle), newBroker(b, "b", handle)
	introduce(x, y)
	<-c.up
	<-c.up
	return x, c
}

// appendHeader is about as large as the header of an append.
type appendHeader struct {
	Partition ident.Partition
	Kind      uint8
	Epoch     ident.Epoch
	To, Store ident.StoreID
	Prev      ident.Position
	CRC       uint32
	Committed ident.Position
}

func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, c := benchPair(b, min(4096, 8<<20/size))
			payload := [][]byte{make([]byte, size)}
			h := &appendHeader{Partition: ident.Partition{Topic: 1 << 60, Number: 3}, Kind: 1, Epoch: 12, To: 1 << 61, Store: 1 << 62}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				c.flight <- struct{}{}
				if err := x.Send("b", Frame{ClassReplica, h, payload}); err != nil {
					b.Fatal(err)
				}
			}
			for range cap(c.flight) { // until the last has arrived
				c.flight <- struct{}{}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

func BenchmarkCall(b *testing.B) {
	x, _ := benchPair(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		var n int
		require.NoError(b, x.Call(b.Context(), "b", "len", []byte("hello"), &n))
	}
}

// BenchmarkAppendUnderBulk is one append at a time, to its arrival, while
// catch-up keeps the same connection full.
func BenchmarkAppendUnderBulk(b *testing.B) {
	c := &splitter{live: make(chan struct{}, 1), bulk: make(chan struct{}, 8)}
	c.up = make(chan struct{}, 8)
	use := func(o *Options) { o.Handler = c }
	x, y := newBroker(b, "a", use), newBroker(b, "b", use)
	introduce(x, y)
	<-c.up
	<-c.up
	stop := make(chan struct{})
	var own sync.WaitGroup
	own.Go(func() {
		piece := [][]byte{make([]byte, 1<<20)}
		for {
			select {
			case <-stop:
				return
			case c.bulk <- struct{}{}:
				_ = x.Send("b", Frame{ClassBulk, 0, piece})
			}
		}
	})
	for b.Loop() {
		if err := x.Send("b", Frame{ClassReplica, 0, [][]byte{make([]byte, 100)}}); err != nil {
			b.Fatal(err)
		}
		<-c.live
	}
	close(stop)
	own.Wait()
}

type splitter struct {
	counter
	live, bulk chan struct{}
}

func (s *splitter) Drained() {}

func (s *splitter) Frame(_ ident.Node, _ ident.Incarnation, f Received) {
	if f.Class == ClassBulk {
		<-s.bulk
		return
	}
	s.live <- struct{}{}
}

// BenchmarkChecksum is the cost of a frame for both sides without the socket in between, with
// the checksum of its payload and without: taken, written to memory, read.
func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{100, 1000, 4 << 10, 64 << 10} {
		for _, checked := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d-%t", size, checked), func(b *testing.B) {
				o, out := newOutbox(defaultWindows), &burst{checked: checked}
				var wire bytes.Buffer
				in := newFrameReader(&wire)
				in.checked = checked
				payload := [][]byte{make([]byte, size)}
				for b.Loop() {
					_ = o.add(frameOf(kindFrame, ClassForward, "thirty bytes of a header, say.", payload...))
					o.take(out)
					out.sum()
					for _, part := range out.iov {
						wire.Write(part)
					}
					out.reset()
					if _, err := in.next(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
