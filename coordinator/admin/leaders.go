package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// askers bounds the calls that wait for leaders of partitions at the same time: fewer than a connection between brokers
// serves, so that a topic with too few in-sync replicas does not block other calls.
const askers = 32

type leaders struct {
	directory directory
	caller    calls.Caller
	catalog   *catalog.Catalog
	slots     chan struct{} // one for each call in progress
}

// onAll carries out an operation at the leader of every partition from number first on, including the new partitions of
// a growing topic.
func (l *leaders) onAll(ctx context.Context, t metadata.TopicState, first uint16, op calls.QueueOp) error {
	op.Topic = t.ID
	return l.onEach(t.ID, numbersOf(t)[first:], func(node ident.Node, numbers []uint16) []uint16 {
		resp, _ := ask(ctx, l, node, calls.ChangeQueues, calls.QueueOps{Op: op, Numbers: numbers})
		return resp.Done
	}, func(n uint16) error {
		op := op
		op.Number = n
		_, err := askLeader(ctx, l, op.Partition, calls.ChangeQueue, op)
		return err
	})
}

// onEach first calls several, concurrently, for each leader of more than one of the partitions; several returns the
// partitions that are done. Then it calls one for each remaining partition.
func (l *leaders) onEach(t ident.TopicID, numbers []uint16, several func(ident.Node, []uint16) (done []uint16), one func(uint16) error) error {
	led := map[ident.Node][]uint16{}
	for _, n := range numbers {
		if leader, ok := l.directory.Leader(ident.Partition{Topic: t, Number: n}); ok {
			led[leader.Node] = append(led[leader.Node], n)
		}
	}
	var mu sync.Mutex
	var done []uint16
	var asked sync.WaitGroup
	for node, numbers := range led {
		if len(numbers) > 1 {
			asked.Go(func() {
				some := several(node, numbers)
				mu.Lock()
				defer mu.Unlock()
				done = append(done, some...)
			})
		}
	}
	asked.Wait()
	left := slices.DeleteFunc(numbers, func(n uint16) bool { return slices.Contains(done, n) })
	errs := make([]error, len(left))
	concurrency.Each(len(left), api.MaxPartitions, func(i int) { errs[i] = one(left[i]) })
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		return partitionErrors(errs)
	}
	return nil
}

// partitionErrors are the errors of partitions of a topic, one for each. Its text is one line, because it is an answer
// to a client.
type partitionErrors []error

func (e partitionErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %s)", e[0], api.Count(len(e)-1, "more partition"))
}

func (e partitionErrors) Unwrap() []error { return e }

// askLeader makes a call to the leader of a partition, as atLeader does.
func askLeader[Req, Resp any](ctx context.Context, l *leaders, p ident.Partition, m calls.Method[Req, Resp], req Req) (resp Resp, err error) {
	err = l.atLeader(ctx, p, func(n ident.Node) (err error) {
		resp, err = ask(ctx, l, n, m, req)
		return err
	})
	return resp, err
}

// askLeaderWithTimeout is askLeader, bounded by operationTimeout.
func askLeaderWithTimeout[Req, Resp any](ctx context.Context, l *leaders, p ident.Partition, m calls.Method[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return askLeader(ctx, l, p, m, req)
}

// AskSettle settles receipts at the leader of their partition, for the gateway.
func (c *Channels) AskSettle(ctx context.Context, req calls.SettleRequest) (calls.SettleReply, error) {
	return askLeader(ctx, c.leaders, req.Partition, calls.Settle, req)
}

// atLeader tries a call at the leader of a partition, and at the next one if the leadership moves, until the call is
// answered or ctx ends.
func (l *leaders) atLeader(ctx context.Context, p ident.Partition, try func(ident.Node) error) error {
	err := outcome.ErrNoLeader
	by := ""
	for {
		changed := l.catalog.Changed()
		if leader, ok := l.directory.Leader(p); ok {
			by = fmt.Sprintf(" led by %s", leader.Node)
			err = try(leader.Node)
			if errors.Is(err, context.DeadlineExceeded) { // the leader's, or ours
				return fmt.Errorf("%w: partition %s%s: %w", outcome.ErrUnavailable, p, by, err)
			}
			if err == nil || !retryable(err) {
				return err
			}
		}
		if !concurrency.SleepUntil(ctx, changed, txn.Retry) {
			return fmt.Errorf("%w: partition %s%s: %w", outcome.ErrUnavailable, p, by, err)
		}
	}
}

// ask makes a call once a slot is free.
func ask[Req, Resp any](ctx context.Context, l *leaders, n ident.Node, m calls.Method[Req, Resp], req Req) (resp Resp, err error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return resp, fmt.Errorf("%w: ask %s: %w", outcome.ErrUnavailable, n, ctx.Err())
	}
	defer func() { <-l.slots }()
	return m.Ask(ctx, l.caller, n, req)
}

// retryable reports whether a retry may succeed, at another leader or later at the same one.
func retryable(err error) bool {
	if errors.Is(err, outcome.ErrInvalid) {
		return false
	}
	c := rpc.ClassOf(err)
	return c == outcome.ClassRetryHere || c == outcome.ClassRetryElsewhere || c == outcome.ClassLeaveISR || errors.Is(err, rpc.ErrBroken)
}
