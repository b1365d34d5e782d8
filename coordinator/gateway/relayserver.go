package gateway

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// relayServer has the streams that other brokers have open here for their clients, one session per broker.
type relayServer struct {
	g  *Gateway
	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		closed   bool
		sessions map[ident.Node]*relaySession
	}
}

// stream is one subscription's attachment to a channel here.
type stream struct {
	id                       uint64
	partition                ident.Partition
	channel                  *nsqd.Channel
	subscriber               *nsqd.Subscriber
	client                   api.ClientStats
	refused                  []ident.Sequence // deliveries that were not reclaimed; the session's goroutine revokes them
	due                      bool             // guarded by relaySession.due
	sent, finished, requeued atomic.Uint64    // for statistics
	unanswered               atomic.Int64     // bytes sent since the edge's last verb about the stream
	paused                   atomic.Bool      // a timer will schedule it

	// Guarded by relaySession.mu.
	credit       int
	disconnected bool          // nothing is sent until the edge opens it again
	since        time.Duration // when the connection broke, or the credit last arrived
}

// session finds or starts the session of a broker; nil once closed.
func (r *relayServer) session(node ident.Node) *relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return nil
	}
	rs := r.mu.sessions[node]
	if rs == nil {
		rs = newRelaySession(r.g, node)
		r.mu.sessions[node] = rs
		r.wg.Go(rs.run)
	}
	return rs
}

// known returns the session of a broker; nil: there is none.
func (r *relayServer) known(node ident.Node) *relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.sessions[node]
}

func (r *relayServer) all() []*relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.mu.sessions))
}

// open attaches a stream and reclaims the messages that its client holds. If that fails, it answers "gone", "missing"
// or "deleted".
func (r *relayServer) open(from ident.Node, o *wire.Opening, held []wire.Verb) {
	rs := r.session(from)
	if rs == nil {
		return
	}
	id := ident.Partition{Topic: ident.TopicID(o.Topic), Number: o.Partition}
	if !r.g.core.Leads(id) {
		rs.decline(o, wire.VerbGone)
		return
	}
	channel := findChannel(r.g.core, id, o.Channel, o.Ordered)
	if channel == nil {
		rs.decline(o, wire.VerbMissing)
		return
	}
	s := &stream{id: o.Stream, partition: id, channel: channel, credit: min(o.Credit, maxCredit), since: r.g.now()}
	_ = json.Unmarshal(o.Client, &s.client) // it is for statistics only
	if !o.Partial {
		s.client.Edge = from
	}
	s.subscriber = &nsqd.Subscriber{Woken: func() { rs.schedule(s) }, MsgTimeoutMS: o.MsgTimeoutMS, SampleRate: o.SampleRate}
	s.subscriber.Settled = func(finished bool) {
		if finished {
			s.finished.Add(1)
		} else {
			s.requeued.Add(1)
		}
	}
	s.subscriber.Client = func() []api.ClientStats { return []api.ClientStats{rs.describe(s)} }
	if err := channel.Attach(s.subscriber); err != nil {
		rs.decline(o, gone(err))
		return
	}
	s.refused = rs.succeed(o.Replaces, s, held)
	rs.add(s)
	r.g.wake()
}

// gone is the verb for the reason why a stream cannot be served.
func gone(err error) wire.VerbKind {
	if errors.Is(err, nsqd.ErrDeleted) {
		return wire.VerbDeleted
	}
	return wire.VerbGone
}

// handle handles an edge's verb about one of its streams.
func (r *relayServer) handle(from ident.Node, v wire.Verb) {
	rs := r.known(from)
	if rs == nil {
		if v.Kind != wire.VerbClose {
			r.g.out.sendVerb(from, returnVerb(v))
		}
		return
	}
	switch v.Kind {
	case wire.VerbCredit:
		if !rs.setCredit(v.Stream, int(min(v.Argument, maxCredit))) {
			rs.sendVerb(wire.Verb{Kind: wire.VerbGone, Stream: v.Stream})
		}
	case wire.VerbClose:
		rs.drop(v.Stream, wire.Leaving(v.Argument))
	case wire.VerbFinish, wire.VerbRequeue, wire.VerbTouch:
		r.carryOut(rs, v)
	}
}

func (s *stream) count(v wire.Verb) {
	switch {
	case v.Kind == wire.VerbFinish:
		s.finished.Add(1)
	case v.Kind == wire.VerbRequeue && v.Argument == wire.Unseen:
		s.sent.Add(^uint64(0)) // the client never received it
	case v.Kind == wire.VerbRequeue && v.Argument >= 0:
		s.requeued.Add(1)
	}
}

// carryOut applies a finish, requeue or touch, and answers a refusal.
func (r *relayServer) carryOut(rs *relaySession, v wire.Verb) {
	s := rs.find(v.Stream)
	if s == nil {
		rs.sendVerb(returnVerb(v))
		return
	}
	s.unanswered.Store(0)
	err := apply(s.channel, s.subscriber, v)
	switch {
	case err == nil:
		s.count(v)
		rs.schedule(s) // it may have credit again
	case s.channel.Err(s.subscriber) != nil: // the stream is gone, but the message is still there
		rs.sendVerb(returnVerb(v))
	default:
		v.Kind |= wire.VerbRefused
		rs.sendVerb(v)
	}
}

// returnVerb answers a verb about a stream that does not exist here: the edge sends the verb again after the next
// opening.
func returnVerb(v wire.Verb) wire.Verb {
	argument := int64(v.Kind) | v.Argument<<8
	if v.Kind > wire.VerbTouch {
		argument = 0
	}
	v.Kind, v.Argument = wire.VerbGone, argument
	return v
}

// runDue releases the messages that disconnected edges have not reclaimed in time, and ends streams whose edges are
// silent: the close of a stream is lost if the edge counts this broker as down. It reports whether there are any
// streams.
func (r *relayServer) runDue(now time.Duration) (any bool) {
	for _, rs := range r.all() {
		any = rs.expire(now) || any
	}
	return any
}

func (r *relayServer) close() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	for _, rs := range r.all() {
		close(rs.stop)
	}
	r.wg.Wait()
	for _, rs := range r.all() {
		rs.mu.Lock()
		all := slices.Collect(maps.Keys(rs.mu.streams))
		rs.mu.Unlock()
		for _, id := range all {
			rs.drop(id, wire.LeaveWithdrawn)
		}
	}
}
