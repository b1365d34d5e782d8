package replicas

import (
	"context"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Discard trashes the replica that an operator has given up (calls.Discard), unless the
// partition's key, read linearizably after the replica has ceased to acknowledge, has it
// in sync. The next change of the key recreates it.
func (h *Hosting) Discard(ctx context.Context, req calls.DiscardRequest) error {
	id := req.Partition()
	defer h.lock(id)()
	st, stored := h.o.Store.Partition(id)
	if !stored || uint64(st.StoreID()) != req.Store {
		return fmt.Errorf("%w: the replica on %s was replaced since, read its state again", api.ErrInvalid, h.o.Self)
	}
	p, hosted := h.o.Engine.Partition(id)
	if hosted {
		p.Mute()
	}
	keep := func(err error) error {
		if hosted {
			p.Unmute()
		}
		return err
	}
	e, err := h.o.Meta.Get(ctx, h.o.Keys.Partition(id))
	if err != nil {
		return keep(fmt.Errorf("%w: %w", api.ErrUnavailable, err))
	}
	s, err := metadata.DecodePartition(e)
	if err != nil {
		return keep(err)
	}
	isMember := ident.HasMember(s.ISR, h.o.Self)
	if isMember || s.Abandoned == 0 {
		return keep(fmt.Errorf("%w: the replica on %s is in sync, or nothing was recovered", api.ErrInvalid, h.o.Self))
	}
	h.trashLocked(id, "an operator gave it up after an unclean recovery")
	return nil
}
