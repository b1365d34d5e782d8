package coordinator

import (
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The methods of this file let tests use a broker as its gateway does (core).

func (b *Broker) core() *core { return &core{b, b.engine, b.directory, b.Admin.Channels} }

// Topic finds a topic.
func (b *Broker) Topic(name string) (metadata.TopicState, bool) { return b.core().Topic(name) }

// Paused reports whether the catalog has a topic as paused.
func (b *Broker) Paused(topic string) bool { t, _ := b.catalog.Topic(topic); return t.Paused }

// Leads reports whether the broker serves a partition.
func (b *Broker) Leads(p ident.Partition) bool { return b.core().Leads(p) }

// Queue is the channels of a replica.
func (b *Broker) Queue(p ident.Partition) (*nsqd.Partition, bool) { return b.core().Queue(p) }

// ProposePut submits a put.
func (b *Broker) ProposePut(p ident.Partition, d queue.Draft, c outcome.Completer) {
	b.engine.Propose(p, d, c)
}

// FlushPuts writes the data that ProposePut has queued.
func (b *Broker) FlushPuts() { b.engine.Flush() }
