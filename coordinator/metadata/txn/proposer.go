package txn

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// proposers is the number of concurrent transactions: etcd syncs those that arrive together once.
	proposers = 16
	// partitionsPerTxn is the number of partitions in one transaction: each takes a put and a compare, and three compares are
	// shared.
	partitionsPerTxn = metadata.MaxTxn - 3
)

// ProposerOptions are all required, except Wrote.
type ProposerOptions struct {
	Store       metadata.Store
	Keys        metadata.Keys
	Catalog     *catalog.Catalog
	Self        ident.Node
	Incarnation func() ident.Incarnation             // of the current registration; 0: none
	Post        func(ident.Partition, replica.Event) // must not block
	Wrote       func(revision int64)                 // receives the revision of each successful change; must not block
	Log         logrus.FieldLogger
}

// proposal is one machine's compare-and-swap.
type proposal struct {
	id  ident.Partition
	cas replica.CAS
}

// Proposer performs compare-and-swaps on partition keys and answers the machines. A transaction compares the
// partitions' ModRevisions, the proposer's own registration, and those of the old leader and of the transfer target.
// Queued proposals with the same registrations share a transaction: when a broker with ten thousand partitions dies,
// the keys of all of them change.
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

// take returns the proposals of the next transaction: the first election, because its partition serves no client, or
// else the oldest proposal; plus all proposals that can share its compares.
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

// carryOut tries a burst in one transaction. If a compare fails, it answers the proposals whose keys have changed, and
// retries the others, so that one conflict does not block the rest.
func (p *Proposer) carryOut(burst []proposal) {
	for len(burst) > 0 {
		err := p.try(burst)
		if !errors.Is(err, ErrCompare) {
			p.answer(burst, err)
			return
		}
		ids := make([]ident.Partition, len(burst))
		for i, b := range burst {
			ids[i] = b.id
		}
		states, _ := p.read(ids) // empty if that fails: the watch will deliver them
		refuse := func(b proposal) {
			p.o.Post(b.id, replica.CASDone{Token: b.cas.Token, State: states[b.id]})
		}
		all := len(burst)
		burst = slices.DeleteFunc(burst, func(b proposal) bool {
			moved := states[b.id].Revision != b.cas.State.Revision
			if moved {
				refuse(b)
			}
			return moved
		})
		if len(burst) == all { // a shared condition failed
			for _, b := range burst {
				refuse(b)
			}
			return
		}
	}
}

// try runs one transaction and fills in the revisions on success.
func (p *Proposer) try(burst []proposal) error {
	cmp, err := p.preconditions(&burst[0].cas)
	if err != nil {
		return err
	}
	var puts []metadata.Put
	for _, b := range burst {
		key := p.o.Keys.Partition(b.id)
		cmp = append(cmp, metadata.Compare{Key: key, Create: -1, Mod: b.cas.State.Revision})
		b.cas.State.V = metadata.Version
		puts = append(puts, metadata.Put{Key: key, Value: metadata.Encode(b.cas.State)})
	}
	ctx, cancel := context.WithTimeout(p.ctx, Timeout)
	defer cancel()
	rev, err := Write(ctx, p.o.Store, cmp, puts...)
	if err != nil {
		return err
	}
	if p.o.Wrote != nil {
		p.o.Wrote(rev)
	}
	for i := range burst {
		burst[i].cas.State.V, burst[i].cas.State.Revision = metadata.Version, rev
	}
	return nil
}

// preconditions are the compares of registrations.
func (p *Proposer) preconditions(c *replica.CAS) ([]metadata.Compare, error) {
	inc := p.o.Incarnation()
	if inc == 0 { // and a compare with 0 would mean "not registered"
		return nil, ErrCompare
	}
	out := []metadata.Compare{{Key: p.o.Keys.Live(p.o.Self), Create: int64(inc), Mod: -1}}
	if to := c.TransferTarget; to != nil && to.Node != p.o.Self {
		out = append(out, metadata.Compare{Key: p.o.Keys.Live(to.Node), Create: int64(to.Incarnation), Mod: -1})
	}
	if c.LeaderGone == nil {
		return out, nil
	}
	gone, err := p.leaderGone(*c.LeaderGone)
	return append(out, gone), err
}

// leaderGone compares the old leader's registration with its known state: absent, of another incarnation, transferring
// its leaderships, or unable to reach its replicas. It returns ErrCompare if
// none of these holds.
func (p *Proposer) leaderGone(old replica.Peer) (metadata.Compare, error) {
	r, ok := p.o.Catalog.LiveNode(old.Node)
	key := p.o.Keys.Live(old.Node)
	switch {
	case !ok:
		return metadata.Compare{Key: key, Create: 0, Mod: 0}, nil
	case r.Incarnation != old.Incarnation, r.Transferring, len(r.Unreachable) > 0:
		return metadata.Compare{Key: key, Create: int64(r.Incarnation), Mod: r.Mod}, nil
	default:
		return metadata.Compare{}, ErrCompare
	}
}

// answer posts the outcome of a transaction to the machines of a burst.
func (p *Proposer) answer(burst []proposal, err error) {
	if err != nil {
		p.o.Log.WithError(err).WithField("count", len(burst)).Debug("proposal failed")
	}
	for _, b := range burst {
		switch {
		case err == nil:
			p.o.Post(b.id, replica.CASDone{Token: b.cas.Token, OK: true, State: b.cas.State})
		case errors.Is(err, metadata.ErrUnknown):
			p.o.Post(b.id, replica.CASDone{Token: b.cas.Token, Unknown: true})
			p.unresolved.add(b.id)
		default: // it did not happen
			p.o.Post(b.id, replica.CASDone{Token: b.cas.Token})
		}
	}
}
