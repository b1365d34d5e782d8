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
// serves, so that a topic without its minimum does not block other calls.
const askers = 32

// leaders asks the leaders of partitions.
type leaders struct {
	directory Directory
	caller    calls.Caller
	catalog   *catalog.Catalog
	slots     chan struct{} // one for each call in progress
}

// onAll carries out an operation at the leader of every partition from first on, the new ones of a topic that grows
// included. Each leader is asked once for all of its partitions, then for each partition that is not done.
func (l *leaders) onAll(ctx context.Context, t metadata.TopicState, first uint16, op calls.QueueOp) error {
	op.Topic = t.ID
	left := numbersOf(t)[first:]
	var mu sync.Mutex
	var done []uint16
	l.together(t.ID, left, func(node ident.Node, numbers []uint16) {
		resp, _ := ask(ctx, l, node, calls.ChangeQueues, calls.QueueOps{Op: op, Numbers: numbers}) // then they are asked one by one
		mu.Lock()
		defer mu.Unlock()
		done = append(done, resp.Done...)
	})
	left = slices.DeleteFunc(left, func(n uint16) bool { return slices.Contains(done, n) })
	errs := make([]error, len(left))
	concurrency.Each(len(left), api.MaxPartitions, func(i int) {
		op := op
		op.Number = left[i]
		_, errs[i] = askLeader(ctx, l, op.Partition, calls.ChangeQueue, op)
	})
	return joined(errs)
}

// partitionErrors are the errors of partitions of a topic, one for each. Its text is one line, because it is an answer
// to a client.
type partitionErrors []error

// joined returns the errors that are not nil; nil if there are none.
func joined(errs []error) error {
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > 0 {
		return partitionErrors(failed)
	}
	return nil
}

func (e partitionErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %s)", e[0], api.Count(len(e)-1, "more partition"))
}

func (e partitionErrors) Unwrap() []error { return e }

// together calls do, concurrently, for each leader of several of the partitions.
func (l *leaders) together(t ident.TopicID, numbers []uint16, do func(node ident.Node, numbers []uint16)) {
	led := map[ident.Node][]uint16{}
	for _, n := range numbers {
		if leader, ok := l.directory.Leader(ident.Partition{Topic: t, Number: n}); ok {
			led[leader.Node] = append(led[leader.Node], n)
		}
	}
	var asked sync.WaitGroup
	for node, numbers := range led {
		if len(numbers) > 1 {
			asked.Go(func() { do(node, numbers) })
		}
	}
	asked.Wait()
}

// askLeader makes a call to the leader of a partition, as atLeader does.
func askLeader[Req, Resp any](ctx context.Context, l *leaders, p ident.Partition, m calls.Method[Req, Resp], req Req) (resp Resp, err error) {
	err = l.atLeader(ctx, p, func(n ident.Node) (err error) {
		resp, err = ask(ctx, l, n, m, req)
		return err
	})
	return resp, err
}

// askSoon is askLeader within operationTimeout.
func askSoon[Req, Resp any](ctx context.Context, l *leaders, p ident.Partition, m calls.Method[Req, Resp], req Req) (Resp, error) {
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
	err := api.ErrNoLeader
	by := ""
	for {
		changed := l.catalog.Changed()
		if leader, ok := l.directory.Leader(p); ok {
			by = fmt.Sprintf(" led by %s", leader.Node)
			err = try(leader.Node)
			if errors.Is(err, context.DeadlineExceeded) { // the leader's, or ours
				return fmt.Errorf("%w: partition %s%s: %w", api.ErrUnavailable, p, by, err)
			}
			if err == nil || !retryable(err) {
				return err
			}
		}
		if !concurrency.SleepUntil(ctx, changed, txn.Retry) {
			return fmt.Errorf("%w: partition %s%s: %w", api.ErrUnavailable, p, by, err)
		}
	}
}

// ask makes a call once a slot is free.
func ask[Req, Resp any](ctx context.Context, l *leaders, n ident.Node, m calls.Method[Req, Resp], req Req) (resp Resp, err error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return resp, fmt.Errorf("%w: ask %s: %w", api.ErrUnavailable, n, ctx.Err())
	}
	defer func() { <-l.slots }()
	return m.Ask(ctx, l.caller, n, req)
}

// retryable reports whether another leader, or the same one later, may do it.
func retryable(err error) bool {
	if errors.Is(err, api.ErrInvalid) {
		return false
	}
	c := rpc.ClassOf(err)
	return c == outcome.ClassRetryHere || c == outcome.ClassRetryElsewhere || c == outcome.ClassLeaveISR || errors.Is(err, rpc.ErrBroken)
}
