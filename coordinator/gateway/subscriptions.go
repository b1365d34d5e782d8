package gateway

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// keepAlive is how often a stream's credit is sent again. A leader without the stream answers "gone", so a lost frame
// does no harm for longer than this.
const keepAlive = time.Second

// forgottenAfter is how long a stream without a credit from its edge stays connected.
const forgottenAfter = 10 * keepAlive

var _ api.Subscribers = (*Gateway)(nil)

// Subscribe opens a subscription; see api.Subscribers.
func (g *Gateway) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	if err := g.ensureTopic(ctx, r.Topic); err != nil {
		return nil, err
	}
	t, ok := g.core.Topic(r.Topic)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	if r.Partition >= t.Partitions {
		return nil, fmt.Errorf("%w %d, but 0 to %d", outcome.ErrPartitionNotFound, r.Partition, t.Partitions-1)
	}
	if has := g.core.Filter(t.ID, r.Channel); r.Filter != "" && r.Filter != has {
		return nil, fmt.Errorf("%w %q but %q", outcome.ErrFilter, r.Filter, has)
	}
	r.Ordered = r.Ordered || t.Ordered
	var err error
	if r.Reposition {
		err = g.core.RepositionChannel(ctx, r.Topic, r.Channel, r.From, r.Partition, r.Ordered)
	} else {
		err = g.core.CreateChannel(ctx, r.Topic, r.Channel, r.From, r.Ordered)
	}
	if err != nil {
		return nil, err
	}
	s := newSubscription(g, r, t)
	if err := g.subs.add(s); err != nil {
		return nil, err
	}
	s.reconcile(true)
	g.wake() // the keeper may be asleep
	return s, nil
}

// subscriptions holds every subscription of this broker's clients, and their streams at other brokers.
type subscriptions struct {
	g      *Gateway
	stream atomic.Uint64 // the last stream number given out
	spoke  time.Duration // used only by the keeper: when the credits were last sent
	next   atomic.Int64  // when the next partition attaches again; 0: none waits

	mu struct {
		sync.RWMutex
		closed  bool
		all     map[*subscription]struct{}
		members map[channelName]int // subscriptions of each channel
		streams map[uint64]*partitionSubscription
	}
}

type channelName struct{ topic, channel string }

func newSubscriptions(g *Gateway) *subscriptions {
	s := &subscriptions{g: g}
	// A random start distinguishes the streams of different runs of this process.
	s.stream.Store(rand.Uint64() >> 1)
	s.mu.all = make(map[*subscription]struct{})
	s.mu.members = make(map[channelName]int)
	s.mu.streams = make(map[uint64]*partitionSubscription)
	return s
}

// add adds a subscription. Errors: outcome.ErrTooManyClients, outcome.ErrExiting.
func (s *subscriptions) add(sub *subscription) error {
	name, limit := sub.name(), s.g.o.MaxConsumers
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return outcome.ErrExiting
	case limit > 0 && s.mu.members[name] >= limit:
		return fmt.Errorf("%w: %d of %d", outcome.ErrTooManyClients, s.mu.members[name], limit)
	}
	s.mu.all[sub] = struct{}{}
	s.mu.members[name]++
	return nil
}

func (s *subscriptions) remove(sub *subscription) {
	name := sub.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.mu.all[sub]; !there {
		return
	}
	delete(s.mu.all, sub)
	if s.mu.members[name]--; s.mu.members[name] == 0 {
		delete(s.mu.members, name)
	}
}

func (s *subscriptions) register(h *partitionSubscription) uint64 {
	id := s.stream.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.streams[id] = h
	return id
}

func (s *subscriptions) unregister(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.streams, id)
}

func (s *subscriptions) find(id uint64) *partitionSubscription {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.streams[id]
}

func (s *subscriptions) list() []*subscription {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]*subscription, 0, len(s.mu.all)), maps.Keys(s.mu.all))
}

// runDue retries attachments, and keeps streams alive. It reports whether there is any subscription.
func (s *subscriptions) runDue(now time.Duration) bool {
	s.next.Store(0) // first, so that a time set concurrently is kept
	all := s.list()
	speak := now-s.spoke >= keepAlive
	if speak {
		s.spoke = now
	}
	for _, sub := range all {
		sub.reconcile(false)
		if speak {
			sub.sweep(now)
			sub.refreshCredit(now)
		}
		sub.touchWaiting(now)
	}
	return len(all) > 0
}

// scheduleAt makes the keeper run the subscriptions at that time.
func (s *subscriptions) scheduleAt(at time.Duration) {
	for {
		next := s.next.Load()
		if next != 0 && next <= int64(at) || s.next.CompareAndSwap(next, int64(at)) {
			return
		}
	}
}

// unsent handles items that could not be sent: finishes and requeues go back to the backlog, and are sent after the
// next opening.
func (s *subscriptions) unsent(items []relayItem) {
	for _, item := range items {
		id := item.Stream
		if item.opening != nil {
			id = item.opening.Stream
		}
		if item.opening == nil && item.Kind > wire.VerbTouch {
			continue // a leader's verb, or a verb that is repeated anyway
		}
		if h := s.find(id); h != nil {
			h.sub.returned(h, id, item)
		}
	}
}

func (s *subscriptions) close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	for _, sub := range s.list() {
		sub.Withdraw()
	}
}
