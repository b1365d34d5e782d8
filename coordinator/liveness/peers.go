package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// machines are the replicas on this broker (engine.Engine). Post does not block.
type machines interface {
	Post(p ident.Partition, ev replica.Event)
	Each(f func(ident.Partition))
}

// Options of Peers. All but Members must be given.
type Options struct {
	Self      ident.Node
	Machines  machines
	Catalog   *catalog.Catalog
	Store     metadata.Store
	Session   *session.Session
	Members   metadata.Members // nil: the metadata store is external
	Caller    calls.Caller
	Lost      func(ident.Node) // a broker no longer answers
	Silent    time.Duration    // a broker counts as unreachable after that time (T_isr)
	RevokeFor time.Duration    // bounds the attempts to revoke a dead broker's registration: then its lease has expired
	Group     *concurrency.Group
	Log       logrus.FieldLogger
}

// peerState is the last report of the transport about a broker.
type peerState struct {
	incarnation ident.Incarnation
	up, dead    bool
	failed      bool      // the broker reported that its store failed or hangs, and has not reconnected since
	since       time.Time // when up last changed
}

func (s peerState) event(n ident.Node) replica.Event {
	return replica.PeerState{Node: n, Up: s.up, Dead: s.dead}
}

// Peers has the state of the other brokers. Its lock is held while events are posted.
type Peers struct {
	o       Options
	changed concurrency.Edge
	mu      struct {
		sync.Mutex
		states map[ident.Node]peerState
	}
}

// New makes the state of brokers without any report yet.
func New(o Options) *Peers {
	p := &Peers{o: o, changed: concurrency.NewEdge()}
	p.mu.states = map[ident.Node]peerState{}
	return p
}

// Changed receives when the set of brokers that answer has changed. The goroutine that applies the metadata then calls
// JudgeLeaders.
func (p *Peers) Changed() <-chan struct{} { return p.changed }

// Peer handles a change of a peer's connection (rpc.Handler). refused: the address of that incarnation refuses connections.
func (p *Peers) Peer(n ident.Node, inc ident.Incarnation, up, refused bool) {
	s := peerState{incarnation: inc, up: up, dead: refused && !up, since: time.Now()}
	p.mu.Lock()
	if was := p.mu.states[n]; was.up == up && !was.since.IsZero() {
		s.since = was.since
	}
	p.mu.states[n] = s
	p.notifyReplicas(n, s.event(n))
	p.mu.Unlock()
	p.changed.Notify()
	if !up {
		p.o.Lost(n)
	}
	if s.dead {
		p.o.Group.Go(func(ctx context.Context) {
			if !p.confirmDead(ctx, n, inc) {
				return
			}
			if p.o.Members != nil { // first, or writes that follow from the death would be sent to the dead member, if it led
				if err := p.o.Members.NotifyDeath(ctx, n); err != nil {
					p.o.Log.WithError(err).WithField("node", n).Info("cannot start an election of the metadata: its members elect a leader after their timeout")
				}
			}
			p.revoke(ctx, n, inc)
		})
	}
	p.o.Catalog.Notify()
}

// Introduce posts the state of a partition's peers to its machine.
func (p *Peers) Introduce(id ident.Partition, nodes []ident.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range nodes {
		if n != p.o.Self {
			p.o.Machines.Post(id, p.mu.states[n].event(n))
		}
	}
}

// notifyReplicas posts an event to the machines that n concerns.
func (p *Peers) notifyReplicas(n ident.Node, ev replica.Event) {
	p.o.Machines.Each(func(id ident.Partition) {
		if s, ok := p.o.Catalog.Partition(id); ok && concerns(s, n) {
			p.o.Machines.Post(id, ev)
		}
	})
}

func concerns(s metadata.PartitionState, n ident.Node) bool {
	return s.Leader == n || slices.Contains(s.Replicas, n)
}

// Up reports whether a broker answers. This one does.
func (p *Peers) Up(n ident.Node) bool { return n == p.o.Self || p.state(n).up }

// Reached gives the incarnation of another broker, and whether it answers.
func (p *Peers) Reached(n ident.Node) (ident.Incarnation, bool) {
	s := p.state(n)
	return s.incarnation, s.up
}

// Dead reports whether a broker's process is known to be gone.
func (p *Peers) Dead(n ident.Node) bool { return p.state(n).dead }

// AllUp reports whether all brokers of the cluster answer.
func (p *Peers) AllUp() bool {
	return !slices.ContainsFunc(p.o.Catalog.Nodes(), func(n metadata.NodeState) bool { return !p.Up(n.Name) })
}

// Others are the other live brokers that answer.
func (p *Peers) Others() []ident.Node {
	var list []ident.Node
	for _, r := range p.o.Catalog.LiveNodes() {
		if r.Name != p.o.Self && p.Up(r.Name) {
			list = append(list, r.Name)
		}
	}
	return list
}
