package model

import "math/bits"

// table keeps each value once, under its canonical form, and numbers them from 1.
type table[T any] struct {
	ids    map[string]uint32
	values []T
}

func newTable[T any]() table[T] { return table[T]{ids: map[string]uint32{}, values: make([]T, 1)} }

func (t *table[T]) id(canonical string, v T) uint32 {
	if id, ok := t.ids[canonical]; ok {
		return id
	}
	id := uint32(len(t.values))
	t.ids[canonical] = id
	t.values = append(t.values, v)
	return id
}

func (t *table[T]) at(id uint32) T { return t.values[id] }

// seen is a set of 128-bit hashes with open addressing.
type seen struct {
	slots [][2]uint64
	used  int
}

func newSeen() *seen { return &seen{slots: make([][2]uint64, 1<<16)} }

// add reports whether h is new.
func (s *seen) add(h [2]uint64) bool {
	if h == [2]uint64{} {
		h[0] = 1
	}
	if s.used*4 >= len(s.slots)*3 {
		s.grow()
	}
	if !s.put(h) {
		return false
	}
	s.used++
	return true
}

func (s *seen) put(h [2]uint64) bool {
	mask := uint64(len(s.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case h:
			return false
		case [2]uint64{}:
			s.slots[i] = h
			return true
		}
	}
}

func (s *seen) grow() {
	old := s.slots
	s.slots = make([][2]uint64, 2*len(old))
	for _, h := range old {
		if h != ([2]uint64{}) {
			s.put(h)
		}
	}
}

// mixer hashes words to 128 bits: two multiply-and-fold chains with different
// odd constants.
type mixer struct{ a, b uint64 }

func newMixer() mixer { return mixer{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f} }

func (m *mixer) word(w uint64) {
	hi, lo := bits.Mul64(m.a^w, 0xd6e8feb86659fd93)
	m.a = hi ^ lo + 0x2545f4914f6cdd1d
	hi, lo = bits.Mul64(m.b+w, 0xa0761d6478bd642f)
	m.b = bits.RotateLeft64(hi^lo, 23) ^ w*0xe7037ed1a0b428db
}

func (m *mixer) sum() [2]uint64 {
	m.word(0x1d8e4e27c47d124f)
	m.word(0xeb44accab455d165)
	return [2]uint64{m.a, m.b}
}
