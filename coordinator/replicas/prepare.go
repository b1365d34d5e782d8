package replicas

import (
	"context"
	"errors"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Prepare creates the stores of a topic that is about to be created (calls.Prepare).
func (h *Hosting) Prepare(req calls.PrepareRequest) (calls.Prepared, error) {
	resp := calls.Prepared{Stores: make([]uint64, len(req.Partitions))}
	errs := make([]error, len(req.Partitions))
	concurrency.Each(len(req.Partitions), openers, func(i int) {
		p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Partitions[i]}
		defer h.lock(p)()
		st, err := h.storeLocked(req.Name, p)
		if errs[i] = err; err == nil {
			resp.Stores[i] = uint64(st.StoreID())
		}
	})
	if req.Durability == string(metadata.DurabilitySync) { // now, and not in the goroutine that applies the metadata
		errs = append(errs, h.requireSync(req.Name, ident.TopicID(req.Topic)))
	}
	return resp, errors.Join(errs...)
}

// Release trashes stores that were prepared and never used (calls.Release): no key names
// the partition, read linearizably, and nothing was ever promised or written.
func (h *Hosting) Release(ctx context.Context, req calls.PrepareRequest) error {
	for _, n := range req.Partitions {
		p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: n}
		if !h.unused(p) || !txn.Absent(ctx, h.o.Meta, h.o.Keys.Partition(p)) {
			continue
		}
		if err := h.trashUnused(p); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hosting) unused(p ident.Partition) bool {
	st, ok := h.o.Store.Partition(p)
	if _, hosted := h.o.Engine.Partition(p); !ok || hosted {
		return false
	}
	r := st.Restored()
	return r.Epoch == 0 && r.End == ident.Position{}
}

// trashUnused does nothing if the partition was opened since: its key came late.
func (h *Hosting) trashUnused(p ident.Partition) error {
	defer h.lock(p)()
	if !h.unused(p) {
		return nil
	}
	return h.o.Store.Trash(p)
}
