package gateway

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// putFate is an Answerer for one of several puts.
type putFate chan error

// Answer implements api.Answerer; capacity 1, called once.
func (f putFate) Answer(r api.PutResult) { f <- r.Err }

// PublishAll publishes messages of this broker's own to a topic, to partitions with these
// numbers (nil: to any), and waits for the fate of each: at the latest until the put
// limit, or Close.
func (g *Gateway) PublishAll(ctx context.Context, topic string, numbers []int, messages []queue.Message) []error {
	errs := make([]error, len(messages))
	fates := make([]putFate, len(messages))
	for i, m := range messages {
		draft := queue.NewDraft(m.Size())
		errs[i] = draft.AddMessage(m)
		if errs[i] == nil {
			errs[i] = g.Admit(ctx, topic, draft.Size())
		}
		if errs[i] == nil {
			fates[i] = make(putFate, 1)
			number := anyPartition
			if numbers != nil {
				number = numbers[i]
			}
			g.PublishTo(topic, number, nil, draft.Draft(ident.RequestID{}), fates[i])
		}
	}
	for i, f := range fates {
		if f != nil {
			errs[i] = <-f
		}
	}
	return errs
}
