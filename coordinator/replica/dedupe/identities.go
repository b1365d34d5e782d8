package dedupe

import (
	"hash/maphash"
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

const blockSize = 128

// identities is a queue of entries in the order of the log, with an index of the newest entry of each identity. It
// moves no entry: copying a growing slice would stop the partition for milliseconds. An empty queue takes no memory.
type identities struct {
	first, next uint64         // the numbers of the oldest entry and of the next one
	blocks      [][]identified // entry n is number n%blockSize of block n/blockSize - first/blockSize
	spare       []identified   // the last block that became empty, for reuse
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
		s.blocks = append(s.blocks, nil) // the first block starts empty and grows, because most windows are small
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

func (s *identities) popOldest() {
	s.index.remove(s, s.first)
	s.first++
	if s.first%blockSize == 0 && s.len() > 0 {
		s.spare, s.blocks[0] = s.blocks[0], nil
		s.blocks = s.blocks[1:]
	}
	s.freeEmpty()
}

// popNewest removes the newest entry. An older entry with the same identity, if there is one, stays unknown.
func (s *identities) popNewest() {
	s.next--
	s.index.remove(s, s.next)
	last := len(s.blocks) - 1
	if s.blocks[last] = s.blocks[last][:s.next%blockSize]; len(s.blocks[last]) == 0 {
		s.blocks = s.blocks[:last]
	}
	s.freeEmpty()
}

// freeEmpty releases the memory of an empty queue. The next entry begins a new block.
func (s *identities) freeEmpty() {
	if s.len() == 0 {
		n := (s.next + blockSize - 1) / blockSize * blockSize
		*s = identities{first: n, next: n}
	}
}

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

const (
	smallTable = 8
	// fanOut is the number of tables of an index that has outgrown one table of largeTable slots. Each table grows
	// separately, so no entry waits until an index of a million entries has grown.
	fanOut     = 256
	largeTable = 2048
)

// seed keeps producers from choosing ids whose slots collide.
var seed = maphash.MakeSeed()

// index finds entries by their identity: hash tables with linear probing. A slot has the number of an entry and not its
// identity, so that most look-ups of new identities read a single cache line. A Go map takes twice as long.
type index struct {
	tables []table // none, one, or fanOut
}

// table has a power of two slots; at most 5 in 8 are used.
type table struct {
	slots []slot
	used  int
}

// slot is the low half of an entry's number, below a tag, the low half of its identity's hash with the lowest bit set;
// 0: unused. A window has fewer than 2^32 entries.
type slot uint64

func slotOf(hash, n uint64) slot { return slot((hash|1)<<32 | n&(1<<32-1)) }

func (s slot) tag() uint32 { return uint32(s >> 32) }

func (s slot) number(of *identities) uint64 { return of.first + uint64(uint32(s)-uint32(of.first)) }

func hashOf(x *queue.Identity) uint64 { return maphash.Bytes(seed, x[:]) }

// tableOf is the table for a hash. There must be one.
func (x *index) tableOf(hash uint64) *table {
	if len(x.tables) == 1 {
		return &x.tables[0]
	}
	return &x.tables[hash>>56]
}

// home is the slot at which the search for a tag begins.
func (t *table) home(tag uint32) int { return int(tag>>1) & (len(t.slots) - 1) }

func (t *table) after(i int) int { return (i + 1) & (len(t.slots) - 1) }

// find returns the entry with an identity; nil if there is none.
func (x *index) find(of *identities, identity queue.Identity) *identified {
	if len(x.tables) == 0 {
		return nil
	}
	hash := hashOf(&identity)
	t, tag := x.tableOf(hash), slotOf(hash, 0).tag()
	for i := t.home(tag); t.slots[i] != 0; i = t.after(i) {
		if s := t.slots[i]; s.tag() == tag {
			if e := of.at(s.number(of)); e.identity == identity {
				return e
			}
		}
	}
	return nil
}

// put adds entry n, or makes it replace an older entry with the same identity.
func (x *index) put(of *identities, n uint64) {
	if len(x.tables) == 0 {
		x.tables = []table{{slots: make([]slot, smallTable)}}
	}
	identity := &of.at(n).identity
	hash := hashOf(identity)
	t, is := x.tableOf(hash), slotOf(hash, n)
	i := t.home(is.tag())
	for ; t.slots[i] != 0; i = t.after(i) {
		if s := t.slots[i]; s.tag() == is.tag() && of.at(s.number(of)).identity == *identity {
			t.slots[i] = is
			return
		}
	}
	t.slots[i] = is
	if t.used++; 8*t.used <= 5*len(t.slots) {
		return
	}
	if len(x.tables) == 1 && len(t.slots) == largeTable {
		x.split(of)
	} else {
		t.grow()
	}
}

// remove removes entry n, unless a newer entry with the same identity has replaced it.
func (x *index) remove(of *identities, n uint64) {
	hash := hashOf(&of.at(n).identity)
	t, is := x.tableOf(hash), slotOf(hash, n)
	i := t.home(is.tag())
	for t.slots[i] != is {
		if t.slots[i] == 0 {
			return
		}
		i = t.after(i)
	}
	t.used--
	// Later slots move up into the gap, unless their search begins after it.
	for k := t.after(i); t.slots[k] != 0; k = t.after(k) {
		if mask := len(t.slots) - 1; (k-t.home(t.slots[k].tag()))&mask >= (k-i)&mask {
			t.slots[i] = t.slots[k]
			i = k
		}
	}
	t.slots[i] = 0
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	for _, s := range old {
		if s != 0 {
			t.take(s)
		}
	}
}

// take occupies a free slot for an entry that is not in the table.
func (t *table) take(s slot) {
	i := t.home(s.tag())
	for t.slots[i] != 0 {
		i = t.after(i)
	}
	t.slots[i] = s
}

func (x *index) split(of *identities) {
	old := x.tables[0].slots
	x.tables = make([]table, fanOut)
	for i := range x.tables {
		x.tables[i].slots = make([]slot, 2*smallTable)
	}
	for _, s := range old {
		if s == 0 {
			continue
		}
		t := x.tableOf(hashOf(&of.at(s.number(of)).identity))
		if t.used++; 8*t.used > 5*len(t.slots) {
			t.grow()
		}
		t.take(s)
	}
}

func (x *index) clone() index {
	c := index{tables: slices.Clone(x.tables)}
	for i := range c.tables {
		c.tables[i].slots = slices.Clone(c.tables[i].slots)
	}
	return c
}
