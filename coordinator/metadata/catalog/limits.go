package catalog

import (
	"cmp"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// LimitsOf are the limits in a topic's key, as the views of the topic show them.
func LimitsOf(t metadata.TopicState) api.EffectiveLimits {
	o := &t.Options
	return api.EffectiveLimits{
		RetentionMS: o.RetentionMS, RetentionBytes: o.RetentionBytes, MaxBytes: o.MaxBytes, TTLMS: o.TTLMS,
		MaxPutRate: o.MaxPutRate, MaxPutBytesRate: o.MaxPutBytesRate,
		DedupeWindowMS: t.DedupeWindow(), Dedupe: cmp.Or(o.Dedupe, api.DedupeID), IdleMS: o.IdleMS, ChannelIdleMS: o.ChannelIdleMS,
	}
}
