package gateway

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// publishApart publishes a put of several messages, each of which belongs to the partition of its own identity: in
// another partition a repeat of it, alone or in another put, would not be recognised. So the put becomes one for each
// of these partitions. Each is stored as a whole or not at all, and the answer waits for all.
func (g *Gateway) publishApart(t Topic, d queue.Draft, a api.Answerer) error {
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
		p, err := g.enqueue(t, t.Partition(number), drafts[i], part{s, i})
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
	of       []int // the part of each message; the first message is in part 0

	mu      sync.Mutex
	left    int // parts without a result
	results []api.PutResult
}

// part is the Answerer of one part.
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

// result is the result of the first message if all are stored, otherwise an error.
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
			api.ErrInDoubt, stored, len(s.results), definite)
	}
	return definite
}
