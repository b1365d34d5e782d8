package replica

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// labDisk is a store's content.
type labDisk struct {
	batches   []queue.Batch
	start     ident.Position
	startCRC  uint32
	epoch     ident.Epoch
	committed ident.Position
	states    []queue.StateVersion
	mark      queue.IdentityMark

	unreadable bool // the batches with identities cannot be read
}

func (d labDisk) clone() labDisk {
	d.batches, d.states = slices.Clone(d.batches), slices.Clone(d.states)
	return d
}

func (d *labDisk) end() ident.Position {
	if n := len(d.batches); n > 0 {
		return d.batches[n-1].End
	}
	return d.start
}

// apply carries one journal record out. A record that does not continue the log is a
// bug of the machine.
func (d *labDisk) apply(w queue.Write) {
	switch w.Kind {
	case queue.WriteEpoch, queue.WriteReset:
		if w.Epoch < d.epoch {
			panic(fmt.Sprintf("promise of epoch %d after %d", w.Epoch, d.epoch))
		}
		d.epoch = w.Epoch
	case queue.WriteRestart:
		d.batches, d.start, d.startCRC, d.committed, d.mark = nil, w.At, w.PrevCRC, w.At, queue.IdentityMark{}
	case queue.WriteCommitted:
		d.committed = w.At
	case queue.WriteIdentities:
		d.mark = w.Identities
	case queue.WriteState:
		d.states = append(d.states, w.State)
	}
	if w.Kind == queue.WriteTruncate || w.Kind == queue.WriteReset {
		d.batches = slices.DeleteFunc(d.batches, func(b queue.Batch) bool { return b.At.Offset >= w.At.Offset })
		d.mark = d.mark.Cut(w.At.Offset)
	}
	for _, b := range w.Batches {
		if b.At != d.end() {
			panic(fmt.Sprintf("a batch for %v in a log that ends at %v", b.At, d.end()))
		}
		d.batches = append(d.batches, b)
	}
}

// restored is the report of a store that is opened.
func (d *labDisk) restored(ix *commitlog.Log) queue.Restored {
	r := queue.Restored{Identities: d.mark, IdentitiesLost: d.unreadable, Epoch: d.epoch, End: d.end(), LastCRC: d.startCRC, KnownCommitted: least(d.committed, d.end())}
	for _, b := range d.batches {
		ix.Append(commitlog.Record{
			Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
			Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: b.Time / 1e6,
			Identified: b.Identified,
		})
		if b.Identified && !d.unreadable && d.mark.End > 0 && b.At.Offset >= d.mark.From {
			p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
			b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
			r.Identified = append(r.Identified, p)
		}
		r.LastCRC, r.LastTimeNS = b.CRC, b.Time
		if !b.Request.IsZero() {
			r.Recent = append(r.Recent, queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End})
		}
	}
	r.Epochs = ix.Epochs()
	if n := len(d.states); n > 0 {
		r.State = queue.StateVersion{Epoch: d.states[n-1].Epoch, N: d.states[n-1].N}
	}
	return r
}
