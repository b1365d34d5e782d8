package liveness

import (
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// unreachableEvery is how often a broker checks that it reaches the replicas of its partitions.
const unreachableEvery = 250 * time.Millisecond

// RunUnreachable publishes in the metadata which brokers this one cannot reach, while a partition led here lacks its minimum
// because of them. The members that reach each other can then replace a leader that only reaches the metadata. It compares
// with the list in the metadata, because a lost answer leaves open what was written, and a leader whose old list stays is
// replaced repeatedly. A stopping broker publishes too: it leads until its clients' last requests are answered. It returns
// when ctx ends.
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

// unreachable lists the brokers that have been silent for T_isr, if a partition led here lacks its minimum without them.
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
