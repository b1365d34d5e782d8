package query

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Trash lists the deleted topics that can be undeleted, the one that was deleted first first. The
// messages and bytes are those of the partitions whose leaders answer within 300 ms.
func (d *Directory) Trash() []api.TrashedTopic {
	list := d.o.Catalog.Trash()
	if len(list) == 0 {
		return nil
	}
	reported, clock := d.collectEnds(), d.o.Catalog.ClockMS()
	out := make([]api.TrashedTopic, len(list))
	for i, t := range list {
		x := api.TrashedTopic{
			Topic: t.Name, ID: t.Topic.ID, DeletedAtMS: t.DeletedAtMS, By: t.By, Partitions: t.Topic.Partitions,
			Channels: len(d.o.Catalog.Channels(t.Topic.ID)), Purging: t.Purging, RemainingMS: t.GraceMS,
		}
		if t.SeenMS != 0 {
			x.RemainingMS = min(max(t.GraceMS-(clock-t.SeenMS), 0), t.GraceMS)
		}
		x.UntilMS = time.Now().UnixMilli() + x.RemainingMS
		for n := range t.Topic.Span() {
			p := ident.Partition{Topic: t.Topic.ID, Number: uint16(n)}
			end, answered := reported.ends[p]
			start := reported.starts[p]
			x.Incomplete = x.Incomplete || !answered
			x.Messages += int64(end.CommittedSequence - start.StartSequence)
			x.Bytes += int64(end.CommittedOffset - start.StartOffset)
		}
		out[i] = x
	}
	return out
}
