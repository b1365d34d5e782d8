package gateway

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxProbes bounds the search for a partition that is led here.
const maxProbes = 32

var _ api.Publisher = (*Gateway)(nil)

// Admit waits until the unanswered puts leave room for the given number of bytes, and until the topic exists. It
// reserves nothing: Publish counts the puts, so a client that disconnects after Admit costs nothing. Connections that
// were admitted together may exceed the limit by one body each. At twice the limit Publish refuses.
func (g *Gateway) Admit(ctx context.Context, topic string, bytes int) error {
	err := g.budget.wait(ctx, g.done, int64(bytes))
	if err == nil {
		err = g.ensureTopic(ctx, topic)
	}
	if err != nil && ctx.Err() == nil {
		g.o.Metrics.Answered(err)
	}
	return err
}

// ensureTopic returns when the topic is in the watched metadata.
func (g *Gateway) ensureTopic(ctx context.Context, topic string) error {
	if _, ok := g.core.Topic(topic); ok {
		return nil
	}
	return g.core.EnsureTopic(ctx, topic)
}

// Publish takes one put; see api.Publisher.
func (g *Gateway) Publish(topic string, partition int, key []byte, d queue.Draft, a api.Answerer) {
	g.refuse(g.publish(topic, partition, key, d, a, false), a)
}

// PublishAll publishes messages that this broker itself creates. Each goes to the partition with its number if the
// topic has it (numbers nil: to any). It returns the error of each message, after the put limit or at Close at the
// latest.
func (g *Gateway) PublishAll(ctx context.Context, topic string, numbers []int, messages []queue.Message) []error {
	errs, results := make([]error, len(messages)), make([]putResult, len(messages))
	for i, m := range messages {
		draft := queue.NewDraft(m.Size())
		errs[i] = draft.AddMessage(m)
		if errs[i] == nil {
			errs[i] = g.Admit(ctx, topic, draft.Size())
		}
		if errs[i] != nil {
			continue
		}
		number := api.AnyPartition
		if numbers != nil {
			number = numbers[i]
		}
		results[i] = make(putResult, 1)
		g.refuse(g.publish(topic, number, nil, draft.Draft(ident.RequestID{}), results[i], true), results[i])
	}
	for i, r := range results {
		if r != nil {
			errs[i] = <-r
		}
	}
	return errs
}

// putResult is an Answerer for one of several puts.
type putResult chan error

// Answer implements api.Answerer; capacity 1, called once.
func (f putResult) Answer(r api.PutResult) { f <- r.Err }

// refuse answers a put that was not accepted; a nil error means that it was accepted.
func (g *Gateway) refuse(err error, a api.Answerer) {
	if err != nil {
		g.o.Metrics.Answered(err)
		a.Answer(api.PutResult{Err: err})
	}
}

// publish chooses a partition and adds the put to its queue, which answers it. An error means that the put was not
// accepted: nothing was stored. own: this broker itself created the put. It may go to any partition if the topic does
// not have the number, and is exempt from the topic's publish rate: dead letters must not accumulate because of a busy
// producer.
func (g *Gateway) publish(topic string, number int, key []byte, d queue.Draft, a api.Answerer, own bool) error {
	t, ok := g.core.Topic(topic)
	named := number >= 0 && number < t.Partitions
	switch {
	case !ok:
		return errTopicDeleted
	case t.Partitions == 0:
		return outcome.ErrNoLeader
	case !own && !named && number != api.AnyPartition:
		return fmt.Errorf("%w %d, but 0 to %d, not stored", outcome.ErrPartitionNotFound, number, t.Partitions-1)
	case !own && !g.rates.Allow(t.ID, limits.Rate{Messages: t.Options.MaxPutRate, Bytes: t.Options.MaxPutBytesRate}, int(d.Count), d.Size()):
		return outcome.ErrRateLimited
	}
	if number != api.AnyPartition {
		key = nil // the number decides
	}
	if t.Options.Dedupe == option.DedupeContent && d.LacksIdentities() {
		d = d.ByContent(key)
		if d.Count > 1 && t.Partitions > 1 && key == nil && !named {
			return g.publishApart(topic, t, d, a)
		}
	}
	size := int64(d.Size())
	if err := g.reserve(size, size); err != nil {
		return err
	}
	to := t.Partition(number)
	if !named {
		to = g.choose(t, key, &d)
	}
	p, err := g.enqueue(topic, to, d, a)
	if err != nil {
		return err
	}
	p.queue.pump()
	g.core.Flush()
	return nil
}

// reserve reserves memory for one put or for several together; largest is the size of the largest.
func (g *Gateway) reserve(all, largest int64) error {
	switch {
	case largest > queue.MaxBatchBytes:
		return outcome.ErrTooBig
	case !g.budget.take(all):
		return outcome.ErrBusy
	}
	return nil
}

// enqueue adds a put, whose memory is reserved, to the queue of its partition. An error releases the memory.
func (g *Gateway) enqueue(topic string, to ident.Partition, d queue.Draft, a api.Answerer) (*put, error) {
	d.Request.Producer = uint64(g.core.Incarnation())
	p := &put{draft: d, answerer: a, born: g.now(), uncontended: g.pending.Enter()}
	for {
		p.queue = g.queueOf(topic, to)
		g.mu.RLock()
		closed := g.mu.closed
		added := !closed && p.queue.add(p)
		g.mu.RUnlock()
		if closed {
			g.pending.Leave()
			g.budget.give(int64(d.Size()))
			return nil, outcome.ErrExiting
		}
		if added {
			break
		}
	}
	if g.asleep.Load() {
		g.wake() // there are deadlines again
	}
	return p, nil
}

// choose returns the partition of a new put: by the key's FNV-1a hash. Without a key it is the partition of the first
// message's identity, so that a repeat at any broker finds it. Other puts rotate over the partitions that are led here
// or, if there are none, over those with a leader.
func (g *Gateway) choose(t metadata.TopicState, key []byte, d *queue.Draft) ident.Partition {
	if t.Partitions == 1 {
		return t.Partition(0)
	}
	if x, ok := d.First(); key == nil && ok {
		key = x[:]
	}
	if key != nil {
		return t.Partition(partitionOf(key, t.Partitions))
	}
	start := int(g.rotation.Add(1) % uint32(t.Partitions))
	best, found := t.Partition(start), false
	for i := range min(t.Partitions, maxProbes) {
		id := t.Partition((start + i) % t.Partitions)
		if g.core.Leads(id) {
			return id
		}
		if !found {
			if _, found = g.core.Leader(id); found {
				best = id
			}
		}
	}
	return best
}

// partitionOf is the number of the partition of a key, or of an identity.
func partitionOf(key []byte, partitions int) int {
	h := fnv.New64a()
	_, _ = h.Write(key)
	return int(h.Sum64() % uint64(partitions))
}

// publishApart publishes a put of several messages, each of which belongs to the partition of its own identity. In any
// other partition a repeat of the message, alone or in another put, would not be recognised. So the put is split into
// one for each of those partitions. Each part is stored as a whole or not at all, and the answer waits for all parts.
func (g *Gateway) publishApart(topic string, t metadata.TopicState, d queue.Draft, a api.Answerer) error {
	s := &several{answerer: a, of: make([]int, 0, d.Count)}
	var numbers []int // of the partitions
	d.Identities(func(_ int, x queue.Identity) {
		number := partitionOf(x[:], t.Partitions)
		i := slices.Index(numbers, number)
		if i < 0 {
			i, numbers = len(numbers), append(numbers, number)
		}
		s.of = append(s.of, i)
	})
	drafts, all, largest := make([]queue.Draft, len(numbers)), int64(0), int64(0)
	for i := range numbers {
		if drafts[i] = d; len(numbers) > 1 {
			drafts[i] = d.Keep(func(n int) bool { return s.of[n] == i })
		}
		size := int64(drafts[i].Size())
		all, largest = all+size, max(largest, size)
	}
	if err := g.reserve(all, largest); err != nil {
		return err
	}
	s.left, s.results = len(numbers), make([]api.PutResult, len(numbers))
	puts := make([]*put, 0, len(numbers))
	for i, number := range numbers {
		p, err := g.enqueue(topic, t.Partition(number), drafts[i], part{s, i})
		if err != nil {
			g.refuse(err, part{s, i})
			continue
		}
		puts = append(puts, p)
	}
	for _, p := range puts {
		p.queue.pump()
	}
	g.core.Flush()
	return nil
}

// several collects the results of a put that was published in parts, one for each partition.
type several struct {
	answerer api.Answerer
	of       []int // the part to which each message belongs; the first message is in part 0

	mu      sync.Mutex
	left    int // parts without a result
	results []api.PutResult
}

type part struct {
	*several
	i int
}

// Answer implements api.Answerer; called once for each part.
func (p part) Answer(r api.PutResult) {
	p.mu.Lock()
	p.results[p.i] = r
	p.left--
	last := p.left == 0
	p.mu.Unlock()
	if last {
		p.answerer.Answer(p.result())
	}
}

// result is the result of the first message if all messages are stored, otherwise an error.
func (s *several) result() api.PutResult {
	whole := s.results[0]
	stored := 0
	for _, r := range s.results {
		whole.Duplicate = whole.Duplicate && r.Duplicate
		if r.Err == nil {
			stored++
		}
	}
	if stored == len(s.results) {
		return whole
	}
	each := make([]error, len(s.of))
	for n, i := range s.of {
		each[n] = s.results[i].Err
	}
	return api.PutResult{Err: &api.EachError{Whole: s.failure(stored), Each: each}}
}

// failure is the error of the whole put. It is definite only if no message is stored.
func (s *several) failure(stored int) (definite error) {
	for _, r := range s.results {
		row, ok := outcome.Find(r.Err, outcome.OfPuts)
		switch {
		case r.Err == nil:
		case ok && row.Class == outcome.ClassInDoubt:
			return r.Err
		case definite == nil:
			definite = r.Err
		}
	}
	if stored > 0 {
		return fmt.Errorf("%w: %d of the %d partitions of its messages have stored theirs, one has not (%v); publish all again, the topic recognises what is stored",
			outcome.ErrInDoubt, stored, len(s.results), definite)
	}
	return definite
}
