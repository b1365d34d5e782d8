package store

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestIdentitiesAreFoundAgain: a store that is opened finds the messages with identities from the newest
// mark on, says if there are others that it cannot read, and keeps the mark in the journal and in the
// checkpoint.
func TestIdentitiesAreFoundAgain(t *testing.T) {
	fs := vfstest.NewMemory()
	id := ident.Partition{Topic: 1}
	open := func() (*Store, *Partition, queue.Restored) {
		s, err := Open(testOptions(fs))
		require.NoError(t, err)
		p, ok := s.Partition(id)
		if !ok {
			p, err = s.Create("t", id)
			require.NoError(t, err)
		}
		r := p.Restored()
		p.LoadIdentities(&r)
		return s, p, r
	}
	s, p, r := open()
	require.Empty(t, r.Identities)
	w := &world{}
	w.cond.L = &w.mu
	at, crc := ident.Position{}, uint32(0)
	var begins []ident.Offset
	marked := func(from ident.Offset) queue.Write {
		return queue.Write{Kind: queue.WriteIdentities, Identities: queue.IdentityMark{From: from, End: at.Offset, ClockMS: 7000, Forgotten: 9}}
	}
	for n := range 300 { // every third with an identity
		d := queue.NewDraft(0)
		m := queue.Message{Body: fmt.Appendf(nil, "message %-492d", n)}
		if n%3 == 0 {
			m.Identity = queue.IdentityOf(fmt.Append(nil, n))
			begins = append(begins, at.Offset)
		}
		require.NoError(t, d.AddMessage(m))
		draft := d.Draft(ident.RequestID{})
		draft.Clock = queue.Clock(n + 1)
		b := draft.Seal(at, 1, crc, int64(300-n)*1e9) // a wall clock means nothing
		p.Index().Append(b.Record())
		writes := []queue.Write{{Kind: queue.WriteAppend, Epoch: 1, At: at, Batches: []queue.Batch{b}}}
		at, crc = b.End, b.CRC
		if n == 0 || n == 120 {
			writes = append(writes, marked(begins[0]))
		}
		s.Submit([]Submission{{Partition: p, Writes: writes}}, w, uint64(n))
		if n == 150 {
			require.NoError(t, s.Checkpoint())
		}
	}
	require.NoError(t, s.Close())
	s, p, r = open()
	all := r.Identified
	require.False(t, r.IdentitiesLost)
	require.Len(t, all, 100)
	for i, x := range all {
		require.EqualValues(t, 3*i, x.First)
		require.EqualValues(t, 3*i+1, x.Clock)
		require.Equal(t, []queue.Identity{queue.IdentityOf(fmt.Append(nil, 3*i))}, x.Identities)
		require.EqualValues(t, 500+4+1+16+queue.HeaderSize, x.End-x.At)
	}
	want := queue.IdentityMark{From: begins[67], End: at.Offset, ClockMS: 7000, Forgotten: 9}
	submit(t, s, p, marked(begins[67]))
	for _, what := range []string{"from the journal", "from the checkpoint"} {
		if what == "from the checkpoint" {
			require.NoError(t, s.Checkpoint())
		}
		require.NoError(t, s.Close())
		s, p, r = open()
		require.Equal(t, want, r.Identities, what)
		require.False(t, r.IdentitiesLost, what)
		require.Equal(t, all[67:], r.Identified, what)
	}
	require.NoError(t, s.Close())

	flipIn(t, fs, path.Dir(p.segments.name(0)), "message 240 ")
	s, _, r = open()
	require.True(t, r.IdentitiesLost, "a place cannot be read")
	require.Equal(t, append(append([]queue.IdentifiedPut(nil), all[67:80]...), all[81:]...), r.Identified)
	require.NoError(t, s.Close())
}

// TestACutTakesTheMarkWithIt: batches that replace the cut ones are not forgotten.
func TestACutTakesTheMarkWithIt(t *testing.T) {
	m := queue.IdentityMark{From: 500, End: 700, ClockMS: 1, Forgotten: 2}
	require.Equal(t, queue.IdentityMark{From: 300, End: 300, ClockMS: 1, Forgotten: 2}, m.Cut(300))
	require.Equal(t, m, m.Cut(900))
	require.Empty(t, queue.IdentityMark{}.Cut(300))

	p := &Partition{}
	p.durable.entry = entry{end: ident.Position{Offset: 900}, identities: m}
	rec := newRecovery(p, p.durable.entry)
	require.NoError(t, rec.apply(Record{Write: queue.Write{Kind: queue.WriteTruncate, At: ident.Position{Offset: 300}}}))
	require.EqualValues(t, 300, p.durable.identities.From)
	require.NoError(t, rec.apply(Record{Write: queue.Write{Kind: queue.WriteRestart, At: ident.Position{Offset: 1000}}}))
	require.Empty(t, p.durable.identities, "the log was given up")
	require.NoError(t, rec.apply(Record{Write: queue.Write{Kind: queue.WriteIdentities, Identities: m}}))
	require.Equal(t, m, p.durable.identities)
}

// TestWhereTheMarkIsLost: with the checkpoint, perhaps. Then retention may have removed messages whose ids an
// earlier mark requires: they are lost, and not forgotten silently.
func TestWhereTheMarkIsLost(t *testing.T) {
	for _, trimmed := range []bool{false, true} {
		fs := vfstest.NewMemory()
		s, err := Open(testOptions(fs))
		require.NoError(t, err)
		p, err := s.Create("t", ident.Partition{Topic: 1})
		require.NoError(t, err)
		at, crc := ident.Position{}, uint32(0)
		for n := range 100 {
			d := queue.NewDraft(0)
			require.NoError(t, d.AddMessage(queue.Message{Body: make([]byte, 4000), Identity: queue.IdentityOf(fmt.Append(nil, n))}))
			draft := d.Draft(ident.RequestID{})
			b := draft.Seal(at, 1, crc, 1)
			p.Index().Append(b.Record())
			submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Epoch: 1, At: at, Batches: []queue.Batch{b}})
			at, crc = b.End, b.CRC
			if n == 0 {
				submit(t, s, p, queue.Write{Kind: queue.WriteIdentities, Identities: queue.IdentityMark{End: at.Offset}})
			}
		}
		require.NoError(t, s.Checkpoint())
		if trimmed {
			require.NoError(t, p.TrimHead(at))
			require.NotZero(t, p.Start())
		}
		require.NoError(t, s.Close())
		require.NoError(t, fs.Remove(s.checkpointName()))
		s, err = Open(testOptions(fs))
		require.NoError(t, err)
		p, _ = s.Partition(ident.Partition{Topic: 1})
		r := p.Restored()
		p.LoadIdentities(&r)
		require.NotEmpty(t, r.Identified)
		require.Equal(t, trimmed, r.Identities.Forgotten == queue.ForgottenUnknown)
		require.NoError(t, s.Close())
	}
}

// TestWhereTheFirstMarkIsLost: the journal has lost the group with the first identity and the mark next to it, and the
// segments have the batch. Its identity is found nonetheless.
func TestWhereTheFirstMarkIsLost(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	for range 11 {
		m.put(t, s, 1, 1500)
	}
	at := m.end().at.Offset
	d := queue.NewDraft(0)
	require.NoError(t, d.AddMessage(queue.Message{Body: []byte("m"), Identity: queue.IdentityOf([]byte("a"))}))
	draft := d.Draft(ident.RequestID{})
	draft.Clock = 2
	m.append(t, s, draft)
	submit(t, s, p, queue.Write{Kind: queue.WriteIdentities, Identities: queue.IdentityMark{From: at, End: m.end().at.Offset, ClockMS: 1}})
	end := m.end().at.Offset
	for range 100 {
		m.put(t, s, 1, 1500)
	}
	wait.Until(t, func() bool { return p.segments.end() > end }, "the segments have the batch")
	disk := killed(mem)
	loseTail(t, disk, 11)
	require.NoError(t, disk.Remove("data/journal/acknowledged"))
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID())
	r := q.Restored()
	require.Greater(t, r.End.Offset, at, "the batch is kept")
	q.LoadIdentities(&r)
	require.False(t, r.IdentitiesLost)
	require.Len(t, r.Identified, 1)
	require.Equal(t, at, r.Identified[0].At)
	require.Zero(t, r.Identities.Forgotten, "nothing is before it")
}
