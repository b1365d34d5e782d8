package cursor

import (
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Span is the range of sequences From, …, To−1.
type Span struct{ From, To ident.Sequence }

// blockSpans bounds the number of spans that an insertion moves.
const blockSpans = 256

// rangeSet is a set of sequences as disjoint spans that do not touch, in blocks of at most blockSpans. So each of a
// million finishes in random order costs only a short copy. One flat slice was rejected, because an insertion would
// move megabytes.
type rangeSet struct {
	blocks [][]Span // not empty
	spare  []Span   // the array of a block that became empty
	count  uint64   // sequences in the set
	spans  int
}

// end is the first sequence above all sequences of the set.
func (r *rangeSet) end() ident.Sequence {
	if len(r.blocks) == 0 {
		return 0
	}
	last := r.blocks[len(r.blocks)-1]
	return last[len(last)-1].To
}

// find returns the position of the first span that ends at or above seq, or the position after the last span.
func (r *rangeSet) find(seq ident.Sequence) (block, at int) {
	block = sort.Search(len(r.blocks), func(i int) bool {
		b := r.blocks[i]
		return b[len(b)-1].To >= seq
	})
	if block == len(r.blocks) {
		return block, 0
	}
	b := r.blocks[block]
	return block, sort.Search(len(b), func(i int) bool { return b[i].To >= seq })
}

func (r *rangeSet) contains(seq ident.Sequence) bool {
	if seq >= r.end() {
		return false
	}
	s, ok := r.at(r.find(seq + 1))
	return ok && s.From <= seq
}

// after is the first sequence at or above seq that is not in the set.
func (r *rangeSet) after(seq ident.Sequence) ident.Sequence {
	if seq >= r.end() {
		return seq
	}
	if s, _ := r.at(r.find(seq + 1)); s.From <= seq {
		return s.To
	}
	return seq
}

func (r *rangeSet) at(block, i int) (Span, bool) {
	if block >= len(r.blocks) {
		return Span{}, false
	}
	return r.blocks[block][i], true
}

// add adds s to the set and returns the number of new sequences.
func (r *rangeSet) add(s Span) uint64 {
	if s.From >= s.To {
		return 0
	}
	before := r.count
	block, i := r.find(s.From)
	// Merge every span that overlaps or touches; usually none or one.
	for {
		old, ok := r.at(block, i)
		if !ok || old.From > s.To {
			break
		}
		if old.From <= s.From && old.To >= s.To {
			return 0
		}
		s.From, s.To = min(s.From, old.From), max(s.To, old.To)
		block, i = r.remove(block, i)
	}
	r.insert(block, i, s)
	return r.count - before
}

// remove removes a span and returns the position of the next one.
func (r *rangeSet) remove(block, i int) (int, int) {
	b := r.blocks[block]
	r.count -= uint64(b[i].To - b[i].From)
	r.spans--
	b = slices.Delete(b, i, i+1)
	r.blocks[block] = b
	if len(b) == 0 {
		r.spare = b
		r.blocks = slices.Delete(r.blocks, block, block+1)
		return block, 0
	}
	if i == len(b) {
		return block + 1, 0
	}
	return block, i
}

// insert inserts a span that touches no other before the given position.
func (r *rangeSet) insert(block, i int, s Span) {
	r.count += uint64(s.To - s.From)
	r.spans++
	if i == 0 && block > 0 {
		block, i = block-1, len(r.blocks[block-1])
	}
	if block == len(r.blocks) {
		r.blocks = append(r.blocks, r.spare) // finishes that roughly follow the log's order reuse this array
		r.spare = nil
	}
	b := slices.Insert(r.blocks[block], i, s)
	r.blocks[block] = b
	if len(b) > blockSpans {
		half := slices.Clone(b[len(b)/2:])
		r.blocks[block] = b[:len(b)/2]
		r.blocks = slices.Insert(r.blocks, block+1, half)
	}
}

// takeFrom removes the spans that begin at or below low, and returns the first sequence at or above low that is outside
// of them.
func (r *rangeSet) takeFrom(low ident.Sequence) ident.Sequence {
	for len(r.blocks) > 0 {
		first := r.blocks[0][0]
		if first.From > low {
			break
		}
		low = max(low, first.To)
		r.remove(0, 0)
	}
	return low
}

func (r *rangeSet) each(f func(Span)) {
	for _, b := range r.blocks {
		for _, s := range b {
			f(s)
		}
	}
}

// countIn is the number of sequences from low to high−1 in the set.
func (r *rangeSet) countIn(low, high ident.Sequence) (n uint64) {
	r.each(func(s Span) {
		if from, to := max(s.From, low), min(s.To, high); from < to {
			n += uint64(to - from)
		}
	})
	return n
}

func (r *rangeSet) clear() { *r = rangeSet{} }

// Sequences lists the messages of ranges; nil if the ranges are empty.
func Sequences(spans []Span) map[ident.Sequence]struct{} {
	var all map[ident.Sequence]struct{}
	for _, s := range spans {
		for seq := s.From; seq < s.To; seq++ {
			if all == nil {
				all = map[ident.Sequence]struct{}{}
			}
			all[seq] = struct{}{}
		}
	}
	return all
}
