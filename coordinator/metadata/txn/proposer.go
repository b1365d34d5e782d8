package txn

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	// proposers is the number of concurrent transactions: etcd syncs those that arrive together once.
	proposers = 16
	// partitionsPerTxn is the number of partitions in one transaction: each takes a put and a compare, and three compares are
	// shared.
	partitionsPerTxn = metadata.MaxTxn - 3
)

// ProposerOptions are all required but Wrote.
type ProposerOptions struct {
	Store       metadata.Store
	Keys        metadata.Keys
	Catalog     *catalog.Catalog
	Self        ident.Node
	Incarnation func() ident.Incarnation             // of the present registration; 0: none
	Post        func(ident.Partition, replica.Event) // must not block
	Wrote       func(revision int64)                 // receives the revision of each successful change; must not block
	Log         logrus.FieldLogger
}

// proposal is one machine's compare-and-swap.
type proposal struct {
	id  ident.Partition
	cas replica.CAS
}

// Proposer performs compare-and-swaps on partition keys and answers the machines. A transaction compares the partitions'
// ModRevisions, the proposer's own registration, and those of the old leader and of the transfer target. Queued proposals with
// the same registrations share a transaction: when a broker with ten thousand partitions dies, all of them change.
type Proposer struct {
	o ProposerOptions

	ctx        context.Context //nolint:containedctx // the goroutines' life, cancelled by Stop
	cancel     context.CancelFunc
	done       sync.WaitGroup
	wake       chan struct{} // capacity proposers
	unresolved *unresolved
	mu         struct {
		sync.Mutex
		queue []proposal
	}
}

// NewProposer starts a proposer.
func NewProposer(o ProposerOptions) *Proposer {
	p := &Proposer{o: o, wake: make(chan struct{}, proposers), unresolved: newUnresolved()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for range proposers {
		p.done.Go(p.run)
	}
	p.done.Go(p.resolve)
	return p
}

// Propose queues a compare-and-swap. Its answer is posted as replica.CASDone.
func (p *Proposer) Propose(id ident.Partition, c replica.CAS) {
	p.mu.Lock()
	p.mu.queue = append(p.mu.queue, proposal{id, c})
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Stop ends the proposer and waits for its goroutines. Queued proposals are dropped.
func (p *Proposer) Stop() {
	p.cancel()
	p.done.Wait()
}

func (p *Proposer) run() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		}
		for burst := p.take(); len(burst) > 0; burst = p.take() {
			p.carryOut(burst)
		}
	}
}

// take returns the proposals of the next transaction: the first election, because its partition serves no client, else the
// oldest proposal; and all proposals that can share its compares.
func (p *Proposer) take() []proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.queue) == 0 || p.ctx.Err() != nil {
		return nil
	}
	first := max(0, slices.IndexFunc(p.mu.queue, func(c proposal) bool { return c.cas.LeaderGone != nil }))
	burst, rest := []proposal{p.mu.queue[first]}, p.mu.queue[:0]
	chosen := map[ident.Partition]bool{burst[0].id: true}
	for i, c := range p.mu.queue {
		switch {
		case i == first:
		case len(burst) < partitionsPerTxn && !chosen[c.id] && sameConditions(burst[0].cas, c.cas):
			burst = append(burst, c)
			chosen[c.id] = true
		default:
			rest = append(rest, c)
		}
	}
	clear(p.mu.queue[len(rest):])
	p.mu.queue = rest
	return burst
}

// sameConditions reports whether two proposals have the same old leader and transfer target.
func sameConditions(a, b replica.CAS) bool {
	run := func(p *replica.Peer) (r replica.Peer) { // without the store, which differs by partition
		if p != nil {
			r.Node, r.Incarnation = p.Node, p.Incarnation
		}
		return r
	}
	return run(a.LeaderGone) == run(b.LeaderGone) && run(a.TransferTarget) == run(b.TransferTarget)
}
