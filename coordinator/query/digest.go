package query

import (
	"errors"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

const (
	digestBatches = 10_000  // in one answer
	digestBytes   = 4 << 20 // how much of the log is read at once
)

// Digest reads the checksums of a replica's batches (api.Inspector). Errors wrap outcome.ErrTopicNotFound.
func (i *Inspector) Digest(req api.DigestRequest) (api.Digest, error) {
	p, _ := i.replicaOf(req.Topic, req.Partition)
	if p == nil {
		return api.Digest{}, outcome.ErrTopicNotFound
	}
	v := p.View()
	d := api.Digest{
		Node: i.o.Self.Name, Store: p.Store().StoreID(), Role: v.Role.String(), Epoch: v.Epoch,
		Start: int64(p.Start().Offset), Committed: int64(v.Committed.Offset), End: int64(v.End.Offset),
		CommittedSequence: v.Committed.Sequence, EndSequence: v.End.Sequence,
		Batches: []api.BatchDigest{},
	}
	d.Next = max(req.From, d.Start)
	for d.Next < d.Committed && len(d.Batches) < digestBatches {
		batches, err := p.Store().ReadDisk(ident.Offset(d.Next), digestBytes)
		if start := int64(p.Start().Offset); errors.Is(err, store.ErrTrimmed) && start > d.Next { // trimmed since
			d.Start, d.Next, d.Batches = start, start, d.Batches[:0]
			continue
		}
		if err != nil || !addBatches(&d, batches) {
			return d, err
		}
	}
	return d, nil
}

// addBatches adds batches up to the committed end; false if no batch was added.
func addBatches(d *api.Digest, batches []queue.Batch) (some bool) {
	for _, x := range batches {
		if int64(x.End.Offset) > d.Committed || len(d.Batches) >= digestBatches {
			return some
		}
		some = true
		d.Batches = append(d.Batches, api.BatchDigest{
			Offset: int64(x.At.Offset), Bytes: int64(len(x.Bytes)), Epoch: uint64(x.Epoch), CRC: x.CRC,
		})
		d.Next = int64(x.End.Offset)
	}
	return some
}
