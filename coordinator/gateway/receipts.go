package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	// settleTimeout bounds the wait for the leaders of receipts: as long as a put waits.
	settleTimeout = 10 * time.Second
	// A new leader has the deliveries of its predecessor once their edges have reclaimed them: within milliseconds, if
	// the edges are alive.
	awaitReclaim = 2 * time.Second
	reclaimPause = 50 * time.Millisecond
)

// Settle carries out a verb on deliveries of a channel that any broker made (api.Receipts).
func (g *Gateway) Settle(ctx context.Context, topic, channel string, do api.Settlement, list []api.Receipt) []error {
	errs := make([]error, len(list))
	t, ok := g.core.Topic(topic)
	byPartition := map[uint16][]int{} // indices of list
	for i := range list {
		place, valid := api.ParseMessageID(list[i].ID)
		switch {
		case !ok:
			errs[i] = outcome.ErrTopicNotFound
		case !valid || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions:
			errs[i] = outcome.ErrNotInFlight
		default:
			byPartition[place.Partition] = append(byPartition[place.Partition], i)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for n, indices := range byPartition {
		req := calls.SettleRequest{Partition: ident.Partition{Topic: t.ID, Number: n}, Channel: channel, Verb: string(do.Verb), DelayMS: do.DelayMS}
		asked.Go(func() { g.settlePartition(ctx, req, list, indices, errs) })
	}
	asked.Wait()
	return errs
}

// settlePartition settles the receipts with these indices at the leader of their partition. Receipts of deliveries that
// may still be reclaimed at a new leader are sent again.
func (g *Gateway) settlePartition(ctx context.Context, req calls.SettleRequest, list []api.Receipt, indices []int, errs []error) {
	began := time.Now()
	for len(indices) > 0 {
		req.Receipts = req.Receipts[:0]
		for _, i := range indices {
			place, _ := api.ParseMessageID(list[i].ID) // it was valid
			req.Receipts = append(req.Receipts, calls.Receipt{Sequence: place.Sequence, Epoch: list[i].Epoch, Delivery: list[i].Number})
		}
		r, err := g.core.AskSettle(ctx, req)
		if err != nil {
			for _, i := range indices {
				errs[i] = err
			}
			return
		}
		var again []int
		for _, refused := range r.Refused {
			if refused.Index < 0 || refused.Index >= len(indices) {
				continue
			}
			i := indices[refused.Index]
			switch {
			case refused.Again && time.Since(began) < awaitReclaim:
				again = append(again, i)
			case refused.Owner:
				errs[i] = outcome.ErrNotOwner
			default:
				errs[i] = outcome.ErrNotInFlight
			}
		}
		if indices = again; len(indices) > 0 && !concurrency.Sleep(ctx, reclaimPause) {
			for _, i := range indices {
				errs[i] = fmt.Errorf("%w: the leader does not have the delivery yet: %w", outcome.ErrUnavailable, ctx.Err())
			}
			return
		}
	}
}

// SettleLed settles receipts of a partition that is led here (calls.Settle).
func (g *Gateway) SettleLed(req calls.SettleRequest) (reply calls.SettleReply, err error) {
	p, ok := g.core.Queue(req.Partition)
	if !ok {
		return reply, rpc.ErrNoReplica
	}
	if !g.core.Leads(req.Partition) {
		return reply, rpc.ErrNotLeader
	}
	c, ok := p.Channel(req.Channel)
	if !ok {
		return reply, outcome.ErrChannelNotFound
	}
	for i, r := range req.Receipts {
		receipt := nsqd.Receipt{Sequence: r.Sequence, Epoch: r.Epoch, Number: r.Delivery}
		err := settle(c, nil, receipt, api.Settlement{Verb: api.Verb(req.Verb), DelayMS: req.DelayMS})
		switch {
		case err == nil:
		case errors.Is(err, outcome.ErrNotOwner), errors.Is(err, outcome.ErrNotInFlight):
			reply.Refused = append(reply.Refused, calls.SettleRefusal{Index: i, Owner: errors.Is(err, outcome.ErrNotOwner), Again: c.Awaited(receipt)})
		case errors.Is(err, nsqd.ErrNotLeader), errors.Is(err, nsqd.ErrNotReplicated):
			// The call is repeated at the next leader, which refuses a finish that was carried out here. The client
			// then sees a refusal, but loses nothing.
			return reply, fmt.Errorf("%w: %w", rpc.ErrNotLeader, err)
		case errors.Is(err, nsqd.ErrDeleted):
			return reply, fmt.Errorf("%w: %w", outcome.ErrChannelNotFound, err)
		default:
			return reply, err
		}
	}
	return reply, nil
}

// settle carries out a verb on the delivery that a receipt names, and on no other. s is its subscriber, or nil.
func settle(c *nsqd.Channel, s *nsqd.Subscriber, r nsqd.Receipt, do api.Settlement) error {
	switch do.Verb {
	case api.VerbFinish:
		return c.Finish(s, r)
	case api.VerbRequeue:
		return c.Requeue(s, r, do.DelayMS)
	case api.VerbTouch:
		return c.Touch(s, r)
	}
	return fmt.Errorf("%w: verb %q", outcome.ErrInvalid, do.Verb)
}
