package gateway

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// relayServer is the leader's side: the streams that other brokers have open
// for their clients, one link per broker.
type relayServer struct {
	g  *Gateway
	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		closed bool
		links  map[ident.Node]*link
	}
}

// stream is one subscription's attachment to a channel here.
type stream struct {
	id                       uint64
	partition                ident.Partition
	channel                  *nsqd.Channel
	subscriber               *nsqd.Subscriber
	client                   edge.ClientStats
	refused                  []ident.Sequence // could not be reclaimed; the link's goroutine says so
	due                      bool             // guarded by link.due
	sent, finished, requeued atomic.Uint64    // for statistics

	// Guarded by link.mu.
	credit int
	cutOff bool          // the link broke: nothing is sent until it is opened again
	since  time.Duration // when it broke, or was heard of last
}

func newRelayServer(g *Gateway) *relayServer {
	r := &relayServer{g: g}
	r.mu.links = make(map[ident.Node]*link)
	return r
}

// link finds or starts the link to a broker; nil once closed.
func (r *relayServer) link(node ident.Node) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return nil
	}
	l := r.mu.links[node]
	if l == nil {
		l = newLink(r.g, node)
		r.mu.links[node] = l
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			l.run()
		}()
	}
	return l
}

// known returns the link to a broker if there is one.
func (r *relayServer) known(node ident.Node) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.links[node]
}

func (r *relayServer) all() []*link {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*link, 0, len(r.mu.links))
	for _, l := range r.mu.links {
		out = append(out, l)
	}
	return out
}

// open attaches a stream, takes what its client holds back into flight, and
// answers "gone" or "deleted" if that is not possible.
func (r *relayServer) open(from ident.Node, o *opening, held []verb) {
	l := r.link(from)
	if l == nil {
		return
	}
	id := ident.Partition{Topic: ident.TopicID(o.Topic), Number: o.Partition}
	if !r.g.core.Leads(id) {
		l.decline(o, verbGone)
		return
	}
	channel := findChannel(r.g.core, id, o.Channel, o.Ordered)
	if channel == nil {
		l.decline(o, verbMissing)
		return
	}
	s := &stream{id: o.Stream, partition: id, channel: channel, client: o.Client, credit: min(o.Credit, maxCredit), since: r.g.now()}
	s.subscriber = &nsqd.Subscriber{Woken: func() { l.look(s) }, MsgTimeoutMS: o.MsgTimeoutMS, SampleRate: o.SampleRate}
	s.subscriber.Client = func() []edge.ClientStats { return []edge.ClientStats{l.describe(s)} }
	if err := channel.Attach(s.subscriber); err != nil {
		l.decline(o, gone(err))
		return
	}
	s.refused = l.succeed(o.Replaces, s, held)
	l.add(s)
	r.g.wake() // the keeper may have slept
}

// gone says in one verb why a stream cannot be served.
func gone(err error) verbKind {
	if errors.Is(err, nsqd.ErrDeleted) {
		return verbDeleted
	}
	return verbGone
}

// hear takes an edge's words about one of its streams.
func (r *relayServer) hear(from ident.Node, v verb) {
	l := r.known(from)
	if l == nil {
		if v.Kind != verbClose {
			r.g.out.say(from, unheard(v))
		}
		return
	}
	switch v.Kind {
	case verbCredit:
		if !l.setCredit(v.Stream, int(min(v.Argument, maxCredit))) {
			l.say(verb{Kind: verbGone, Stream: v.Stream})
		}
	case verbClose:
		l.drop(v.Stream, leaving(v.Argument))
	case verbFinish, verbRequeue, verbTouch:
		r.carryOut(l, v)
	}
}

// count keeps what statistics say of the client.
func (s *stream) count(v verb) {
	switch {
	case v.Kind == verbFinish:
		s.finished.Add(1)
	case v.Kind == verbRequeue && v.Argument == unseen:
		s.sent.Add(^uint64(0)) // the client never saw it
	case v.Kind == verbRequeue && v.Argument >= 0:
		s.requeued.Add(1)
	}
}

// carryOut applies a finish, requeue or touch; a "no" goes back.
func (r *relayServer) carryOut(l *link, v verb) {
	s := l.find(v.Stream)
	if s == nil {
		l.say(unheard(v))
		return
	}
	err := apply(s.channel, s.subscriber, v)
	switch {
	case err == nil:
		s.count(v)
		l.look(s) // there may be room again
	case s.channel.Err(s.subscriber) != nil: // not the message is gone, but the stream
		l.say(unheard(v))
	default:
		v.Kind |= verbRefused
		l.say(v)
	}
}

// unheard gives a verb back to an edge whose stream is not here: it says it
// again after the next opening.
func unheard(v verb) verb {
	back := verb{Kind: verbGone, Stream: v.Stream, Sequence: v.Sequence, Epoch: v.Epoch}
	if v.Kind <= verbTouch {
		back.Argument = int64(v.Kind) | v.Argument<<8
	}
	return back
}

// peerDown keeps the peer's streams for the reclaim time, without sending.
func (r *relayServer) peerDown(node ident.Node) {
	if l := r.known(node); l != nil {
		l.cut()
	}
}

// tend gives back what cut-off edges have not reclaimed in time, and what was sent on
// streams of which their edges have heard no more: what an edge says while it takes
// this broker for silent is lost, the close of a stream too. It reports whether there
// are any streams.
func (r *relayServer) tend(now time.Duration) (any bool) {
	for _, l := range r.all() {
		any = l.expire(now) || any
	}
	return any
}

func (r *relayServer) close() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	for _, l := range r.all() {
		close(l.stop)
	}
	r.wg.Wait()
	for _, l := range r.all() {
		l.dropAll()
	}
}
