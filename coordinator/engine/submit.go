package engine

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// single is a Completer for one put that a goroutine waits for.
type single chan replica.Completion

// Complete implements Completer; capacity 1, called once.
func (s single) Complete(c replica.Completion) { s <- c }

// PutControl puts a control batch and waits for its fate. false: this broker does not
// lead any more, or there are not enough replicas.
func (e *Engine) PutControl(ctx context.Context, p ident.Partition, d queue.Draft) (committed bool, err error) {
	done := make(single, 1)
	e.Propose(p, d, done)
	e.Flush()
	select {
	case c := <-done:
		return c.Outcome == replica.Committed, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
