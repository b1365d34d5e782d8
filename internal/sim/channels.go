package sim

import (
	"encoding/binary"
	"slices"
)

// channels is the smallest channel state with both kinds of content: a cursor
// that only rises (an ordered channel) and a set that only grows (finished
// sequences). It implements replica.Register.
type channels struct {
	cursor uint64
	set    []uint64 // bit i: change i is applied
}

// encodeChange makes the delta of change n with its cursor.
func encodeChange(n, cursor uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	return binary.LittleEndian.AppendUint64(b, cursor)
}

func (c *channels) clone() channels {
	return channels{cursor: c.cursor, set: slices.Clone(c.set)}
}

// Snapshot implements replica.Register.
func (c *channels) Snapshot() []byte {
	b := binary.LittleEndian.AppendUint64(nil, c.cursor)
	for _, w := range c.set {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// Apply implements replica.Register.
func (c *channels) Apply(delta []byte) {
	n := binary.LittleEndian.Uint64(delta)
	for uint64(len(c.set)) <= n/64 {
		c.set = append(c.set, 0)
	}
	c.set[n/64] |= 1 << (n % 64)
	c.cursor = max(c.cursor, binary.LittleEndian.Uint64(delta[8:]))
}

// Replace implements replica.Register.
func (c *channels) Replace(full []byte) {
	*c = channels{}
	if len(full) == 0 {
		return
	}
	c.cursor = binary.LittleEndian.Uint64(full)
	for b := full[8:]; len(b) >= 8; b = b[8:] {
		c.set = append(c.set, binary.LittleEndian.Uint64(b))
	}
}

// lacks returns the first change of o that c does not have.
func (c *channels) lacks(o *channels) (n uint64, ok bool) {
	for i, w := range o.set {
		var mine uint64
		if i < len(c.set) {
			mine = c.set[i]
		}
		if missing := w &^ mine; missing != 0 {
			for n := uint64(0); n < 64; n++ {
				if missing>>n&1 != 0 {
					return uint64(i)*64 + n, true
				}
			}
		}
	}
	return 0, false
}
