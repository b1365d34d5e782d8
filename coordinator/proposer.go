package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	// proposers is how many transactions are under way at once: etcd writes those
	// that come together with one sync.
	proposers = 16
	// casPerTxn is how many partitions one transaction changes: each takes a put and
	// a compare, three are shared.
	casPerTxn = meta.MaxTxn - 3
	// txnTimeout is short because etcd forgets what was under way when its leader
	// died: it is back after 0.3 to 0.4 s, and who waits longer for an answer waits
	// for nothing. What lands later is seen by the watch.
	txnTimeout = 200 * time.Millisecond
)

// proposal is one machine's compare-and-swap.
type proposal struct {
	id  ident.Partition
	cas replica.CAS
}

// proposer carries out compare-and-swaps on partition keys and answers the
// machines. A transaction compares the partitions' ModRevisions, the proposer's
// own registration, and what the machines said of the old leader and of the heir.
// Whatever waits and says the same of these goes together: when a broker of ten
// thousand partitions dies, all of them change.
//
// Its goroutines are started by start and end at stop.
type proposer struct {
	store   meta.Store
	keys    meta.Keys
	self    ident.Node
	inc     func() ident.Incarnation
	catalog *catalog
	post    func(ident.Partition, replica.Event)
	log     logrus.FieldLogger

	ctx    context.Context //nolint:containedctx // the goroutines' life, cancelled by stop
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{} // capacity proposers
	doubts *doubts
	mu     struct {
		sync.Mutex
		queue []proposal
	}
}

// start starts the goroutines of a proposer whose first group of fields is set.
func (p *proposer) start() {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wake = make(chan struct{}, proposers)
	for range proposers {
		p.done.Go(p.run)
	}
	p.doubts = newDoubts()
	p.done.Go(p.settleDoubts)
}

// propose queues a compare-and-swap. Its answer is posted as replica.CASDone.
func (p *proposer) propose(id ident.Partition, c replica.CAS) {
	p.mu.Lock()
	p.mu.queue = append(p.mu.queue, proposal{id, c})
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *proposer) stop() {
	p.cancel()
	p.done.Wait()
}

func (p *proposer) run() {
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

// take gives what goes into the next transaction: an election before all else –
// its partition serves nobody – or the oldest proposal, and with it what can share
// its compares.
func (p *proposer) take() []proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.queue) == 0 || p.ctx.Err() != nil {
		return nil
	}
	first := max(0, slices.IndexFunc(p.mu.queue, func(c proposal) bool { return c.cas.LeaderGone != nil }))
	burst, rest := []proposal{p.mu.queue[first]}, p.mu.queue[:0]
	taken := map[ident.Partition]bool{burst[0].id: true}
	for i, c := range p.mu.queue {
		switch {
		case i == first:
		case len(burst) < casPerTxn && !taken[c.id] && sameFence(burst[0].cas, c.cas):
			burst = append(burst, c)
			taken[c.id] = true
		default:
			rest = append(rest, c)
		}
	}
	clear(p.mu.queue[len(rest):])
	p.mu.queue = rest
	return burst
}

// sameFence reports whether two proposals say the same of the old leader and of
// the heir.
func sameFence(a, b replica.CAS) bool {
	if (a.LeaderGone == nil) != (b.LeaderGone == nil) || a.LeaderGone != nil && *a.LeaderGone != *b.LeaderGone {
		return false
	}
	return sameHeir(a.Heir, b.Heir)
}

func sameHeir(a, b *replica.Peer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Node == b.Node && a.Incarnation == b.Incarnation
}

// carryOut tries a burst in one transaction. If a compare fails, the partitions
// whose keys have moved are told, and the others are tried again: one must not
// hold up the rest.
func (p *proposer) carryOut(burst []proposal) {
	for len(burst) > 0 {
		err := p.try(burst)
		if !errors.Is(err, errCompare) {
			p.answer(burst, err)
			return
		}
		states, _ := p.read(partitionsOf(burst)) // empty if that fails: the watch will tell
		refuse := func(b proposal) {
			p.post(b.id, replica.CASDone{Token: b.cas.Token, State: states[b.id]})
		}
		all := len(burst)
		burst = slices.DeleteFunc(burst, func(b proposal) bool {
			moved := states[b.id].Revision != b.cas.State.Revision
			if moved {
				refuse(b)
			}
			return moved
		})
		if len(burst) == all { // what they share did not hold
			for _, b := range burst {
				refuse(b)
			}
			return
		}
	}
}

func partitionsOf(burst []proposal) []ident.Partition {
	ids := make([]ident.Partition, len(burst))
	for i, b := range burst {
		ids[i] = b.id
	}
	return ids
}

// errCompare means that a compare did not hold: nothing was written.
var errCompare = errors.New("coordinator: a compare of the transaction failed")

// try runs one transaction and fills in the revisions on success.
func (p *proposer) try(burst []proposal) error {
	cmp, err := p.preconditions(&burst[0].cas)
	if err != nil {
		return err
	}
	var puts []meta.Put
	for _, b := range burst {
		key := p.keys.Partition(b.id)
		cmp = append(cmp, meta.Compare{Key: key, Create: -1, Mod: b.cas.State.Revision})
		b.cas.State.V = meta.Version
		puts = append(puts, meta.Put{Key: key, Value: meta.Encode(b.cas.State)})
	}
	ctx, cancel := context.WithTimeout(p.ctx, txnTimeout)
	defer cancel()
	ok, rev, err := p.store.Txn(ctx, cmp, puts)
	if err != nil {
		return err
	}
	if !ok {
		return errCompare
	}
	for i := range burst {
		burst[i].cas.State.V, burst[i].cas.State.Revision = meta.Version, rev
	}
	return nil
}

// preconditions are the compares that do not concern the partition's own key.
func (p *proposer) preconditions(c *replica.CAS) ([]meta.Compare, error) {
	inc := p.inc()
	if inc == 0 { // and a compare with 0 would mean "not registered"
		return nil, errCompare
	}
	out := []meta.Compare{{Key: p.keys.Live(p.self), Create: int64(inc), Mod: -1}}
	if h := c.Heir; h != nil && h.Node != p.self {
		out = append(out, meta.Compare{Key: p.keys.Live(h.Node), Create: int64(h.Incarnation), Mod: -1})
	}
	if c.LeaderGone == nil {
		return out, nil
	}
	gone, err := p.goneCompare(*c.LeaderGone)
	return append(out, gone), err
}

// goneCompare pins the old leader's registration to what is known of it: absent,
// of another run, handing over, or out of reach of its replicas. It fails if that
// run is alive and stays.
func (p *proposer) goneCompare(old replica.Peer) (meta.Compare, error) {
	r, ok := p.catalog.liveNode(old.Node)
	key := p.keys.Live(old.Node)
	switch {
	case !ok:
		return meta.Compare{Key: key, Create: 0, Mod: 0}, nil
	case r.Incarnation != old.Incarnation, r.HandingOver, len(r.Unreached) > 0:
		return meta.Compare{Key: key, Create: int64(r.Incarnation), Mod: r.Mod}, nil
	default:
		return meta.Compare{}, errCompare
	}
}

// answer posts the outcome of a transaction to the machines of a burst.
func (p *proposer) answer(burst []proposal, err error) {
	if err != nil {
		p.log.WithError(err).WithField("partitions", len(burst)).Debug("proposal failed")
	}
	for _, b := range burst {
		switch {
		case err == nil:
			p.post(b.id, replica.CASDone{Token: b.cas.Token, OK: true, State: b.cas.State})
		case errors.Is(err, meta.ErrUnknown):
			p.post(b.id, replica.CASDone{Token: b.cas.Token, Unknown: true})
			p.doubts.add(b.id)
		default: // it did not happen
			p.post(b.id, replica.CASDone{Token: b.cas.Token})
		}
	}
}
