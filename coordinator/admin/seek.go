package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// seek moves a channel in all partitions, or in one, to a position (api.ParsePlace). It returns the effect in messages.
// With DryRun nothing moves. A sequence beyond the end of one of the partitions is refused before the channel is moved
// in any.
func (c *Channels) seek(ctx context.Context, op api.SeekChannel) (r api.SeekResult, err error) {
	t, ok := c.catalog.Topic(op.Topic)
	if !ok {
		return r, outcome.ErrTopicNotFound
	}
	place, err := nsqd.CheckStart(op.To)
	if err != nil {
		return r, err
	}
	numbers := numbersOf(t)
	if op.Partition >= 0 {
		if err := checkPartition(t, op.Partition); err != nil {
			return r, err
		}
		numbers = []uint16{uint16(op.Partition)}
	}
	s := seeker{
		leaders: c.leaders, dryRun: op.DryRun,
		op: calls.QueueOp{Partition: ident.Partition{Topic: t.ID}, Channel: op.Channel, ID: c.catalog.Channels(t.ID)[op.Channel].ID, From: op.To, Idle: op.Idle},
	}
	if place.Kind == api.PlaceSequence && !op.DryRun && len(numbers) > 1 {
		if err := s.check(ctx, slices.Clone(numbers)); err != nil {
			return r, err
		}
	}
	moves, err := s.all(ctx, numbers)
	if err != nil {
		return r, err
	}
	return resultOf(op.DryRun, moves), nil
}

// numbersOf lists the partitions of a topic, including the new ones of a topic that grows.
func numbersOf(t metadata.TopicState) (numbers []uint16) {
	for n := range t.Span() {
		numbers = append(numbers, uint16(n))
	}
	return numbers
}

// resultOf sums the partitions. A sum is unknown if one of its terms is.
func resultOf(dryRun bool, moves []api.SeekMove) api.SeekResult {
	skips, repeats := uint64(0), uint64(0)
	r := api.SeekResult{DryRun: dryRun, Skips: &skips, Repeats: &repeats, Partitions: moves}
	for _, m := range moves {
		if m.Skips == nil || m.Repeats == nil {
			r.Skips, r.Repeats = nil, nil
			return r
		}
		skips += *m.Skips
		repeats += *m.Repeats
	}
	return r
}

// seeker carries out one seek at the leaders of partitions. A seek is idempotent but its counts are not: if an earlier
// attempt may have moved the channel, they are unknown.
type seeker struct {
	leaders *leaders
	op      calls.QueueOp
	dryRun  bool
}

// check refuses a sequence beyond the end of one of the partitions. The result stays true until the seek, because the
// committed end never falls.
func (s seeker) check(ctx context.Context, numbers []uint16) error {
	s.dryRun = true
	_, err := s.all(ctx, numbers)
	return err
}

// all sends each leader one call for all of its partitions, then one call for each partition that is not done.
func (s seeker) all(ctx context.Context, numbers []uint16) ([]api.SeekMove, error) {
	var mu sync.Mutex
	var moves []api.SeekMove
	unsure := map[uint16]bool{} // partitions without an answer, where the channel may have moved
	err := s.leaders.onEach(s.op.Topic, numbers, func(node ident.Node, numbers []uint16) (done []uint16) {
		resp, err := ask(ctx, s.leaders, node, calls.Seek, calls.SeekRequest{Op: s.op, Numbers: numbers, DryRun: s.dryRun})
		mu.Lock()
		defer mu.Unlock()
		for _, n := range numbers {
			unsure[n] = inDoubt(err)
		}
		for _, m := range resp.Moves {
			if unsure[m.Number] = m.Unsure; !m.Unsure {
				moves, done = append(moves, moveOf(m)), append(done, m.Number)
			}
		}
		return done
	}, func(n uint16) error {
		mu.Lock()
		was := unsure[n]
		mu.Unlock()
		move, err := s.one(ctx, n, was)
		mu.Lock()
		defer mu.Unlock()
		moves = append(moves, move)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(moves, func(x, y api.SeekMove) int { return cmp.Compare(x.Partition, y.Partition) })
	return moves, nil
}

// inDoubt reports whether a failed call may have been carried out.
func inDoubt(err error) bool { return err != nil && rpc.ClassOf(err) == outcome.ClassInDoubt }

// one asks the leader of one partition, and the next one if the leadership moves.
func (s seeker) one(ctx context.Context, n uint16, unsure bool) (api.SeekMove, error) {
	op := s.op
	op.Number = n
	move := api.SeekMove{Partition: int(n)}
	err := s.leaders.atLeader(ctx, op.Partition, func(node ident.Node) error {
		resp, err := ask(ctx, s.leaders, node, calls.Seek, calls.SeekRequest{Op: op, Numbers: []uint16{n}, DryRun: s.dryRun})
		switch {
		case err == nil && len(resp.Moves) == 1 && !resp.Moves[0].Unsure:
			move = moveOf(resp.Moves[0])
		case err == nil:
			unsure, err = true, rpc.ErrNotLeader
		case errors.Is(err, outcome.ErrInvalid): // the client must not see names of internal calls
			if refusal := (*rpc.Error)(nil); errors.As(err, &refusal) {
				err = refusal
			}
		}
		unsure = unsure || inDoubt(err)
		return err
	})
	if unsure && !s.dryRun {
		move = api.SeekMove{Partition: int(n), Stays: move.Stays}
	}
	return move, err
}

func moveOf(m calls.SeekMove) api.SeekMove {
	return api.SeekMove{Partition: int(m.Number), From: &m.From, To: &m.To, Skips: &m.Skips, Repeats: &m.Repeats, Stays: m.Stays}
}

// Seek moves a channel in partitions led here, or counts what the move would do (calls.Seek).
func (q *Queues) Seek(ctx context.Context, req calls.SeekRequest) (resp calls.SeekReply, err error) {
	moves, errs := make([]calls.SeekMove, len(req.Numbers)), make([]error, len(req.Numbers))
	concurrency.Each(len(req.Numbers), api.MaxPartitions, func(i int) {
		op := req.Op
		op.Number = req.Numbers[i]
		p, err := q.led(op.Partition)
		if err == nil {
			moves[i], err = q.seek(ctx, p, op, req.DryRun)
		}
		if !req.DryRun && errors.Is(err, nsqd.ErrNotReplicated) {
			moves[i], err = calls.SeekMove{Number: op.Number, Unsure: true}, nil
		}
		errs[i] = queueError(err)
	})
	if len(errs) == 1 && errs[0] != nil {
		return resp, errs[0]
	}
	for i, m := range moves {
		switch {
		case errs[i] == nil:
			resp.Moves = append(resp.Moves, m)
		case inDoubt(errs[i]):
			resp.Moves = append(resp.Moves, calls.SeekMove{Number: req.Numbers[i], Unsure: true})
		}
	}
	return resp, nil
}

// seek moves a channel of one partition, or counts. Without a channel it only checks the position.
func (q *Queues) seek(ctx context.Context, p *engine.Partition, op calls.QueueOp, dryRun bool) (calls.SeekMove, error) {
	place, err := api.ParsePlace(op.From)
	if err == nil {
		err = place.Beyond(op.Number, p.Committed().Sequence)
	}
	if err != nil || op.Channel == "" {
		return calls.SeekMove{Number: op.Number}, err
	}
	o, err := channelOptions(p, op)
	if err != nil {
		return calls.SeekMove{}, err
	}
	var e nsqd.SeekEffect
	stays := false
	err = q.onChannel(ctx, p, op, func() (err error) {
		c, ok := p.Queue().Channel(op.Channel)
		if stays = ok && op.Idle && c.Consumers() > 0; dryRun || stays {
			e, err = p.Queue().PlanSeek(op.Channel, o)
		} else {
			e, err = p.Queue().SeekChannel(ctx, op.Channel, o)
		}
		return err
	})
	if stays {
		e = nsqd.SeekEffect{From: e.From, To: e.From}
	}
	return calls.SeekMove{Number: op.Number, From: e.From, To: e.To, Skips: e.Skips, Repeats: e.Repeats, Stays: stays}, err
}
