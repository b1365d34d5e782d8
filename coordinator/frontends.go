package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/query"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Reasons why the broker is not ready.
var (
	errNotRegistered = errors.New("this broker is not registered")
	errIsolated      = errors.New("this broker reaches none of the other brokers that are registered")
)

// directory implements api.Directory.
type directory struct {
	*query.Directory
	*quota.Quotas // Usage, Limits
	b             *Broker
}

func (d directory) TopicSettings(topic string) (api.TopicSettings, bool) {
	return d.b.Admin.Settings(topic)
}

// Ready is nil if the broker is registered, can store messages, and reaches another broker if there is one: otherwise
// it could neither forward puts nor relay.
func (d directory) Ready() error {
	b := d.b
	if b.session.Incarnation() == 0 || b.stopping.Load() {
		return errNotRegistered
	}
	if b.directory.Isolated() {
		return errIsolated
	}
	return b.Inspector.Health()
}

// console implements console.Cluster.
type console struct {
	directory
	*query.Inspector
}

// Faults lists this broker's own faults.
func (c console) Faults() api.FaultSample {
	b := c.b
	return api.FaultSample{
		Corrupt: b.rpc.Counters().Corrupt, JournalBusy: b.store.Busy(), LoopBusy: slices.Max(b.engine.Busy()),
		IdleChannels: b.work.Idle.Announced(), HeldPolicies: b.work.Letters.Held(b.engine.Partitions()),
	}
}

// FollowerLag is how long replicas on each other broker have owed this leader an acknowledgement: the longest of its
// partitions.
func (c console) FollowerLag() map[ident.Node]time.Duration { return c.Replication().LagTime }

// Policy is the policy in a channel's key.
func (c console) Policy(topic, channel string) (api.ChannelPolicy, error) {
	return c.b.Admin.Policy(topic, channel)
}

// AskConsole asks the console of another broker.
func (c console) AskConsole(ctx context.Context, n ident.Node, question []byte) ([]byte, error) {
	r, err := calls.Console.Ask(ctx, c.b.dispatch, n, calls.ConsoleJSON{JSON: question})
	return r.JSON, err
}

// AnswerConsole sets the function that answers the questions of other brokers' consoles.
func (b *Broker) AnswerConsole(by func(ctx context.Context, question []byte) ([]byte, error)) {
	b.answerer.Store(&by)
}

func (b *Broker) answerConsole(ctx context.Context, question []byte) ([]byte, error) {
	if by := b.answerer.Load(); by != nil {
		return (*by)(ctx, question)
	}
	return nil, fmt.Errorf("%w: its console has not started", outcome.ErrNotReady)
}

// Self is this broker's name.
func (b *Broker) Self() ident.Node { return b.self }

// Incarnation is the incarnation of the newest registration, even after that was lost. Request ids contain it, and two
// brokers must never use the same one.
func (b *Broker) Incarnation() ident.Incarnation { return b.session.Newest() }

// Changed is closed at the next change of metadata, leadership or peers.
func (b *Broker) Changed() <-chan struct{} { return b.catalog.Changed() }

// Decommissioned reports whether this broker is decommissioned and has no replica left: if so, its next stop is
// permanent.
func (b *Broker) Decommissioned() bool { return b.catalog.Decommissioned(b.self) }
