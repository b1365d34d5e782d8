package gateway

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

const (
	// pullBatch bounds the deliveries of one stream in one round, so that every stream is served.
	pullBatch = 128
	// answerPause is how long a stream waits for a verb of its edge after waitingBytes were sent without one. Credit
	// counts messages: until the edge lowers it because of large ones, hundreds of megabytes may be in flight.
	answerPause = 10 * time.Millisecond
)

// relaySession holds all streams that one other broker has opened at this broker. The first opening starts its
// goroutine, which ends when the gateway closes. It alone pulls and sends the deliveries of these streams.
type relaySession struct {
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
	// Used only by the session's goroutine, and reused in each round.
	serving []*stream
	pulled  []api.Delivery
	revoked []ident.Sequence
	records []byte
	pieces  [][]byte
	count   int
	size    int
}

func newRelaySession(g *Gateway, node ident.Node) *relaySession {
	rs := &relaySession{g: g, node: node, wakeUp: make(chan struct{}, 1), stop: make(chan struct{})}
	rs.mu.streams = make(map[uint64]*stream)
	return rs
}

func (rs *relaySession) run() {
	for {
		select {
		case <-rs.stop:
			return
		case <-rs.wakeUp:
			rs.round()
		}
	}
}

// schedule makes the next round serve the stream. The caller may have the lock of the stream's channel.
func (rs *relaySession) schedule(s *stream) {
	rs.due.Lock()
	defer rs.due.Unlock()
	if s.due {
		return
	}
	s.due = true
	rs.due.streams = append(rs.due.streams, s)
	select {
	case rs.wakeUp <- struct{}{}:
	default:
	}
}

// round serves each stream that is due.
func (rs *relaySession) round() {
	rs.due.Lock()
	due := rs.due.streams
	rs.due.streams = rs.serving[:0]
	for _, s := range due {
		s.due = false
	}
	rs.due.Unlock()
	broken := false
	for _, s := range due {
		if broken = broken || !rs.serve(s); broken {
			rs.schedule(s)
		}
	}
	if !broken {
		rs.flush()
	}
	clear(due)
	rs.serving = due
}

// serve gathers the deliveries of one stream; false: the connection is broken.
func (rs *relaySession) serve(s *stream) bool {
	credit, known := rs.credit(s)
	if !known {
		return true
	}
	if err := s.channel.Err(s.subscriber); err != nil {
		rs.sendVerb(wire.Verb{Kind: gone(err), Stream: s.id})
		rs.drop(s.id, wire.LeaveWithdrawn)
		return true
	}
	room := min(credit-s.channel.InFlight(s.subscriber), pullBatch)
	if room <= 0 || rs.waits(s) {
		return rs.sendRevoked(s)
	}
	rs.pulled = s.channel.Pull(s.subscriber, room, rs.pulled[:0])
	s.sent.Add(uint64(len(rs.pulled)))
	if len(rs.pulled) == pullBatch {
		rs.schedule(s) // serve it again, after the other streams
	}
	return rs.sendRevoked(s) && rs.gather(s) // after Pull, which may redeliver a message whose delivery has just timed out
}

// waits reports whether the stream waits for a verb of its edge, or for the end of the pause, before it sends more.
func (rs *relaySession) waits(s *stream) bool {
	if s.unanswered.Load() < waitingBytes {
		return false
	}
	if s.paused.CompareAndSwap(false, true) {
		time.AfterFunc(answerPause, func() {
			s.paused.Store(false)
			s.unanswered.Store(0)
			rs.schedule(s)
		})
	}
	return true
}

// credit is the number of deliveries that the stream may have in flight: 0 while it is disconnected.
func (rs *relaySession) credit(s *stream) (credit int, known bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if s.disconnected {
		return 0, rs.mu.streams[s.id] == s
	}
	return s.credit, rs.mu.streams[s.id] == s
}

// sendRevoked names the deliveries that timed out or could not be reclaimed. It is sent in order with the deliveries,
// so that a redelivery cannot overtake the revocation of the first delivery.
func (rs *relaySession) sendRevoked(s *stream) bool {
	rs.revoked = s.channel.Revoked(s.subscriber, append(rs.revoked[:0], s.refused...))
	s.refused = nil
	if len(rs.revoked) == 0 {
		return true
	}
	if !rs.flush() {
		return false
	}
	var table []byte
	for _, seq := range rs.revoked {
		table = wire.AppendVerb(table, wire.Verb{Kind: wire.VerbRevoked, Stream: s.id, Sequence: seq})
	}
	header := wire.Header{Kind: wire.FrameVerbs, Count: len(rs.revoked)}
	return rs.send(rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: [][]byte{table}})
}

func (rs *relaySession) gather(s *stream) bool {
	bytes := 0
	defer func() { s.unanswered.Add(int64(bytes)) }()
	for i := range rs.pulled {
		d := &rs.pulled[i]
		rs.records = wire.AppendDelivery(rs.records, s.id, d)
		if len(d.Message.Header) > 0 {
			rs.pieces = append(rs.pieces, d.Message.Header)
		}
		rs.pieces = append(rs.pieces, d.Message.Body)
		rs.count++
		rs.size += wire.DeliverySize + d.Message.Size()
		bytes += d.Message.Size()
		if (rs.count >= wire.MaxItems || rs.size >= wire.MaxBytes) && !rs.flush() {
			return false
		}
	}
	clear(rs.pulled)
	return true
}

// flush sends the gathered frame. After that the transport owns the pieces, so the next frame uses new ones.
func (rs *relaySession) flush() bool {
	if rs.count == 0 {
		return true
	}
	header := wire.Header{Kind: wire.FrameDeliver, Count: rs.count}
	payload := slices.Insert(rs.pieces, 0, rs.records)
	n := len(payload)
	rs.records, rs.pieces = make([]byte, 0, len(rs.records)), make([][]byte, 0, n+1)
	rs.count, rs.size = 0, 0
	return rs.send(rpc.Frame{Class: rpc.ClassRelay, Header: header, Payload: payload})
}

// send waits for room in the peer's window; false: the connection is broken. The pulled messages stay in flight until
// the edge opens its streams again or the reclaim time ends.
func (rs *relaySession) send(f rpc.Frame) bool {
	for {
		err := rs.g.transport.Send(rs.node, f)
		if err == nil {
			return true
		}
		if !errors.Is(err, rpc.ErrWindow) {
			rs.disconnect()
			return false
		}
		pause := time.NewTimer(windowPause)
		select {
		case <-pause.C:
		case <-rs.stop:
			pause.Stop()
			return false
		}
	}
}

func (rs *relaySession) sendVerb(v wire.Verb) { rs.g.out.sendVerb(rs.node, v) }

func (rs *relaySession) add(s *stream) {
	rs.mu.Lock()
	rs.mu.streams[s.id] = s
	rs.mu.Unlock()
	rs.schedule(s)
}

func (rs *relaySession) find(id uint64) *stream {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.mu.streams[id]
}

// setCredit sets a stream's credit; false: it is unknown or disconnected, and the edge must open it again.
func (rs *relaySession) setCredit(id uint64, credit int) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.mu.streams[id]
	if s == nil || s.disconnected {
		return false
	}
	s.credit, s.since = credit, rs.g.now()
	s.unanswered.Store(0)
	rs.schedule(s)
	return true
}

// decline answers an opening with the reason for its refusal. The messages of the stream that it replaces are released.
func (rs *relaySession) decline(o *wire.Opening, why wire.VerbKind) {
	rs.drop(o.Replaces, wire.LeaveWithdrawn)
	rs.sendVerb(wire.Verb{Kind: why, Stream: o.Stream})
}

// succeed replaces an earlier stream of the same subscription with a new one, which takes over the messages that the
// client holds. It returns the messages that cannot be reclaimed.
func (rs *relaySession) succeed(replaces uint64, s *stream, held []wire.Verb) []ident.Sequence {
	old := rs.remove(replaces)
	if old != nil && old.channel == s.channel {
		return s.channel.TransferDeliveries(old.subscriber, s.subscriber, receiptsOf(held))
	}
	if old != nil {
		detach(old.channel, old.subscriber, wire.LeaveWithdrawn)
	}
	return s.channel.Reclaim(s.subscriber, receiptsOf(held))
}

func (rs *relaySession) drop(id uint64, how wire.Leaving) {
	if s := rs.remove(id); s != nil {
		detach(s.channel, s.subscriber, how)
	}
}

// remove removes a stream from the session, but does not detach it. nil if there is no such stream.
func (rs *relaySession) remove(id uint64) *stream {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.mu.streams[id]
	delete(rs.mu.streams, id)
	return s
}

// disconnect stops all streams. The messages of their clients stay in flight for the reclaim time.
func (rs *relaySession) disconnect() {
	now := rs.g.now()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, s := range rs.mu.streams {
		if !s.disconnected {
			s.disconnected, s.since = true, now
		}
	}
}

// expire disconnects the streams of an edge that was silent for too long, and drops streams that were disconnected for
// too long. A leader that does not reach its replicas does not drop them, because the edge may claim their deliveries
// from the next leader. It reports whether any stream is left.
func (rs *relaySession) expire(now time.Duration) bool {
	rs.mu.Lock()
	var late []uint64
	for _, s := range rs.mu.streams {
		switch silent := now - s.since; {
		case s.disconnected && silent >= reclaimTime:
			if rs.g.core.Replicates(s.partition) || !rs.g.core.Leads(s.partition) {
				late = append(late, s.id)
			}
		case !s.disconnected && silent >= forgottenAfter: // if this process was suspended, the edge opens the stream again
			s.disconnected, s.since = true, now
		}
	}
	left := len(rs.mu.streams) - len(late)
	rs.mu.Unlock()
	for _, id := range late {
		rs.drop(id, wire.LeaveWithdrawn)
	}
	return left > 0
}

// describe is the client of a stream as shown in statistics.
func (rs *relaySession) describe(s *stream) api.ClientStats {
	c := s.client
	c.Relayed = true
	c.State = 3 // subscribed: the description was sent before the SUB was done
	c.MessageCount, c.FinishCount, c.RequeueCount = s.sent.Load(), s.finished.Load(), s.requeued.Load()
	c.InFlightCount = int64(s.channel.InFlight(s.subscriber))
	rs.mu.Lock()
	c.ReadyCount = int64(s.credit)
	rs.mu.Unlock()
	return c
}
