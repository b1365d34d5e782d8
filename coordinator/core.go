package coordinator

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// core implements gateway.Core. Puts go straight to the engine (Propose, Flush).
type core struct {
	*Broker
	*engine.Engine
	*admin.Channels // nil until makeComponents has made them
}

// Topic finds a topic in the watched metadata.
func (c *core) Topic(name string) (gateway.Topic, bool) {
	t, ok := c.catalog.Topic(name)
	return gateway.Topic{
		Name: name, ID: t.ID, Partitions: t.Partitions, Ordered: t.Ordered, Options: t.Options,
	}, ok
}

// EnsureTopic finds a topic, or creates it with the defaults if that is allowed.
func (c *core) EnsureTopic(ctx context.Context, name string) error {
	return c.Admin.Topics.Ensure(ctx, name)
}

// Leader is the live leader of a partition.
func (c *core) Leader(p ident.Partition) (gateway.Leadership, bool) {
	return c.directory.Leader(p)
}

// Leads reports whether this broker serves the partition now.
func (c *core) Leads(id ident.Partition) bool {
	p, ok := c.engine.Partition(id)
	return ok && p.Leading()
}

// Queue returns the channels of a replica on this broker.
func (c *core) Queue(id ident.Partition) (*nsqd.Partition, bool) {
	p, ok := c.engine.Partition(id)
	if !ok {
		return nil, false
	}
	return p.Queue(), true
}

// Filter is the filter in a channel's key.
func (c *core) Filter(t ident.TopicID, channel string) string {
	return c.catalog.Channels(t)[channel].Policy.Filter
}
