package dedupe

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// identified is one message with an identity.
type identified struct {
	identity queue.Identity
	seq      ident.Sequence
	at, end  ident.Offset // of its batch
	clock    queue.Clock  // of its batch
}

// blockSize is the number of entries in a block.
const blockSize = 128

// identities is a queue of entries in the order of the log, with an index of the newest entry of each identity. It
// moves no entry: a growing slice would be copied as a whole, which stops the partition for milliseconds. An empty one
// has no memory.
type identities struct {
	first, next uint64         // the numbers of the oldest entry and of the next one
	blocks      [][]identified // entry n is number n%blockSize of block n/blockSize - first/blockSize
	spare       []identified   // the last block that became empty, for the next one
	index       index
}

func (s *identities) len() int { return int(s.next - s.first) }

// at is the entry with a number from first up to next.
func (s *identities) at(n uint64) *identified {
	return &s.blocks[n/blockSize-s.first/blockSize][n%blockSize]
}

func (s *identities) oldest() *identified { return s.at(s.first) }

func (s *identities) newest() *identified { return s.at(s.next - 1) }

// push adds the newest entry. An older entry with its identity is no longer found.
func (s *identities) push(e identified) {
	switch {
	case len(s.blocks) == 0:
		s.blocks = append(s.blocks, nil) // it grows: most windows are small
	case s.next%blockSize == 0:
		b := s.spare[:0]
		if s.spare = nil; cap(b) < blockSize {
			b = make([]identified, 0, blockSize)
		}
		s.blocks = append(s.blocks, b)
	}
	last := &s.blocks[len(s.blocks)-1]
	*last = append(*last, e)
	s.index.put(s, s.next)
	s.next++
}

// popOldest removes the oldest entry.
func (s *identities) popOldest() {
	s.index.remove(s, s.first)
	s.first++
	if s.first%blockSize == 0 && s.len() > 0 {
		s.spare, s.blocks[0] = s.blocks[0], nil
		s.blocks = s.blocks[1:]
	}
	s.freeEmpty()
}

// popNewest removes the newest entry. An older one with its identity, if there is any, stays unknown.
func (s *identities) popNewest() {
	s.next--
	s.index.remove(s, s.next)
	last := len(s.blocks) - 1
	if s.blocks[last] = s.blocks[last][:s.next%blockSize]; len(s.blocks[last]) == 0 {
		s.blocks = s.blocks[:last]
	}
	s.freeEmpty()
}

// freeEmpty releases the memory of an empty queue. Its next entry begins a block.
func (s *identities) freeEmpty() {
	if s.len() == 0 {
		n := (s.next + blockSize - 1) / blockSize * blockSize
		*s = identities{first: n, next: n}
	}
}

// find returns the newest entry with an identity; nil if there is none.
func (s *identities) find(x queue.Identity) *identified { return s.index.find(s, x) }

func (s *identities) clone() identities {
	c := *s
	c.spare = nil
	c.blocks = slices.Clone(s.blocks)
	for i, b := range c.blocks {
		c.blocks[i] = slices.Clone(b)
	}
	c.index = s.index.clone()
	return c
}
