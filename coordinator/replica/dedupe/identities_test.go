package dedupe

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// used is the number of names.
func (x *index) used() (n int) {
	for i := range x.tables {
		n += x.tables[i].used
	}
	return n
}

// plain does what identities does: a slice, and a map of the newest entries by their identity. A name that was
// removed stays away, although an older entry with the identity may be there.
type plain struct {
	entries []identified
	names   map[queue.Identity]ident.Sequence
}

func (p *plain) push(e identified) {
	p.entries, p.names[e.identity] = append(p.entries, e), e.seq
}

func (p *plain) pop(i int) {
	if e := p.entries[i]; p.names[e.identity] == e.seq {
		delete(p.names, e.identity)
	}
	if i == 0 {
		p.entries = p.entries[1:]
	} else {
		p.entries = p.entries[:i]
	}
}

// heap is the size of what is reachable.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func numberedIdentity(n uint64) (x queue.Identity) {
	binary.LittleEndian.PutUint64(x[3:], n+1)
	return x
}

// matches compares all of both, and looks for identities that are not there.
func (p *plain) matches(t *testing.T, s *identities, most uint64) {
	t.Helper()
	require.Equal(t, len(p.entries), s.len())
	require.Equal(t, len(p.names), s.index.used())
	for i, e := range p.entries {
		if *s.at(s.first + uint64(i)) != e {
			t.Fatalf("entry %d of %d is another one", i, len(p.entries))
		}
	}
	for n := range min(most, 4000) {
		x := numberedIdentity(n)
		seq, there := p.names[x]
		if e := s.find(x); there != (e != nil) || there && e.seq != seq {
			t.Fatalf("identity %d: %v, and not %t, %d", n, e, there, seq)
		}
	}
	for i := range s.index.tables {
		x := &s.index.tables[i]
		occupied := 0
		for _, s := range x.slots {
			if s != 0 {
				occupied++
			}
		}
		if occupied != x.used || 8*occupied > 5*len(x.slots) { // without free slots no search ends
			t.Fatalf("%d slots are used, not %d, of %d", occupied, x.used, len(x.slots))
		}
	}
}

// TestIdentitiesAreAMapAndAList: whatever is added and removed, at whichever end, in windows of one table and
// of many, with few identities that come again and with many.
func TestIdentitiesAreAMapAndAList(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		s, p := identities{}, &plain{names: map[queue.Identity]ident.Sequence{}}
		most := []uint64{3, 50, 4000, 1 << 40}[seed%4]
		limit := []int{5, 300, 5000}[seed%3]
		seq := ident.Sequence(0)
		for range 60 {
			grows := random.IntN(3) > 0
			for range random.IntN(limit) {
				switch n := random.IntN(10); {
				case n < 2 && len(p.entries) > 0, n < 5 && !grows && len(p.entries) > 0:
					s.popOldest()
					p.pop(0)
				case n < 3 && len(p.entries) > 0, n < 7 && !grows && len(p.entries) > 0:
					s.popNewest()
					p.pop(len(p.entries) - 1)
				default:
					seq++
					e := identified{identity: numberedIdentity(random.Uint64N(most)), seq: seq, at: ident.Offset(seq), end: ident.Offset(seq + 1)}
					s.push(e)
					p.push(e)
				}
			}
			if random.IntN(4) == 0 {
				before := s
				s = s.clone()
				for before.len() > 0 { // the copy shares nothing
					before.popOldest()
				}
			}
			p.matches(t, &s, most)
		}
		for len(p.entries) > 0 {
			s.popOldest()
			p.pop(0)
		}
		p.matches(t, &s, most)
		require.Nil(t, s.blocks)
		require.Nil(t, s.index.tables)
	}
}

// TestManyIdentities: a window of a million, in which each is found, and from which each is removed. One takes at
// most the memory that the documents say.
func TestManyIdentities(t *testing.T) {
	s := identities{}
	const n = 1 << 20
	before := heap()
	for i := range uint64(n) {
		s.push(identified{identity: numberedIdentity(i), seq: ident.Sequence(i)})
	}
	require.Len(t, s.index.tables, fanOut)
	each := float64(heap()-before) / n
	require.LessOrEqual(t, each, 80.0)
	t.Logf("%.1f bytes for each of %d", each, n)
	for i := range uint64(n) {
		if e := s.find(numberedIdentity(i)); e == nil || e.seq != ident.Sequence(i) {
			t.Fatalf("%d is not found", i)
		}
	}
	require.Nil(t, s.find(numberedIdentity(n)))
	for i := range uint64(n) {
		s.popOldest()
		if s.find(numberedIdentity(i)) != nil {
			t.Fatalf("%d is still found", i)
		}
	}
	require.Nil(t, s.index.tables)
}
