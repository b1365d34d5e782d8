package store

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// LoadIdentities adds to r, which Restored has returned, the batches whose messages have identities: those
// from the identity mark on. The replica's machine must not run yet.
func (p *Partition) LoadIdentities(r *queue.Restored) {
	if r.Identities == (queue.IdentityMark{}) {
		return // the log never had any
	}
	var records []commitlog.Record
	whole := p.index.Walk(max(r.Identities.From, p.Start().Offset), func(x commitlog.Record) {
		if x.Identified {
			records = append(records, x)
		}
	})
	r.IdentitiesLost = !whole
	at := ident.Offset(-1) // read so far
	for _, x := range records {
		if x.Offset < at {
			continue
		}
		batches, err := p.ReadAt(x.Offset, writtenBytes)
		if err != nil || len(batches) == 0 {
			r.IdentitiesLost = true
			continue
		}
		for i := range batches {
			if batches[i].Identified {
				r.Identified = append(r.Identified, identifiedPut(&batches[i]))
			}
			at = batches[i].End.Offset
		}
	}
}

// identified reports whether a message of the log may have an identity.
func (p *Partition) identified() bool {
	some := false
	whole := p.index.Walk(p.durable.start.Offset, func(x commitlog.Record) { some = some || x.Identified })
	return some || !whole
}

func identifiedPut(b *queue.Batch) queue.IdentifiedPut {
	p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
	b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
	return p
}
