package store

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Identified finds the batches whose messages have identities: those from fromMS on, a time
// in the log, and of them the newest with about `most` messages. lost: there are older ones from that
// time on, or some could not be read. The replica's machine must not run yet.
func (p *Partition) Identified(fromMS int64, most int) (puts []queue.IdentifiedPut, lost bool) {
	from := p.Start().Offset
	if r, ok := p.index.AtTime(fromMS); ok {
		from = max(from, r.Offset)
	}
	var records []commitlog.Record
	lost = !p.index.Walk(from, func(r commitlog.Record) {
		if r.Identified {
			records = append(records, r)
		}
	})
	first, messages := len(records), 0
	for first > 0 && messages < most {
		first--
		messages += int(records[first].Count)
	}
	lost = lost || first > 0
	at := ident.Offset(-1) // read so far
	for _, r := range records[first:] {
		if r.Offset < at {
			continue
		}
		batches, err := p.ReadAt(r.Offset, writtenBytes)
		if err != nil || len(batches) == 0 {
			lost = true
			continue
		}
		for i := range batches {
			if batches[i].Identified {
				puts = append(puts, identifiedPut(&batches[i]))
			}
			at = batches[i].End.Offset
		}
	}
	return puts, lost
}

func identifiedPut(b *queue.Batch) queue.IdentifiedPut {
	p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset}
	b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
	return p
}
