package engine

import (
	"errors"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

const (
	// ReadBytes is the most that one read asks the store for.
	ReadBytes = 256 << 10
	// largeBatch is the size in bytes from which a batch is not kept in memory for the sake of a few messages.
	largeBatch = 64 << 10
)

// Committed is the end of the log as the channels read it (nsqd.Log).
func (p *Partition) Committed() ident.Position { return p.view.Load().Committed }

// Start is the first position that the store still holds (nsqd.Log).
func (p *Partition) Start() ident.Position { return p.store.Start() }

// Read appends messages from a sequence on, never beyond the committed end (nsqd.Log).
func (p *Partition) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	return p.readBelow(p.Committed(), from, max, dst)
}

// ReadUncommitted is Read up to the end of the replica's log, for operators only: uncommitted batches may be rolled
// back.
func (p *Partition) ReadUncommitted(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	return p.readBelow(p.view.Load().End, from, max, dst)
}

func (p *Partition) readBelow(end ident.Position, from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	if from >= end.Sequence || max <= 0 {
		return dst, nil
	}
	max = min(max, int(end.Sequence-from))
	average := int(end.Offset/ident.Offset(end.Sequence)) + 1
	batches, err := p.store.ReadSequence(from, min(ReadBytes, 2*max*average)) // at least one batch
	limit := len(dst) + max
	for i := range batches {
		if batches[i].End.Offset > end.Offset || len(dst) >= limit {
			break
		}
		had := len(dst)
		dst = batches[i].Messages(from, limit-had, dst)
		detach(dst[had:], &batches[i])
	}
	if len(dst) > limit-max {
		return dst, nil
	}
	return dst, err
}

// ReadRelocated finds a message in a relocation batch (nsqd.Log).
func (p *Partition) ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error) {
	batches, err := p.store.ReadAt(at, 1)
	if errors.Is(err, store.ErrTrimmed) {
		return queue.Message{}, false, nil
	}
	if len(batches) == 0 || batches[0].At.Offset != at || batches[0].End.Offset > p.Committed().Offset {
		return queue.Message{}, false, err
	}
	for _, m := range batches[0].Relocated(nil) {
		if m.Seq == seq {
			one := []queue.Message{m}
			detach(one, &batches[0])
			return one[0], true, nil
		}
	}
	return queue.Message{}, false, nil
}

// OffsetOf is the offset of a message's batch, or the start of the log if that is unknown, so that retention removes
// nothing.
func (p *Partition) OffsetOf(seq ident.Sequence) ident.Offset {
	if end := p.Committed(); seq >= end.Sequence {
		return end.Offset
	}
	if r, ok := p.store.Index().AtSequence(seq); ok {
		return r.Offset
	}
	return p.store.Start().Offset
}

// detach copies a few messages out of a large batch. A reference to one of them would keep
// the whole batch in memory, and hundreds of messages may be redelivered, each read separately.
func detach(few []queue.Message, b *queue.Batch) {
	size := 0
	for i := range few {
		size += few[i].Size()
	}
	if len(b.Bytes) < largeBatch || size > len(b.Bytes)/4 {
		return
	}
	room := make([]byte, 0, size)
	own := func(x []byte) []byte {
		at := len(room)
		room = append(room, x...)
		return room[at:len(room):len(room)]
	}
	for i := range few {
		few[i].Header, few[i].Body = own(few[i].Header), own(few[i].Body)
	}
}
