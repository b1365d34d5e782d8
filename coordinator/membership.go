package coordinator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/sirupsen/logrus"
)

// peerState is what the transport last said of a broker.
type peerState struct {
	incarnation ident.Incarnation
	up, dead    bool
	since       time.Time // when up last changed
}

// membership keeps which brokers answer and tells the machines when that
// changes. Its lock is held while events are posted, so that a machine that
// joins sees neither an old state last nor none at all; posting never blocks.
type membership struct {
	broker *Broker
	log    logrus.FieldLogger
	mu     struct {
		sync.Mutex
		peers map[ident.Node]peerState
	}
}

func newMembership(b *Broker) *membership {
	m := &membership{broker: b, log: b.log}
	m.mu.peers = map[ident.Node]peerState{}
	return m
}

// Frame takes a frame of a peer (rpc.Handler).
func (m *membership) Frame(from ident.Node, inc ident.Incarnation, f rpc.Received) {
	b := m.broker
	switch f.Class {
	case rpc.ClassForward, rpc.ClassRelay:
		b.gateway.HandleFrame(from, inc, f)
	case rpc.ClassReplica, rpc.ClassBulk:
		p, msg, err := decodeMessage(f)
		if err != nil {
			m.log.WithError(err).WithField("node", from).Warn("dropped a message")
			return
		}
		peer := replica.Peer{Node: from, Incarnation: inc, Store: msg.Store}
		b.loopOf(p).hand(work{kind: workEvent, id: p, event: replica.Received{From: peer, Msg: msg}}, !f.More, len(f.Payload))
	}
}

// Peer takes a change of a peer's connection (rpc.Handler).
func (m *membership) Peer(n ident.Node, inc ident.Incarnation, up, refused bool) {
	s := peerState{incarnation: inc, up: up, dead: refused && !up, since: time.Now()}
	if s.dead {
		m.broker.background(func(ctx context.Context) { m.mourn(ctx, n) })
	}
	m.mu.Lock()
	if was := m.mu.peers[n]; was.up == up && !was.since.IsZero() {
		s.since = was.since
	}
	m.mu.peers[n] = s
	m.broker.tellReplicas(n, s.event(n))
	m.mu.Unlock()
	select {
	case m.broker.reach <- struct{}{}:
	default:
	}
	if !up {
		m.broker.gateway.PeerDown(n)
	}
	if s.dead {
		m.broker.background(func(ctx context.Context) { m.bury(ctx, n, inc) })
	}
	m.broker.moved.notify()
}

// mourn tells the metadata's member here of a death, before anybody writes what
// follows from it: that would be sent to the dead one, if it led.
func (m *membership) mourn(ctx context.Context, n ident.Node) {
	if m.broker.o.Members == nil {
		return
	}
	if err := m.broker.o.Members.Died(ctx, n); err != nil {
		m.log.WithError(err).WithField("node", n).Info("the metadata finds a new leader by itself")
	}
}

// bury revokes the lease of a process that is known to be dead, so that nobody
// has to wait for it to run out. Another incarnation of the node is left alone.
// A request is lost if the dead one led etcd too: it is sent again until the
// registration is gone.
func (m *membership) bury(ctx context.Context, n ident.Node, inc ident.Incarnation) {
	ctx, cancel := context.WithTimeout(ctx, m.broker.o.SessionTTL)
	defer cancel()
	for ctx.Err() == nil {
		changed := m.broker.Changed()
		r, ok := m.broker.catalog.liveNode(n)
		if !ok || r.Incarnation != inc || r.Lease == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, txnTimeout)
		err := m.broker.meta.Revoke(try, r.Lease)
		cancel()
		if err != nil {
			m.log.WithError(err).WithField("node", n).Info("cannot revoke the lease of a dead broker yet")
		}
		waitFor(ctx, changed, createRetry)
	}
}

// introduce posts the state of a partition's peers to its machine.
func (m *membership) introduce(p ident.Partition, nodes []ident.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if n != m.broker.self {
			m.broker.post(p, m.mu.peers[n].event(n))
		}
	}
}

// silent lists which of these brokers have not answered for so long; one that never
// did, since it was first asked about.
func (m *membership) silent(of []meta.NodeState, d time.Duration) (out []ident.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range of {
		if n.Name == m.broker.self {
			continue
		}
		s, known := m.mu.peers[n.Name]
		if !known {
			s.since = time.Now()
			m.mu.peers[n.Name] = s
		}
		if !s.up && time.Since(s.since) >= d {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// up reports whether a broker answers. This one does.
func (m *membership) up(n ident.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return n == m.broker.self || m.mu.peers[n].up
}

// reached gives the incarnation of another broker that answers.
func (m *membership) reached(n ident.Node) (ident.Incarnation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.peers[n]
	return s.incarnation, s.up
}

// dead reports whether a broker's process is known to be gone.
func (m *membership) dead(n ident.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.peers[n].dead
}

// allUp reports whether all of these brokers answer.
func (m *membership) allUp(nodes []meta.NodeState) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if n.Name != m.broker.self && !m.mu.peers[n.Name].up {
			return false
		}
	}
	return true
}

func (s peerState) event(n ident.Node) replica.Event {
	return replica.PeerState{Node: n, Up: s.up, Dead: s.dead}
}

// tellReplicas posts an event to the machines that have n among their replicas.
func (b *Broker) tellReplicas(n ident.Node, ev replica.Event) {
	for _, h := range b.hosted() {
		if s, ok := b.catalog.partition(h.id); ok && concerns(s, n) {
			h.loop.post(h.id, ev)
		}
	}
}

// concerns reports whether a broker matters to a partition.
func concerns(s meta.PartitionState, n ident.Node) bool {
	return s.Leader == n || slices.Contains(s.Replicas, n)
}

// addressBook gives the transport the brokers to connect to: everyone that ever
// registered, at the address of the present registration if there is one.
func (b *Broker) addressBook() map[ident.Node]string {
	book := map[ident.Node]string{}
	for _, n := range b.catalog.nodes() {
		book[n.Name] = n.RPCAddress
	}
	for _, r := range b.catalog.lives() {
		book[r.Name] = r.RPCAddress
	}
	delete(book, b.self)
	return book
}
