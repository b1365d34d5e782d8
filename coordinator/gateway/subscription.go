package gateway

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

const (
	maxCredit = 1 << 16 // deliveries in flight of one stream, however large RDY is
	// refusals bounds the late refusals that wait for the connection. Further ones are dropped: the client
	// sees the redelivery.
	refusals     = 64
	sweepGrace   = time.Second           // after its timeout a delivery is forgotten here, if the leader did not revoke it
	touchPause   = 10 * time.Millisecond // between two touches of a message that are sent to its leader
	missingGrace = 2 * time.Second       // how long a leader may lack the channel before the subscription ends
	// firstAttach and maxAttach bound the pause between attachments that fail while nothing in the cluster changes.
	firstAttach = 10 * time.Millisecond
	maxAttach   = 500 * time.Millisecond
	// pullBytes limits a Pull in bytes: its messages stay in memory until the client has read them, and RDY limits only
	// their number.
	pullBytes = limits.Free
	dryPause  = 100 * time.Millisecond // how long messages of partitions led here are not pulled after memory was short
)

// subscription is one client's view of a channel over all partitions (api.Subscription). It outlives leaders: for each
// partition it attaches again where the partition is served. It has no goroutine; the keeper reconciles it.
type subscription struct {
	g       *Gateway
	request api.SubscribeRequest
	topic   metadata.TopicState // as it was at SUB
	client  api.ClientStats     // the connection as it was at SUB, for leaders elsewhere
	wakeUp  concurrency.Edge
	refused chan api.Refusal
	ended   chan struct{}
	touched time.Duration // when the keeper last touched the messages that wait here

	// mu is taken before the locks of nsqd and of the sender. Channel.Pull may read a disk, so it is called without mu.
	mu struct {
		sync.Mutex
		over       bool
		ready      int
		first      int // position where the next Pull begins
		partitions map[uint16]*partitionSubscription
		order      []*partitionSubscription
		demand     demand
		ttl        int64         // ms that the topic's messages live; 0: no limit
		busy       bool          // the client holds as many messages as RDY allows, and has finished none for a while
		memory     limits.Tally  // of the messages that the client has not read: in buffers, or pulled and not written
		waiting    int           // bytes in the buffers of the streams
		crowded    bool          // a stream is narrow because the client does not read
		dry        time.Duration // until then messages of partitions led here are not pulled; 0: they are pulled
	}
}

func newSubscription(g *Gateway, r api.SubscribeRequest, t metadata.TopicState) *subscription {
	s := &subscription{
		g: g, request: r, topic: t,
		wakeUp:  concurrency.NewEdge(),
		refused: make(chan api.Refusal, refusals),
		ended:   make(chan struct{}),
	}
	s.mu.partitions = make(map[uint16]*partitionSubscription)
	s.mu.memory = r.Memory.Tally(limits.Deliveries)
	if r.Client != nil {
		s.client = r.Client() // here and not under mu, because it may call the subscription
	}
	return s
}

func (s *subscription) name() channelName {
	return channelName{topic: s.request.Topic, channel: s.request.Channel}
}

func (s *subscription) Wake() <-chan struct{} { return s.wakeUp }

func (s *subscription) Refused() <-chan api.Refusal { return s.refused }

func (s *subscription) Closed() <-chan struct{} { return s.ended }

// Pull begins at another partition each time, so that none starves if the credit is small or the messages are large.
func (s *subscription) Pull(credit int, dst []api.Delivery) []api.Delivery {
	s.mu.Lock()
	order := s.mu.order
	if s.mu.over || len(order) == 0 {
		s.mu.Unlock()
		return dst
	}
	s.mu.first = (s.mu.first + 1) % len(order)
	first := s.mu.first
	s.mu.Unlock()
	limit, bytes := len(dst)+credit, 0
	for i := range order {
		had := len(dst)
		if had >= limit {
			break
		}
		if bytes >= pullBytes {
			s.wake() // there may be more
			break
		}
		dst = order[(first+i)%len(order)].pull(limit-had, dst)
		bytes += size(dst[had:])
	}
	return dst
}

func (s *subscription) Written(list []api.Delivery) {
	bytes := size(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.over {
		s.mu.memory.Give(bytes)
	}
}

// takeLocked reserves the memory of deliveries, and returns how many of them fit: all, unless the client's share is
// used up (short) or more than `most` bytes wait.
func (s *subscription) takeLocked(run []api.Delivery, most int) (fit int, short bool) {
	waiting := s.mu.waiting
	for i := range run {
		bytes := weight(&run[i])
		if waiting > 0 && waiting+bytes > most {
			return i, false
		}
		if !s.mu.memory.Take(bytes) {
			return i, true
		}
		waiting += bytes
	}
	return len(run), false
}

// freeWaitingLocked releases the memory of messages that no longer wait.
func (s *subscription) freeWaitingLocked(bytes int) {
	s.mu.waiting -= bytes
	s.mu.memory.Give(bytes)
}

func (s *subscription) Finish(id api.MessageID) error {
	return s.handle(id, wire.Verb{Kind: wire.VerbFinish})
}

func (s *subscription) Requeue(id api.MessageID, delayMS int64) error {
	return s.handle(id, wire.Verb{Kind: wire.VerbRequeue, Argument: delayMS})
}

func (s *subscription) Touch(id api.MessageID) error {
	return s.handle(id, wire.Verb{Kind: wire.VerbTouch})
}

func (s *subscription) Settle(r api.Receipt, do api.Settlement) error {
	return s.at(r.ID, func(h *partitionSubscription, seq ident.Sequence) error {
		return h.settleLocked(nsqd.Receipt{Sequence: seq, Epoch: r.Epoch, Number: r.Number}, do)
	})
}

func (s *subscription) handle(id api.MessageID, v wire.Verb) error {
	return s.at(id, func(h *partitionSubscription, seq ident.Sequence) error {
		v.Sequence = seq
		return h.handleLocked(v)
	})
}

// at calls do with the partition and the sequence of a message, under the lock. ErrNotInFlight: this subscription
// does not have the partition.
func (s *subscription) at(id api.MessageID, do func(h *partitionSubscription, seq ident.Sequence) error) error {
	place, ok := api.ParseMessageID(id)
	if !ok || place.Nonce != api.NonceOf(s.topic.ID) {
		return outcome.ErrNotInFlight
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.mu.partitions[place.Partition]
	if h == nil || s.mu.over {
		return outcome.ErrNotInFlight
	}
	return do(h, place.Sequence)
}

func (s *subscription) Ordered() bool { return s.request.Ordered }

func (s *subscription) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlightLocked()
}

func (s *subscription) inFlightLocked() (n int) {
	for _, h := range s.mu.order {
		n += h.inFlightLocked()
	}
	return n
}

func (s *subscription) Oldest() (oldest *api.HeldMessage) {
	now := s.g.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.order {
		if m := h.oldestLocked(now); m != nil && (oldest == nil || m.For > oldest.For) {
			oldest = m
		}
	}
	return oldest
}

// SetReady also returns the messages that were sent ahead of a consumer that stops accepting messages.
func (s *subscription) SetReady(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.over || s.mu.ready == n {
		return
	}
	s.mu.ready, s.mu.busy = n, false
	s.grantLocked()
	s.wake()
}

func (s *subscription) Close(requeue bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := wire.LeaveHeld
	if requeue {
		how = wire.LeaveRequeued
	}
	s.closeLocked(how)
}

func (s *subscription) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(wire.LeaveWithdrawn)
}

func (s *subscription) closeLocked(how wire.Leaving) {
	if s.mu.over {
		return
	}
	s.mu.over = true
	for _, h := range s.mu.order {
		h.closeLocked(how)
	}
	s.mu.memory.Give(s.mu.memory.Held())
	s.g.subs.remove(s)
}

// endLocked closes the subscription because the channel was deleted.
func (s *subscription) endLocked() {
	if !s.mu.over {
		s.closeLocked(wire.LeaveWithdrawn)
		close(s.ended)
	}
}

func (s *subscription) wake() { s.wakeUp.Notify() }

// reconcile attaches every partition where it is served. changed: the cluster has changed, so failed attachments are
// retried at once.
func (s *subscription) reconcile(changed bool) {
	t, ok := s.g.core.Topic(s.request.Topic)
	now := s.g.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.over {
		return
	}
	if !ok || t.ID != s.topic.ID {
		s.endLocked()
		return
	}
	s.growLocked(t)
	s.mu.ttl = t.Options.TTLMS
	if s.mu.dry != 0 && now >= s.mu.dry {
		s.mu.dry = 0
		s.wake()
	}
	for _, h := range s.mu.order {
		if changed {
			h.nextTry, h.pause = 0, 0
		}
		h.reconcileLocked(now)
		if s.mu.over {
			return
		}
	}
}

func (s *subscription) growLocked(t metadata.TopicState) {
	had := len(s.mu.order)
	for n := range t.Partitions {
		if s.request.Partition >= 0 && s.request.Partition != n || s.mu.partitions[uint16(n)] != nil {
			continue
		}
		h := &partitionSubscription{sub: s, id: t.Partition(n), held: make(map[ident.Sequence]holding)}
		h.active, h.index, h.weightBefore = true, s.mu.demand.parts, s.mu.demand.total
		s.mu.demand.parts++
		s.mu.partitions[uint16(n)] = h
		// A new slice: Pull walks the old one without the lock.
		s.mu.order = append(s.mu.order[:len(s.mu.order):len(s.mu.order)], h)
	}
	if len(s.mu.order) > had {
		s.grantLocked()
	}
}

// detach ends the streams to a peer that is down, without a verb to it. The client keeps the messages that it holds.
func (s *subscription) detach(from ident.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.order {
		if h.remote != nil && h.remote.to.Node == from {
			h.leaveLocked()
		}
	}
}

func (s *subscription) sweep(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := false
	for _, h := range s.mu.order {
		freed = h.sweepLocked(now) || freed
	}
	if freed {
		s.wake()
	}
}

// returned takes back an item of a stream that could not be sent.
func (s *subscription) returned(h *partitionSubscription, stream uint64, item relayItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if item.opening == nil {
		h.addToBacklogLocked(item.Verb)
	}
	if h.remote != nil && h.remote.stream == stream {
		h.failedLocked(s.g.now())
	}
}
