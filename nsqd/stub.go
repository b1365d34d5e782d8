package nsqd

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

type flight struct{}

// Partition is all channels of one partition on this broker.
type Partition struct{}

// Channel is a cursor on the shared log.
type Channel struct{}

func NewPartition(topic string, id ident.Partition, log Log, rep Replicator, o Options) *Partition {
	panic("soon")
}
func (p *Partition) Topic() string                     { panic("soon") }
func (p *Partition) ID() ident.Partition               { panic("soon") }
func (p *Partition) Lead(epoch ident.Epoch)            { panic("soon") }
func (p *Partition) Unlead()                           { panic("soon") }
func (p *Partition) Advance(committed ident.Position)  { panic("soon") }
func (p *Partition) Extend(untilNS int64)              { panic("soon") }
func (p *Partition) Completed(ticket uint64, ok bool)  { panic("soon") }
func (p *Partition) Dirty() bool                       { panic("soon") }
func (p *Partition) Due() int64                        { panic("soon") }
func (p *Partition) Flush()                            { panic("soon") }
func (p *Partition) Expire(nowNS int64) (nextNS int64) { panic("soon") }
func (p *Partition) Snapshot() []byte                  { panic("soon") }
func (p *Partition) Apply(delta []byte)                { panic("soon") }
func (p *Partition) Replace(full []byte)               { panic("soon") }
func (p *Partition) LowWater() ident.Sequence          { panic("soon") }
func (p *Partition) CreateChannel(ctx context.Context, name string, o ChannelOptions) (*Channel, error) {
	panic("soon")
}
func (p *Partition) DeleteChannel(ctx context.Context, name string) error  { panic("soon") }
func (p *Partition) EmptyChannel(ctx context.Context, name string) error   { panic("soon") }
func (p *Partition) PauseChannel(ctx context.Context, name string) error   { panic("soon") }
func (p *Partition) UnpauseChannel(ctx context.Context, name string) error { panic("soon") }
func (p *Partition) SeekChannel(ctx context.Context, name string, to ident.Sequence) error {
	panic("soon")
}
func (p *Partition) CancelDeferred(ctx context.Context, channel string, seqs []ident.Sequence) error {
	panic("soon")
}
func (p *Partition) PauseTopic(ctx context.Context) error   { panic("soon") }
func (p *Partition) UnpauseTopic(ctx context.Context) error { panic("soon") }
func (p *Partition) EmptyTopic(ctx context.Context) error   { panic("soon") }
func (p *Partition) Channel(name string) (*Channel, bool)   { panic("soon") }
func (p *Partition) Channels() []string                     { panic("soon") }

// Stats describes the partition as a topic, with the channel named (all if
// empty) and, if wanted, its clients.
func (p *Partition) Stats(channel string, clients bool) edge.TopicStats { panic("soon") }

func (c *Channel) Attach(s *Subscriber) error         { panic("soon") }
func (c *Channel) Detach(s *Subscriber, requeue bool) { panic("soon") }
func (c *Channel) InFlight(s *Subscriber) int         { panic("soon") }
func (c *Channel) Err(s *Subscriber) error            { panic("soon") }
func (c *Channel) Pull(s *Subscriber, credit int, dst []edge.Delivery) []edge.Delivery {
	panic("soon")
}
func (c *Channel) Finish(s *Subscriber, seq ident.Sequence, in ident.Epoch) error { panic("soon") }
func (c *Channel) Requeue(s *Subscriber, seq ident.Sequence, delayMS int64) error { panic("soon") }
func (c *Channel) Touch(s *Subscriber, seq ident.Sequence) error                  { panic("soon") }

// Held is a delivery that a relay still holds after a change of leader.
type Held struct {
	Sequence ident.Sequence
	Attempts uint16
}

// Reclaim takes deliveries of an earlier epoch into flight again, without
// delivering them; it returns those that are not to be had.
func (c *Channel) Reclaim(s *Subscriber, held []Held) (refused []ident.Sequence) { panic("soon") }

// TakenBack drains the sequences that a relayed subscriber lost by timeout or emptying.
func (c *Channel) TakenBack(s *Subscriber, dst []ident.Sequence) []ident.Sequence { panic("soon") }

// Deferred is one delayed message.
type Deferred struct {
	ID         edge.MessageID
	Sequence   ident.Sequence
	DeadlineNS int64
	Attempts   uint16
}

func (c *Channel) Deferred(max int) []Deferred { panic("soon") }
