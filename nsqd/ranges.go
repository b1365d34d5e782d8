package nsqd

import (
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// span is the sequences from, …, to-1.
type span struct{ from, to ident.Sequence }

// blockSpans bounds a block: inserting moves at most so many spans.
const blockSpans = 256

// rangeSet is a set of sequences as disjoint spans that do not touch, in blocks
// of at most blockSpans, so that a million finishes in random order cost a short
// copy each. One flat slice was rejected: it moves megabytes per insertion.
type rangeSet struct {
	blocks [][]span // none is empty
	spare  []span   // the array of a block that became empty
	count  uint64   // sequences in the set
	spans  int
}

// end is the first sequence above all of the set.
func (r *rangeSet) end() ident.Sequence {
	if len(r.blocks) == 0 {
		return 0
	}
	last := r.blocks[len(r.blocks)-1]
	return last[len(last)-1].to
}

// find gives the place of the first span that ends at or above seq. It may be
// just behind the last one.
func (r *rangeSet) find(seq ident.Sequence) (block, at int) {
	block = sort.Search(len(r.blocks), func(i int) bool {
		b := r.blocks[i]
		return b[len(b)-1].to >= seq
	})
	if block == len(r.blocks) {
		return block, 0
	}
	b := r.blocks[block]
	return block, sort.Search(len(b), func(i int) bool { return b[i].to >= seq })
}

// contains reports whether seq is in the set.
func (r *rangeSet) contains(seq ident.Sequence) bool {
	if seq >= r.end() {
		return false
	}
	s, ok := r.at(r.find(seq + 1))
	return ok && s.from <= seq
}

// after is the first sequence at or above seq that is not in the set.
func (r *rangeSet) after(seq ident.Sequence) ident.Sequence {
	if seq >= r.end() {
		return seq
	}
	if s, _ := r.at(r.find(seq + 1)); s.from <= seq {
		return s.to
	}
	return seq
}

func (r *rangeSet) at(block, i int) (span, bool) {
	if block >= len(r.blocks) {
		return span{}, false
	}
	return r.blocks[block][i], true
}

// add puts s into the set and returns how many sequences are new.
func (r *rangeSet) add(s span) uint64 {
	if s.from >= s.to {
		return 0
	}
	before := r.count
	block, i := r.find(s.from)
	// Swallow every span that overlaps or touches; usually none or one.
	for {
		old, ok := r.at(block, i)
		if !ok || old.from > s.to {
			break
		}
		if old.from <= s.from && old.to >= s.to {
			return 0
		}
		s.from, s.to = min(s.from, old.from), max(s.to, old.to)
		block, i = r.remove(block, i)
	}
	r.insert(block, i, s)
	return r.count - before
}

// remove takes a span out and gives the place of the one after it.
func (r *rangeSet) remove(block, i int) (int, int) {
	b := r.blocks[block]
	r.count -= uint64(b[i].to - b[i].from)
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

// insert puts a span that touches no other before the place given.
func (r *rangeSet) insert(block, i int, s span) {
	r.count += uint64(s.to - s.from)
	r.spans++
	if i == 0 && block > 0 {
		block, i = block-1, len(r.blocks[block-1])
	}
	if block == len(r.blocks) {
		r.blocks = append(r.blocks, r.spare) // finishes in about the order of the log need no other
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

// takeFrom removes the span that contains or begins at low, if there is one, and
// everything below it; it returns the first sequence at or above low that is not
// in the set.
func (r *rangeSet) takeFrom(low ident.Sequence) ident.Sequence {
	for len(r.blocks) > 0 {
		first := r.blocks[0][0]
		if first.from > low {
			break
		}
		low = max(low, first.to)
		r.remove(0, 0)
	}
	return low
}

// each calls f with every span in order.
func (r *rangeSet) each(f func(span)) {
	for _, b := range r.blocks {
		for _, s := range b {
			f(s)
		}
	}
}

// clear empties the set.
func (r *rangeSet) clear() { *r = rangeSet{} }
