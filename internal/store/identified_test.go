package store

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestIdentitiesAreFoundAgain: a store that is opened finds the messages with identities of the newest
// time, and says if there are others that it does not return.
func TestIdentitiesAreFoundAgain(t *testing.T) {
	fs := vfs.NewMemory()
	id := ident.Partition{Topic: 1}
	open := func() (*Store, *Partition) {
		s, err := Open(testOptions(fs))
		require.NoError(t, err)
		p, ok := s.Partition(id)
		if !ok {
			p, err = s.Create("t", id)
			require.NoError(t, err)
		}
		return s, p
	}
	s, p := open()
	w := &world{}
	w.cond.L = &w.mu
	at, crc := ident.Position{}, uint32(0)
	for n := range 300 { // one a second, every third with an identity
		d := queue.NewDraft(0)
		m := queue.Message{Body: fmt.Appendf(nil, "message %-492d", n)}
		if n%3 == 0 {
			m.Identity = queue.IdentityOf(fmt.Append(nil, n))
		}
		require.NoError(t, d.AddMessage(m))
		draft := d.Draft(ident.RequestID{})
		b := draft.Seal(at, 1, crc, int64(n)*1e9)
		p.Index().Append(indexRecord(b))
		s.Submit([]Submission{{Partition: p, Writes: []queue.Write{{Kind: queue.WriteAppend, Epoch: 1, At: at, Batches: []queue.Batch{b}}}}}, w, uint64(n))
		at, crc = b.End, b.CRC
		if n == 150 {
			require.NoError(t, s.Checkpoint())
		}
	}
	require.NoError(t, s.Close())
	s, p = open()
	all, lost := p.Identified(0, 1000)
	require.False(t, lost)
	require.Len(t, all, 100)
	for i, x := range all {
		require.EqualValues(t, 3*i, x.First)
		require.Equal(t, []queue.Identity{queue.IdentityOf(fmt.Append(nil, 3*i))}, x.Identities)
		require.EqualValues(t, 500+4+1+16+queue.HeaderSize, x.End-x.At)
	}
	newest, lost := p.Identified(200_000, 1000)
	require.False(t, lost)
	require.Equal(t, all[67:], newest)
	few, lost := p.Identified(0, 10)
	require.True(t, lost)
	require.Equal(t, all[90:], few)
	require.NoError(t, s.Close())

	flipIn(t, fs, path.Dir(p.segments.Name(0)), "message 240 ")
	s, p = open()
	some, lost := p.Identified(0, 1000)
	require.True(t, lost, "a place cannot be read")
	require.Equal(t, append(append([]queue.IdentifiedPut(nil), all[:80]...), all[81:]...), some)
	require.NoError(t, s.Close())
}
