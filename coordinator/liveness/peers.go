package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
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

// Options of Peers. All fields except Members are required.
type Options struct {
	Self      ident.Node
	Machines  machines
	Catalog   *catalog.Catalog
	Store     metadata.Store
	Session   *session.Session
	Members   metadata.Members // nil: the metadata store is external
	Caller    calls.Caller
	Lost      func(ident.Node) // a broker no longer answers
	Silent    time.Duration    // a broker counts as unreachable after this time without an answer (T_isr)
	RevokeFor time.Duration    // bounds the attempts to revoke a dead broker's registration: after this time its lease has expired
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

// Peers tracks the state of the other brokers. Its lock is held while events are posted.
type Peers struct {
	o       Options
	changed concurrency.Edge
	mu      struct {
		sync.Mutex
		states map[ident.Node]peerState
	}
}

// New returns Peers without any report yet.
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
			if p.o.Members != nil { // first, otherwise the resulting writes would be sent to the dead member if it was the leader
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

// Reached returns the incarnation of another broker, and whether it answers.
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

// unreachableEvery is how often a broker checks that it reaches the replicas of its partitions.
const unreachableEvery = 250 * time.Millisecond

// RunUnreachable publishes in the metadata which brokers this one cannot reach, while a partition led here lacks its
// minimum because of them. The members that reach each other can then replace a leader that only reaches the metadata.
// It compares with the list in the metadata, because a lost answer leaves open what was written, and a leader with an
// outdated list would be replaced repeatedly. A stopping broker publishes too: it leads until its clients' last
// requests are answered. It returns when ctx ends.
func (p *Peers) RunUnreachable(ctx context.Context) {
	concurrency.Every(ctx, unreachableEvery, func() {
		now := p.unreachable()
		published, ok := p.o.Catalog.LiveNode(p.o.Self)
		if !ok || published.Incarnation != p.o.Session.Newest() || slices.Equal(now, published.Unreachable) {
			return
		}
		try, cancel := context.WithTimeout(ctx, txn.Timeout)
		defer cancel()
		if err := p.o.Session.PublishUnreachable(try, now); err == nil {
			p.o.Log.WithField("nodes", now).Warn("brokers unreachable: published to the other brokers")
		}
	})
}

// unreachable lists the brokers that have been silent for T_isr, if a partition led here lacks its minimum because of
// them.
func (p *Peers) unreachable() []ident.Node {
	silent := p.silent(p.o.Catalog.Nodes(), p.o.Silent)
	if len(silent) == 0 {
		return nil
	}
	below := false
	p.o.Machines.Each(func(id ident.Partition) {
		s, ok := p.o.Catalog.Partition(id)
		below = below || ok && s.Leader == p.o.Self && replica.BelowMinimum(s, silent)
	})
	if !below {
		return nil
	}
	return silent
}

// silent lists the brokers that have not answered for d. For one that never answered, d begins with the first call.
func (p *Peers) silent(of []metadata.NodeState, d time.Duration) (out []ident.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range of {
		if n.Name == p.o.Self {
			continue
		}
		s, known := p.mu.states[n.Name]
		if !known {
			s.since = time.Now()
			p.mu.states[n.Name] = s
		}
		if !s.up && time.Since(s.since) >= d {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// partitioned reports whether a partition's leader is another broker that is to be replaced although it is alive.
func (p *Peers) partitioned(s metadata.PartitionState, r catalog.Registration) bool {
	return r.Name == s.Leader && r.Name != p.o.Self && r.Incarnation == s.LeaderIncarnation && replica.Partitioned(s, r.Unreachable, p.Up)
}

// LiveEvent notifies a partition's machine of a broker's registration. A partitioned leader is reported as gone.
func (p *Peers) LiveEvent(s metadata.PartitionState, n ident.Node) replica.Event {
	r, _ := p.o.Catalog.LiveNode(n)
	if p.partitioned(s, r) {
		return replica.Live{Node: n}
	}
	return replica.Live{Node: n, Incarnation: r.Incarnation}
}

// PostLive notifies the machines of a broker's registration. Only the goroutine that applies the metadata calls it, so that
// the last state that a machine receives is the newest.
func (p *Peers) PostLive(n ident.Node) {
	p.o.Machines.Each(func(id ident.Partition) {
		if s, ok := p.o.Catalog.Partition(id); ok && concerns(s, n) {
			p.o.Machines.Post(id, p.LiveEvent(s, n))
		}
	})
}

// JudgeLeaders reassesses the leaders that have published that they cannot reach their replicas, because the set of brokers
// that this one reaches has changed. It is called like PostLive.
func (p *Peers) JudgeLeaders() {
	for _, r := range p.o.Catalog.LiveNodes() {
		if len(r.Unreachable) > 0 {
			p.PostLive(r.Name)
		}
	}
}
