package catalog

import (
	"cmp"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// LimitsOf are the limits in a topic's key, as the views of the topic show them.
func LimitsOf(t meta.TopicState) edge.EffectiveLimits {
	o := &t.Options
	return edge.EffectiveLimits{
		RetentionMS: o.RetentionMS, RetentionBytes: o.RetentionBytes, MaxBytes: o.MaxBytes, TTLMS: o.TTLMS,
		MaxPutRate: o.MaxPutRate, MaxPutBytesRate: o.MaxPutBytesRate,
		DedupeWindowMS: t.DedupeWindow(), Dedupe: cmp.Or(o.Dedupe, edge.DedupeID), IdleMS: o.IdleMS, ChannelIdleMS: o.ChannelIdleMS,
	}
}
