package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// askers is how many calls at once may wait for leaders of partitions: fewer than a
// connection between brokers serves, so that a topic without its minimum does not
// keep other calls from it.
const askers = 32

// leaders asks the leaders of partitions.
type leaders struct {
	directory Directory
	caller    calls.Caller
	catalog   *catalog.Catalog
	slots     chan struct{} // a place for each call that waits
}

// onAll carries out an operation at the leader of every partition, the new ones of a topic that
// grows included.
func (l *leaders) onAll(ctx context.Context, t metadata.TopicState, op calls.QueueOp) error {
	return l.onThose(ctx, t, 0, op)
}

// onThose carries out an operation at the leaders of the partitions from first on. Each leader
// is asked once for all of its partitions. Then it is asked for each partition that is not done.
func (l *leaders) onThose(ctx context.Context, t metadata.TopicState, first int, op calls.QueueOp) error {
	op.Topic = t.ID
	left := l.askTogether(ctx, t, first, op)
	results := make(chan error, len(left))
	for _, n := range left {
		op := op
		op.Number = n
		go func() { results <- l.on(ctx, op) }()
	}
	var failed partitionErrors
	for range left {
		if err := <-results; err != nil {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	return failed
}

// partitionErrors are the errors of partitions of a topic, one for each.
// Its text is one line, for it is an answer to a client.
type partitionErrors []error

func (e partitionErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %d partitions more)", e[0], len(e)-1)
}

func (e partitionErrors) Unwrap() []error { return e }

// askTogether asks each leader of several partitions for all of them in one call, and
// gives the partitions that are not known to be done.
func (l *leaders) askTogether(ctx context.Context, t metadata.TopicState, first int, op calls.QueueOp) (left []uint16) {
	var numbers []uint16
	for n := first; n < t.Span(); n++ {
		numbers = append(numbers, uint16(n))
	}
	led := l.byLeader(t.ID, numbers)
	results := make(chan []uint16, len(led))
	for node, numbers := range led {
		go func() {
			if node == "" || len(numbers) == 1 {
				results <- numbers
				return
			}
			resp, _ := ask(ctx, l, node, calls.ChangeQueues, calls.QueueOps{Op: op, Numbers: numbers}) // they are asked one by one
			results <- slices.DeleteFunc(numbers, func(n uint16) bool { return slices.Contains(resp.Done, n) })
		}()
	}
	for range led {
		left = append(left, <-results...)
	}
	return left
}

// byLeader groups partitions by their leaders. Those without a leader are under "".
func (l *leaders) byLeader(t ident.TopicID, numbers []uint16) map[ident.Node][]uint16 {
	led := map[ident.Node][]uint16{}
	for _, n := range numbers {
		leader, _ := l.directory.Leader(ident.Partition{Topic: t, Number: n})
		led[leader.Node] = append(led[leader.Node], n)
	}
	return led
}

// on carries an operation out at the leader of its partition.
func (l *leaders) on(ctx context.Context, op calls.QueueOp) error {
	_, err := askLeader(ctx, l, op.Partition, calls.ChangeQueue, op)
	return err
}

// askLeader makes a call to the leader of a partition, as atLeader does.
func askLeader[Req, Resp any](ctx context.Context, l *leaders, p ident.Partition, m calls.Method[Req, Resp], req Req) (resp Resp, err error) {
	err = l.atLeader(ctx, p, func(n ident.Node) (err error) {
		resp, err = ask(ctx, l, n, m, req)
		return err
	})
	return resp, err
}

// atLeader tries a call at the leader of a partition, and at the next one if the leadership moves,
// until the call is answered or ctx ends.
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

// ask makes a call with a place among the askers.
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
