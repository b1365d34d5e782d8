package gateway

import (
	"strings"
	"sync"
	"testing"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// window lets a bounded number of puts be in progress.
type window struct{ slots chan struct{} }

func (w window) Answer(r api.PutResult) {
	if r.Err != nil {
		panic(r.Err)
	}
	<-w.slots
}

func benchmarkPut(b *testing.B, at ident.Node) {
	w := newWorld(b, "n1", "n2")
	defer w.close()
	w.topic("orders", "n1")
	payload := []byte(strings.Repeat("x", 100))
	win := window{slots: make(chan struct{}, 1000)}
	b.SetBytes(100)
	b.ReportAllocs()
	for b.Loop() {
		win.slots <- struct{}{}
		d := queue.NewDraft(len(payload))
		_ = d.AddMessage(queue.Message{Body: payload})
		w.brokers[at].gw.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), win)
	}
	for range cap(win.slots) {
		win.slots <- struct{}{}
	}
}

func BenchmarkPutLocal(b *testing.B)     { benchmarkPut(b, "n1") }
func BenchmarkPutForwarded(b *testing.B) { benchmarkPut(b, "n2") }

func benchmarkConsume(b *testing.B, at ident.Node) {
	w := newWorld(b, "n1", "n2")
	defer w.close()
	top := w.topic("orders", "n1")
	const stored = 100_000
	payload := strings.Repeat("x", 100)
	var wg sync.WaitGroup
	wg.Add(stored)
	done := answered(wg.Done)
	for range stored {
		w.brokers["n1"].put(done, "orders", payload)
	}
	wg.Wait()
	b.SetBytes(100)
	b.ReportAllocs()
	left, round := 0, 0
	var s api.Subscription
	var buf []api.Delivery
	for b.Loop() {
		if left == 0 { // a new channel begins at the first message again
			b.StopTimer()
			if s != nil {
				s.Close(true)
			}
			round++
			s = w.subscribeAs(b, at, string(rune('a'+round%26))+strings.Repeat("z", round/26))
			left = stored
			buf = buf[:0]
			b.StartTimer()
		}
		for len(buf) == 0 {
			buf = s.Pull(2500-s.InFlight(), buf[:0])
			if len(buf) == 0 {
				<-s.Wake()
			}
		}
		if err := s.Finish(buf[len(buf)-1].ID); err != nil {
			b.Fatal(err)
		}
		buf = buf[:len(buf)-1]
		left--
		if left%1000 == 0 {
			q, _ := w.brokers["n1"].Queue(top.Partition(0))
			q.Flush()
		}
	}
	s.Close(true)
}

func BenchmarkConsumeLocal(b *testing.B)   { benchmarkConsume(b, "n1") }
func BenchmarkConsumeRelayed(b *testing.B) { benchmarkConsume(b, "n2") }

type answered func()

func (f answered) Answer(api.PutResult) { f() }

func (w *world) subscribeAs(b *testing.B, at ident.Node, channel string) api.Subscription {
	s, err := w.brokers[at].gw.Subscribe(b.Context(), api.SubscribeRequest{
		Topic: "orders", Channel: channel, Partition: -1, MsgTimeoutMS: 60_000,
	})
	if err != nil {
		b.Fatal(err)
	}
	s.SetReady(2500)
	return s
}
