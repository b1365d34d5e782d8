package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	// settleTimeout bounds the wait for the leaders of receipts: as long as a put waits.
	settleTimeout = 10 * time.Second
	// A new leader has the deliveries of an earlier one when their edges have reclaimed them: within
	// milliseconds, if the edges live.
	awaitReclaim = 2 * time.Second
	reclaimPause = 50 * time.Millisecond
)

// Settle carries a verb out on deliveries of a channel, whichever broker made them (api.Receipts).
func (c *Channels) Settle(ctx context.Context, topic, channel string, do api.Settlement, list []api.Receipt) []error {
	errs := make([]error, len(list))
	t, ok := c.catalog.Topic(topic)
	byPartition := map[uint16][]int{} // indices of list
	for i := range list {
		place, valid := api.ParseMessageID(list[i].ID)
		switch {
		case !ok:
			errs[i] = api.ErrTopicNotFound
		case !valid || place.Nonce != api.NonceOf(t.ID) || int(place.Partition) >= t.Partitions:
			errs[i] = api.ErrNotInFlight
		default:
			byPartition[place.Partition] = append(byPartition[place.Partition], i)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for n, indices := range byPartition {
		req := calls.SettleRequest{Topic: uint64(t.ID), Number: n, Channel: channel, Verb: string(do.Verb), DelayMS: do.DelayMS}
		asked.Go(func() { c.settlePartition(ctx, req, list, indices, errs) })
	}
	asked.Wait()
	return errs
}

// settlePartition settles the receipts with these indices at the leader of their partition. Receipts of deliveries that
// a new leader may still get are sent again.
func (c *Channels) settlePartition(ctx context.Context, req calls.SettleRequest, list []api.Receipt, indices []int, errs []error) {
	began := time.Now()
	for len(indices) > 0 {
		req.Receipts = req.Receipts[:0]
		for _, i := range indices {
			place, _ := api.ParseMessageID(list[i].ID) // it was valid
			req.Receipts = append(req.Receipts, calls.Receipt{Sequence: uint64(place.Sequence), Epoch: uint64(list[i].Epoch), Delivery: list[i].Number})
		}
		r, err := askLeader(ctx, c.leaders, req.Partition(), calls.Settle, req)
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
				errs[i] = api.ErrNotOwner
			default:
				errs[i] = api.ErrNotInFlight
			}
		}
		if indices = again; len(indices) > 0 && !concurrency.Sleep(ctx, reclaimPause) {
			for _, i := range indices {
				errs[i] = fmt.Errorf("%w: the leader does not have the delivery yet: %w", api.ErrUnavailable, ctx.Err())
			}
			return
		}
	}
}

// Settle answers for a partition led here (calls.Settle).
func (q *Queues) Settle(req calls.SettleRequest) (reply calls.SettleReply, err error) {
	p, err := q.led(req.Partition())
	if err != nil {
		return reply, err
	}
	c, ok := p.Queue().Channel(req.Channel)
	if !ok {
		return reply, api.ErrChannelNotFound
	}
	for i, r := range req.Receipts {
		receipt := nsqd.Receipt{Sequence: ident.Sequence(r.Sequence), Epoch: ident.Epoch(r.Epoch), Number: r.Delivery}
		err := settle(c, api.Settlement{Verb: api.Verb(req.Verb), DelayMS: req.DelayMS}, receipt)
		switch {
		case err == nil:
		case errors.Is(err, api.ErrNotOwner), errors.Is(err, api.ErrNotInFlight):
			reply.Refused = append(reply.Refused, calls.SettleRefusal{Index: i, Owner: errors.Is(err, api.ErrNotOwner), Again: c.Awaited(receipt)})
		default:
			// Of the verbs a finish that is repeated after a change of leader is refused, and its message is finished:
			// the client sees a refusal, and loses nothing.
			return reply, queueError(err)
		}
	}
	return reply, nil
}

func settle(c *nsqd.Channel, do api.Settlement, r nsqd.Receipt) error {
	switch do.Verb {
	case api.VerbFinish:
		return c.Finish(nil, r)
	case api.VerbRequeue:
		return c.Requeue(nil, r, do.DelayMS)
	case api.VerbTouch:
		return c.Touch(nil, r)
	}
	return fmt.Errorf("%w: verb %q", api.ErrInvalid, do.Verb)
}
