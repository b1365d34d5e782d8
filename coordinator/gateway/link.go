package gateway

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// pullBatch bounds what one stream gets in one round, so that all get some.
const pullBatch = 128

// link is all streams that one broker has open here. Its goroutine is started
// by the first opening and ends when the gateway closes; it alone pulls and
// sends deliveries, for all streams together.
type link struct {
	g      *Gateway
	node   ident.Node
	wakeUp chan struct{} // capacity 1: some stream is due
	stop   chan struct{}

	mu struct {
		sync.Mutex
		streams map[uint64]*stream
	}
	due struct {
		sync.Mutex // taken after all others
		streams    []*stream
	}
	// Of the goroutine alone, reused from round to round.
	turn    []*stream
	pulled  []edge.Delivery
	taken   []ident.Sequence
	records []byte
	pieces  [][]byte
	count   int
	size    int
}

func newLink(g *Gateway, node ident.Node) *link {
	l := &link{g: g, node: node, wakeUp: make(chan struct{}, 1), stop: make(chan struct{})}
	l.mu.streams = make(map[uint64]*stream)
	return l
}

// run serves the link until it is stopped.
func (l *link) run() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.wakeUp:
			l.round()
		}
	}
}

// look lets the stream have a turn: there may be something for it, or room. It may
// be called with the stream's channel locked.
func (l *link) look(s *stream) {
	l.due.Lock()
	defer l.due.Unlock()
	if s.due {
		return
	}
	s.due = true
	l.due.streams = append(l.due.streams, s)
	select {
	case l.wakeUp <- struct{}{}:
	default:
	}
}

// round gives each stream that is due its turn.
func (l *link) round() {
	l.due.Lock()
	turn := l.due.streams
	l.due.streams = l.turn[:0]
	for _, s := range turn {
		s.due = false
	}
	l.due.Unlock()
	broken := false
	for _, s := range turn {
		if broken = broken || !l.serve(s); broken {
			l.look(s)
		}
	}
	if !broken {
		l.flush()
	}
	clear(turn)
	l.turn = turn
}

// serve gathers what one stream gets; false when the link is broken.
func (l *link) serve(s *stream) bool {
	credit, known := l.credit(s)
	if !known {
		return true
	}
	if err := s.channel.Err(s.subscriber); err != nil {
		l.say(verb{Kind: gone(err), Stream: s.id})
		l.drop(s.id, withdrawn)
		return true
	}
	room := min(credit-s.channel.InFlight(s.subscriber), pullBatch)
	if room <= 0 {
		return l.sayTaken(s)
	}
	l.pulled = s.channel.Pull(s.subscriber, room, l.pulled[:0])
	s.sent.Add(uint64(len(l.pulled)))
	if len(l.pulled) == pullBatch {
		l.look(s) // there may be more, and room: after the others
	}
	return l.sayTaken(s) && l.gather(s) // after Pull: it may have lost, and found again, what it gives
}

// credit is how many deliveries the stream may have under way: none while it is
// cut off.
func (l *link) credit(s *stream) (credit int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.cutOff {
		return 0, l.mu.streams[s.id] == s
	}
	return s.credit, l.mu.streams[s.id] == s
}

// sayTaken tells what timed out or could not be reclaimed. It goes the way of the deliveries, or a second
// delivery could overtake the end of the first.
func (l *link) sayTaken(s *stream) bool {
	l.taken = s.channel.TakenBack(s.subscriber, append(l.taken[:0], s.refused...))
	s.refused = nil
	if len(l.taken) == 0 {
		return true
	}
	if !l.flush() {
		return false
	}
	var table []byte
	for _, seq := range l.taken {
		table = appendVerb(table, verb{Kind: verbTaken, Stream: s.id, Sequence: seq})
	}
	header := relayHeader{Kind: frameVerbs, Count: len(l.taken)}
	return l.send(rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: [][]byte{table}})
}

// gather adds what was pulled to the frame, and sends the frame when it is full.
func (l *link) gather(s *stream) bool {
	for i := range l.pulled {
		d := &l.pulled[i]
		l.records = appendDelivery(l.records, s.id, d)
		if len(d.Message.Header) > 0 {
			l.pieces = append(l.pieces, d.Message.Header)
		}
		l.pieces = append(l.pieces, d.Message.Body)
		l.count++
		l.size += deliverSize + d.Message.Size()
		if (l.count >= maxFrameItems || l.size >= maxFrameBytes) && !l.flush() {
			return false
		}
	}
	clear(l.pulled)
	return true
}

// flush sends the gathered frame. The transport keeps the pieces, so they are
// made afresh.
func (l *link) flush() bool {
	if l.count == 0 {
		return true
	}
	header := relayHeader{Kind: frameDeliver, Count: l.count}
	payload := slices.Insert(l.pieces, 0, l.records)
	n := len(payload)
	l.records, l.pieces = make([]byte, 0, len(l.records)), make([][]byte, 0, n+1)
	l.count, l.size = 0, 0
	return l.send(rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: payload})
}

// send waits for room in the peer's window; false when the link is broken: what
// was pulled stays in flight until the edge opens again or the reclaim time ends.
func (l *link) send(f rpc.Frame) bool {
	for {
		err := l.g.transport.Send(l.node, f)
		if err == nil {
			return true
		}
		if !errors.Is(err, rpc.ErrWindow) {
			l.cut()
			return false
		}
		pause := time.NewTimer(windowPause)
		select {
		case <-pause.C:
		case <-l.stop:
			pause.Stop()
			return false
		}
	}
}

// say sends one verb by the sender.
func (l *link) say(v verb) { l.g.out.say(l.node, v) }

func (l *link) add(s *stream) {
	l.mu.Lock()
	l.mu.streams[s.id] = s
	l.mu.Unlock()
	l.look(s)
}

func (l *link) find(id uint64) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.streams[id]
}

// setCredit sets a stream's credit; false if it is unknown or was cut off, for
// then the edge must open it again.
func (l *link) setCredit(id uint64, credit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.streams[id]
	if s == nil || s.cutOff {
		return false
	}
	s.credit, s.since = credit, l.g.now()
	l.look(s)
	return true
}

// decline says why a stream is not opened. What the one before it had goes back.
func (l *link) decline(o *opening, why verbKind) {
	l.drop(o.Replaces, withdrawn)
	l.say(verb{Kind: why, Stream: o.Stream})
}

// succeed lets a stream take the place of an earlier one of the same subscription,
// with what its client holds; it returns what of that is not to be had.
func (l *link) succeed(replaces uint64, s *stream, held []verb) []ident.Sequence {
	old := l.remove(replaces)
	if old != nil && old.channel == s.channel {
		return s.channel.Succeed(old.subscriber, s.subscriber, heldOf(held))
	}
	if old != nil {
		withdrawn.detach(old.channel, old.subscriber)
	}
	return s.channel.Reclaim(s.subscriber, heldOf(held))
}

// drop detaches a stream, if it is there.
func (l *link) drop(id uint64, how leaving) {
	if s := l.remove(id); s != nil {
		how.detach(s.channel, s.subscriber)
	}
}

// remove takes a stream off the link; it stays attached. nil: it is not there.
func (l *link) remove(id uint64) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.streams[id]
	delete(l.mu.streams, id)
	return s
}

func (l *link) dropAll() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.mu.streams))
	l.mu.Unlock()
	for _, id := range all {
		l.drop(id, withdrawn)
	}
}

// cut marks all streams: nothing is sent on them any more. What their clients
// hold stays in flight for the reclaim time.
func (l *link) cut() {
	now := l.g.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.mu.streams {
		if !s.cutOff {
			s.cutOff, s.since = true, now
		}
	}
}

// expire cuts off streams that were not heard of for too long, and drops those that
// were cut off for too long. It reports whether any stream is left.
func (l *link) expire(now time.Duration) bool {
	l.mu.Lock()
	var late []uint64
	for _, s := range l.mu.streams {
		switch silent := now - s.since; {
		case s.cutOff && silent >= l.g.o.Reclaim:
			late = append(late, s.id)
		case !s.cutOff && silent >= forgottenAfter: // or this broker slept: then the edge opens it again
			s.cutOff, s.since = true, now
		}
	}
	left := len(l.mu.streams) - len(late)
	l.mu.Unlock()
	for _, id := range late {
		l.drop(id, withdrawn)
	}
	return left > 0
}

// describe is the client behind a stream as statistics show it.
func (l *link) describe(s *stream) edge.ClientStats {
	c := s.client
	c.Relayed = true
	c.State = 3 // subscribed: it was said before the SUB was done
	c.MessageCount, c.FinishCount, c.RequeueCount = s.sent.Load(), s.finished.Load(), s.requeued.Load()
	c.InFlightCount = int64(s.channel.InFlight(s.subscriber))
	l.mu.Lock()
	c.ReadyCount = int64(s.credit)
	l.mu.Unlock()
	return c
}
