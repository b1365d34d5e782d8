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
func (l *Local) Prepare(req calls.PrepareRequest) (calls.Prepared, error) {
	resp := calls.Prepared{Stores: make([]ident.StoreID, len(req.Partitions))}
	errs := make([]error, len(req.Partitions))
	concurrency.Each(len(req.Partitions), openers, func(i int) {
		p := ident.Partition{Topic: req.Topic, Number: req.Partitions[i]}
		defer l.lock(p)()
		st, err := l.storeLocked(req.Name, p)
		if errs[i] = err; err == nil {
			resp.Stores[i] = st.StoreID()
		}
	})
	if req.Durability == string(metadata.DurabilitySync) { // now, and not in the goroutine that applies the metadata
		errs = append(errs, l.requireSync(req.Name, req.Topic))
	}
	return resp, errors.Join(errs...)
}

// Release trashes stores that were prepared and never used (calls.Release): no key names
// the partition, read linearizably, and nothing was ever promised or written.
func (l *Local) Release(ctx context.Context, req calls.PrepareRequest) error {
	for _, n := range req.Partitions {
		p := ident.Partition{Topic: req.Topic, Number: n}
		if !l.unused(p) || !txn.Absent(ctx, l.o.Meta, l.o.Keys.Partition(p)) {
			continue
		}
		if err := l.trashUnused(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) unused(p ident.Partition) bool {
	st, ok := l.o.Store.Partition(p)
	if _, hosted := l.o.Engine.Partition(p); !ok || hosted {
		return false
	}
	r := st.Restored()
	return r.Epoch == 0 && r.End == ident.Position{}
}

// trashUnused does nothing if the partition was opened since: its key came late.
func (l *Local) trashUnused(p ident.Partition) error {
	defer l.lock(p)()
	if !l.unused(p) {
		return nil
	}
	return l.o.Store.Trash(p)
}
