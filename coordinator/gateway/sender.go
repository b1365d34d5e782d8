package gateway

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// windowPause is how long a relay frame waits for room in the peer's window before the next try.
const windowPause = 2 * time.Millisecond

// sender collects the puts, answers and verbs for each peer and sends them in few frames: while one round is encoded,
// the next is collected. New starts its goroutine, which ends with Close.
type sender struct {
	g      *Gateway
	wakeUp concurrency.Edge
	room   []byte                 // zeros in place of a batch header; never written
	sent   map[ident.Node]*outbox // of the previous round, emptied for reuse; used only by run

	mu struct {
		sync.Mutex
		peers map[ident.Node]*outbox
	}
}

// outbox has the items that wait for one peer. The three kinds need no order among them.
type outbox struct {
	puts    []attempt
	replies []wire.Reply
	hints   []wire.Hint
	relay   []relayItem
}

// relayItem is a verb, or an opening with the messages that the client holds.
type relayItem struct {
	wire.Verb
	opening *wire.Opening
	held    []wire.Verb
}

func newSender(g *Gateway) *sender {
	s := &sender{g: g, wakeUp: concurrency.NewEdge(), room: make([]byte, queue.HeaderSize), sent: make(map[ident.Node]*outbox)}
	s.mu.peers = make(map[ident.Node]*outbox)
	return s
}

// forward sends a put; if it is uncontended, without the sender's goroutine.
func (s *sender) forward(a attempt) {
	if a.put.uncontended {
		_, frame := s.putFrame([]attempt{a})
		if err := s.now(a.target.Node, frame); err != nil {
			s.unsent([]attempt{a})
			return
		}
		s.g.o.Metrics.Add(metrics.PutsForwarded, 1)
		return
	}
	s.post(a.target.Node, func(o *outbox) { o.puts = append(o.puts, a) })
}

// reply sends an answer; if it is uncontended, without the sender's goroutine.
func (s *sender) reply(to ident.Node, r wire.Reply, h *wire.Hint, uncontended bool) {
	if uncontended && h == nil && !s.hasReplies(to) {
		err := s.now(to, replyFrame([]wire.Reply{r}, nil))
		if !errors.Is(err, rpc.ErrWindow) {
			return // without a connection the answer is dropped: the edge sends the put again
		}
	}
	s.post(to, func(o *outbox) {
		o.replies = append(o.replies, r)
		if h != nil && len(o.hints) < wire.MaxItems {
			o.hints = append(o.hints, *h)
		}
	})
}

func (s *sender) relay(to ident.Node, items ...relayItem) {
	s.post(to, func(o *outbox) { o.relay = append(o.relay, items...) })
}

func (s *sender) sendVerb(to ident.Node, v wire.Verb) {
	s.post(to, func(o *outbox) { o.relay = append(o.relay, relayItem{Verb: v}) })
}

// post calls add with the peer's outbox under the lock; add must not block.
func (s *sender) post(to ident.Node, add func(*outbox)) {
	s.mu.Lock()
	add(s.outboxLocked(to))
	s.mu.Unlock()
	s.wakeUp.Notify()
}

func (s *sender) outboxLocked(to ident.Node) *outbox {
	o := s.mu.peers[to]
	if o == nil {
		o = &outbox{}
		s.mu.peers[to] = o
	}
	return o
}

// hasReplies reports whether answers wait for a peer. They must be sent before a further answer.
func (s *sender) hasReplies(to ident.Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.mu.peers[to]
	return o != nil && len(o.replies) > 0
}

// now sends one frame from the caller's goroutine.
func (s *sender) now(to ident.Node, f rpc.Frame) error {
	err := s.g.transport.Queue(to, f)
	if err == nil {
		s.g.transport.Flush(to)
	}
	return err
}

func (s *sender) run() {
	defer s.g.wg.Done()
	again := time.NewTimer(windowPause)
	defer again.Stop()
	for {
		select {
		case <-s.g.done:
			s.flush() // sends the closes of the subscriptions
			return
		case <-s.wakeUp:
			runtime.Gosched() // connections that are ready to run add their items first
		case <-again.C:
		}
		if s.flush() {
			again.Reset(windowPause)
		}
	}
}

// flush sends all collected items and reports whether some had to wait for the window.
func (s *sender) flush() (stayed bool) {
	s.mu.Lock()
	full := s.mu.peers
	s.mu.peers = s.sent
	s.mu.Unlock()
	for to, o := range full {
		s.sendPuts(to, o.puts)
		hints := o.hints
		replies := sendAll(s, to, o.replies, func(replies []wire.Reply) (int, rpc.Frame) {
			n := min(len(replies), wire.MaxItems)
			f := replyFrame(replies[:n], hints)
			hints = nil
			return n, f
		}, func([]wire.Reply) {}) // dropped: the edge sends its puts again
		relay := sendAll(s, to, o.relay, relayFrame, s.g.subs.unsent)
		if len(replies)+len(relay) > 0 {
			stayed = true
			s.putBack(to, replies, relay)
		}
		clear(o.puts)
		clear(o.replies)
		clear(o.relay)
		*o = outbox{puts: o.puts[:0], replies: o.replies[:0], relay: o.relay[:0]} // keep the arrays for the round after the next
	}
	s.sent = full
	return stayed
}

func (s *sender) putBack(to ident.Node, replies []wire.Reply, relay []relayItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outboxLocked(to)
	o.replies = slices.Concat(replies, o.replies)
	o.relay = slices.Concat(relay, o.relay)
}

func (s *sender) sendPuts(to ident.Node, puts []attempt) {
	for len(puts) > 0 {
		n, frame := s.putFrame(puts)
		if err := s.g.transport.Send(to, frame); err != nil {
			s.unsent(puts)
			return
		}
		s.g.o.Metrics.Add(metrics.PutsForwarded, n)
		puts = puts[n:]
	}
}

// unsent parks puts; the keeper retries them.
func (s *sender) unsent(puts []attempt) {
	for _, a := range puts {
		a.put.queue.unsent(a.put, a.n)
	}
	s.g.wake()
}

// putFrame takes as many puts as fit into one frame, at least one.
func (s *sender) putFrame(puts []attempt) (int, rpc.Frame) {
	n, size := 0, 0
	for n < len(puts) && n < wire.MaxItems && (n == 0 || size+puts[n].put.draft.Size() <= wire.MaxBytes) {
		size += puts[n].put.draft.Size()
		n++
	}
	records := make([]byte, 0, n*wire.PutSize)
	pieces := make([][]byte, 1, 1+2*n)
	for _, a := range puts[:n] {
		d := &a.put.draft
		payload := d.Bytes[queue.HeaderSize:] // skip the header room, which may be sealed concurrently
		records = wire.AppendPut(records, wire.Put{
			Request: d.Request, Partition: a.put.queue.id, Epoch: a.target.Epoch, Attempt: a.n,
			Count: d.Count, CRC: d.PayloadCRC, Length: uint32(len(payload)), Identified: d.Identified,
		})
		pieces = append(pieces, s.room, payload)
	}
	pieces[0] = records
	return n, rpc.Frame{Class: rpc.ClassForward, Header: wire.Header{Kind: wire.FramePuts, Count: n}, Payload: pieces}
}

// sendAll sends items in order, and returns those that have to wait for the window. frame encodes the first of them;
// lost is called with those that cannot be sent for lack of a connection.
func sendAll[T any](s *sender, to ident.Node, items []T, frame func([]T) (int, rpc.Frame), lost func([]T)) (left []T) {
	for len(items) > 0 {
		n, f := frame(items)
		err := s.g.transport.Send(to, f)
		if errors.Is(err, rpc.ErrWindow) {
			return items
		}
		if err != nil {
			lost(items)
			return nil
		}
		items = items[n:]
	}
	return nil
}

func replyFrame(replies []wire.Reply, hints []wire.Hint) rpc.Frame {
	records := make([]byte, 0, len(replies)*wire.ReplySize)
	for _, r := range replies {
		records = wire.AppendReply(records, r)
	}
	header := wire.Header{Kind: wire.FrameReplies, Count: len(replies), Hints: hints}
	return rpc.Frame{Class: rpc.ClassForward, Header: header, Payload: [][]byte{records}}
}

// relayFrame takes one opening, or the verbs up to the next opening.
func relayFrame(items []relayItem) (int, rpc.Frame) {
	if first := items[0]; first.opening != nil {
		records := make([]byte, 0, len(first.held)*wire.VerbSize)
		for _, v := range first.held {
			records = wire.AppendVerb(records, v)
		}
		header := wire.Header{Kind: wire.FrameOpen, Count: len(first.held), Open: first.opening}
		return 1, rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: [][]byte{records}}
	}
	n := 0
	var records []byte
	for n < len(items) && n < wire.MaxItems && items[n].opening == nil {
		records = wire.AppendVerb(records, items[n].Verb)
		n++
	}
	header := wire.Header{Kind: wire.FrameVerbs, Count: n}
	return n, rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: [][]byte{records}}
}
