package model

import (
	"encoding/binary"
	"slices"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// disk is what a store holds durably: the writes of whole submissions, in
// order. Its batches are never changed in place.
type disk struct {
	store     ident.StoreID
	epoch     ident.Epoch
	batches   []queue.Batch
	committed ident.Position
	confirm   queue.StateVersion // version only
	register  register
	mark      queue.IdentityMark
}

// submission is one Effects' writes on their way to the disk.
type submission struct {
	token  uint64
	writes []queue.Write
}

func endOf(bs []queue.Batch) ident.Position {
	if n := len(bs); n > 0 {
		return bs[n-1].End
	}
	return ident.Position{}
}

// cut gives the batches that end at or below o.
func cut(bs []queue.Batch, o ident.Offset) []queue.Batch {
	n := len(bs)
	for n > 0 && bs[n-1].End.Offset > o {
		n--
	}
	return bs[:n:n]
}

// written gives the log after one write.
func written(bs []queue.Batch, w *queue.Write) []queue.Batch {
	switch w.Kind {
	case queue.WriteTruncate, queue.WriteReset:
		bs = cut(bs, w.At.Offset)
	case queue.WriteRestart:
		panic("model: nothing is ever retained away")
	}
	return append(bs[:len(bs):len(bs)], w.Batches...)
}

// keep makes a submission durable.
func (d *disk) keep(s submission) {
	for i := range s.writes {
		w := &s.writes[i]
		d.batches = written(d.batches, w)
		if w.Kind == queue.WriteTruncate || w.Kind == queue.WriteReset {
			d.mark = d.mark.Cut(w.At.Offset)
		}
		switch w.Kind {
		case queue.WriteEpoch, queue.WriteReset:
			d.epoch = max(d.epoch, w.Epoch)
		case queue.WriteCommitted:
			d.committed = w.At
		case queue.WriteIdentities:
			d.mark = w.Identities
		case queue.WriteState:
			d.confirm = queue.StateVersion{Epoch: w.State.Epoch, N: w.State.N}
			if w.State.Full {
				d.register.Replace(w.State.Delta)
			} else {
				d.register.Apply(w.State.Delta)
			}
		}
	}
	if end := endOf(d.batches); d.committed.Offset > end.Offset {
		d.committed = end
	}
}

// restored is the state of a store for a machine that begins.
func (d *disk) restored() queue.Restored {
	r := queue.Restored{
		Epoch: d.epoch, End: endOf(d.batches), KnownCommitted: d.committed, State: d.confirm, Identities: d.mark,
	}
	for i := range d.batches {
		b := &d.batches[i]
		r.LastCRC = b.CRC
		if n := len(r.Epochs); n > 0 && r.Epochs[n-1].Epoch == b.Epoch {
			r.Epochs[n-1].End = b.End
		} else {
			r.Epochs = append(r.Epochs, commitlog.EpochEnd{Epoch: b.Epoch, Start: b.At, End: b.End})
		}
		if b.Identified && d.mark.End > 0 && b.At.Offset >= d.mark.From {
			p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
			b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
			r.Identified = append(r.Identified, p)
		}
		if !b.Request.IsZero() {
			r.Recent = append(r.Recent, queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End})
		}
	}
	return r
}

// index is a commit log in memory.
type index struct{ records []commitlog.Record }

func newIndex(bs []queue.Batch) *index {
	x := &index{}
	for i := range bs {
		b := &bs[i]
		x.records = append(x.records, commitlog.Record{
			Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset, Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC,
		})
	}
	return x
}

func (x *index) clone() *index                { return &index{records: slices.Clone(x.records)} }
func (x *index) Append(r ...commitlog.Record) { x.records = append(x.records, r...) }
func (x *index) Restart(ident.Position)       { panic("model: nothing is ever retained away") }
func (x *index) Start() ident.Position        { return ident.Position{} }
func (x *index) Truncate(end ident.Offset) {
	n := len(x.records)
	for n > 0 && x.records[n-1].Offset >= end {
		n--
	}
	x.records = x.records[:n]
}

// AtOffset finds the record whose batch covers byte o.
func (x *index) AtOffset(o ident.Offset) (commitlog.Record, bool) {
	for i := range x.records {
		if r := &x.records[i]; r.Offset <= o && o < r.End().Offset {
			return *r, true
		}
	}
	return commitlog.Record{}, false
}

// register is the channels' state: one bit for each change.
type register struct{ bits byte }

func (r *register) Snapshot() []byte    { return []byte{r.bits} }
func (r *register) Apply(delta []byte)  { r.bits |= delta[0] }
func (r *register) Replace(full []byte) { r.bits = full[0] }
func (r *register) Unlead()             {} // a change is a step of its own here

// canon writes canonical forms.
type canon []byte

func (c *canon) num(values ...uint64) {
	for _, v := range values {
		*c = binary.AppendUvarint(*c, v)
	}
}

// batches names batches by the checksums of their headers: such a checksum covers the
// whole chain before it.
func (c *canon) batches(bs []queue.Batch) {
	c.num(uint64(len(bs)))
	for i := range bs {
		c.num(uint64(bs[i].CRC), uint64(bs[i].Epoch), uint64(bs[i].At.Offset))
	}
}

func (c *canon) confirm(x queue.StateVersion) {
	full := uint64(0)
	if x.Full {
		full = 1
	}
	c.num(uint64(x.Epoch), x.N, full, uint64(len(x.Delta)))
	*c = append(*c, x.Delta...)
}

func (c *canon) mark(m queue.IdentityMark) {
	c.num(uint64(m.From), uint64(m.End), uint64(m.ClockMS), uint64(m.Forgotten))
}

func (c *canon) disk(d *disk) {
	c.num(uint64(d.store), uint64(d.epoch), uint64(d.committed.Offset), uint64(d.register.bits))
	c.mark(d.mark)
	c.batches(d.batches)
	c.confirm(d.confirm)
}

func (c *canon) submission(s submission) {
	c.num(uint64(len(s.writes)))
	for i := range s.writes {
		w := &s.writes[i]
		c.num(uint64(w.Kind), uint64(w.Epoch), uint64(w.At.Offset))
		c.mark(w.Identities)
		c.batches(w.Batches)
		c.confirm(w.State)
	}
}
