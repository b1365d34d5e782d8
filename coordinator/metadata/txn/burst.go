package txn

import (
	"context"
	"errors"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// carryOut tries a burst in one transaction. If a compare fails, it answers the proposals whose keys have changed, and tries
// the others again, so that one does not block the rest.
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
		states, _ := p.read(ids) // empty if that fails: the watch brings them
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

// leaderGone compares the old leader's registration with its known state: absent, of another incarnation, transferring its
// leaderships, or unable to reach its replicas. It fails if that incarnation is alive and stays.
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
