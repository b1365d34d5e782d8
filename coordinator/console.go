package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// The methods of this file are the broker as the console sees it (console.Cluster).

// View is the cluster by this broker's copy of the metadata: it asks no other broker.
func (b *Broker) View() api.ClusterView { return b.directory.View() }

// Members is View without the topics.
func (b *Broker) Members() api.ClusterView { return b.directory.Members() }

// TopicView is one topic of View.
func (b *Broker) TopicView(name string) (api.TopicView, bool) { return b.directory.TopicView(name) }

// Samples are the topics of which this broker leads partitions.
func (b *Broker) Samples(topic, channel string) []api.TopicSample {
	return b.inspector.Samples(topic, channel)
}

// Replica is the replica of a partition here.
func (b *Broker) Replica(topic string, partition uint16) (api.ReplicaSample, bool) {
	return b.inspector.Replica(topic, partition)
}

// Disk is the space of the data path.
func (b *Broker) Disk() (s api.DiskSample) {
	if free, err := b.store.FreeBytes(); err == nil {
		s.FreeBytes, s.FreeKnown = int64(free), true
	}
	for _, p := range b.store.Partitions() {
		s.DataBytes += p.DiskBytes()
	}
	return s
}

// Faults are this broker's own.
func (b *Broker) Faults() api.FaultSample {
	f := api.FaultSample{Corrupt: b.rpc.Counters().Corrupt, JournalBusy: b.store.Busy(), LoopBusy: slices.Max(b.engine.Busy())}
	f.IdleChannels = b.idle.Announced()
	f.HeldPolicies = b.letters.Held(b.engine.Partitions())
	return f
}

// Damage lists the damaged places of the replicas here.
func (b *Broker) Damage() []api.PlacedDamage { return b.directory.OwnDamage() }

// Owed is for how long replicas on each other broker have owed this leader an acknowledgement, the
// longest of its partitions.
func (b *Broker) Owed() map[ident.Node]time.Duration {
	return b.inspector.Replication(b.peers.Up).Owes
}

// AskConsole puts a question of the console to a broker.
func (b *Broker) AskConsole(ctx context.Context, n ident.Node, question []byte) ([]byte, error) {
	r, err := calls.Console.Ask(ctx, b.dispatch, n, calls.ConsoleJSON{JSON: question})
	return r.JSON, err
}

// AnswerConsole sets the function that answers the questions of other brokers' consoles.
func (b *Broker) AnswerConsole(by func(ctx context.Context, question []byte) ([]byte, error)) {
	b.console.Store(&by)
}

func (b *Broker) answerConsole(ctx context.Context, question []byte) ([]byte, error) {
	if by := b.console.Load(); by != nil {
		return (*by)(ctx, question)
	}
	return nil, fmt.Errorf("%w: its console has not started", api.ErrNotReady)
}
