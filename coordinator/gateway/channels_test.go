package gateway

import (
	"context"
	"maps"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// sharedLog is the nsqd.Log of every replica.

func (l *sharedLog) Start() ident.Position { return ident.Position{} }

func (l *sharedLog) Committed() ident.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ident.Position{Offset: l.size, Sequence: ident.Sequence(len(l.messages))}
}

func (l *sharedLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	l.mu.Lock()
	hook := l.onRead
	l.onRead = nil
	l.mu.Unlock()
	if hook != nil {
		hook()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := int(from); i < len(l.messages) && max > 0; i, max = i+1, max-1 {
		dst = append(dst, l.messages[i])
	}
	return dst, nil
}

// replicator applies a leader's changes on the other brokers and completes them.
type replicator struct {
	b     *broker
	topic string
	id    ident.Partition
}

func (r replicator) Submit(c nsqd.Change) {
	r.b.loop.post(func() {
		for _, other := range r.b.w.brokers {
			if other != r.b {
				other.queue(r.topic, r.id).Apply(c.Delta)
			}
		}
		if c.Done != nil {
			c.Done.Complete(outcome.Completion{Outcome: outcome.Committed})
		}
	})
}

// queue finds or makes the broker's replica of a partition.
func (b *broker) queue(topic string, p ident.Partition) *nsqd.Partition {
	b.w.mu.Lock()
	log := b.w.logs[p]
	b.w.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[p]
	if q == nil {
		q = nsqd.NewPartition(topic, p, log, replicator{b, topic, p}, nsqd.Options{})
		b.queues[p] = q
	}
	return q
}

func (b *broker) all() map[ident.Partition]*nsqd.Partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.queues)
}

func (b *broker) Queue(p ident.Partition) (*nsqd.Partition, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, ok := b.queues[p]
	return q, ok
}

func (b *broker) unlead(p ident.Partition) {
	if q, ok := b.Queue(p); ok {
		q.Unlead()
	}
}

func (b *broker) serve(topic string, p ident.Partition, epoch ident.Epoch) {
	b.queue(topic, p).Lead(epoch)
}

func (b *broker) advance(p ident.Partition) {
	if q, ok := b.Queue(p); ok {
		q.Advance(b.w.logs[p].Committed())
	}
}

func (b *broker) ChannelMissing(ident.TopicID, string) {}

func (b *broker) Filter(ident.TopicID, string) string { return "" }

func (b *broker) RepositionChannel(ctx context.Context, topic, channel, from string, _ int, ordered bool) error {
	return b.CreateChannel(ctx, topic, channel, from, ordered)
}

func (b *broker) CreateChannel(ctx context.Context, topic, channel, _ string, ordered bool) error {
	t, _ := b.Topic(topic)
	for n := range t.Partitions {
		l, _ := b.Leader(t.Partition(n))
		o := nsqd.ChannelOptions{Origin: nsqd.FromEarliest, Ordered: ordered}
		if _, err := b.w.brokers[l.Node].queue(topic, t.Partition(n)).CreateChannel(ctx, channel, o); err != nil {
			return err
		}
	}
	return nil
}

// ReadRelocated: nothing is ever trimmed here.
func (l *sharedLog) ReadRelocated(ident.Offset, ident.Sequence) (queue.Message, bool, error) {
	return queue.Message{}, false, nil
}
