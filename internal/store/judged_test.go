package store

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestSegmentsThatEndTooEarly: the last file lost what a checkpoint had synced. The
// journal does not have it any more, so this is another store from now on.
func TestSegmentsThatEndTooEarly(t *testing.T) {
	mem, p, sent := longLog(t)
	id := p.StoreID()
	require.NoError(t, p.store.Close())
	last := sent[len(sent)-1]
	name, at := p.fileOf(t, last)
	f, err := mem.Open(name)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(at))
	q := reopen(t, testOptions(mem)).Partitions()[0]
	require.NotEqual(t, id, q.StoreID(), "acknowledged bytes are missing")
	require.Equal(t, last.At, q.Restored().End)
}

// TestSegmentsOfAnotherTime: where the checkpoint has one batch the segments have
// another of the same size, and the journal goes on behind it.
func TestSegmentsOfAnotherTime(t *testing.T) {
	mem, p, sent := longLog(t)
	id, s, last := p.StoreID(), p.store, sent[len(sent)-1]
	submit(t, s, p, queue.Write{Kind: queue.WriteEpoch, Epoch: 9})
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	d := queue.NewDraft(0)
	body := make([]byte, int(last.End.Offset-last.At.Offset)-queue.HeaderSize-5)
	body[0] = 'x'
	d.Add(body)
	forged := d.Draft(last.Request)
	other := forged.Seal(last.At, last.Epoch, last.PrevCRC, last.Time)
	require.Equal(t, last.End, other.End)
	name, at := p.fileOf(t, last)
	f, err := disk.Open(name)
	require.NoError(t, err)
	_, err = f.WriteAt(other.Bytes, at)
	require.NoError(t, err)
	q := reopen(t, testOptions(disk)).Partitions()[0]
	require.NotEqual(t, id, q.StoreID(), "what was acknowledged is not there")
}

// TestJournalGoesOnFromWhatIsLost: a group decays that cut the log and put another batch
// of the same size. What comes after it does not continue what was there before.
func TestJournalGoesOnFromWhatIsLost(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.say(t, s, "before")
	cut := m.end()
	m.say(t, s, "the bit that stays")
	stays := m.end().at
	m.borders = m.borders[:len(m.borders)-1]
	p.Index().Truncate(cut.at.Offset)
	d := queue.NewDraft(0)
	d.Add([]byte("the bit that dwins"))
	again := d.Draft(ident.RequestID{})
	b := again.Seal(cut.at, 1, cut.crc, cut.time)
	require.Equal(t, stays, b.End)
	m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
	p.Index().Append(indexRecord(b))
	submit(t, s, p, queue.Write{Kind: queue.WriteReset, Epoch: 2, At: cut.at, PrevCRC: cut.crc, Batches: []queue.Batch{b}})
	m.say(t, s, "after")
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "the bit that dwins")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID())
	require.Equal(t, stays, q.Restored().End, "a batch lies behind one that it does not continue")
}

// TestRecentPutsAreRestored: repeats of the puts of the last half minute are recognised
// after a start, and times do not go back.
func TestRecentPutsAreRestored(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	put := func(n uint64, second int64) {
		d := queue.NewDraft(0)
		d.Add([]byte("once"))
		e := m.end()
		draft := d.Draft(ident.RequestID{Producer: 7, N: n})
		b := draft.Seal(e.at, 1, e.crc, second*1e9)
		m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
		p.Index().Append(indexRecord(b))
		submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{b}})
	}
	for n, second := range []int64{1, 100, 102, 104, 106} {
		put(uint64(n), second)
	}
	o.FS = mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	r := reopen(t, o).Partitions()[0].Restored()
	var numbers []uint64
	for _, put := range r.Recent {
		numbers = append(numbers, put.Request.N)
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, numbers)
	require.EqualValues(t, 106e9, r.LastTimeNS)
}

// TestDoubtOfTheCaller: who opens the store knows that the directory is an old copy.
func TestDoubtOfTheCaller(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	require.NoError(t, s.Close())
	o.FS, o.Doubt = mem, errors.New("restored from a copy")
	require.NotEqual(t, p.StoreID(), reopen(t, o).Partitions()[0].StoreID())
}

// TestQuarantine: what has gone from the log is no damage any more, nor is what another
// reader finds whole.
func TestQuarantine(t *testing.T) {
	var q quarantine
	for i := range ident.Offset(maxQuarantine) {
		require.True(t, q.add(queue.Damage{From: 10 * i, To: 10*i + 10}))
	}
	require.False(t, q.add(queue.Damage{From: 5, To: 10}), "too many")
	q.keep(20, 50)
	require.Len(t, q, 3)
	require.False(t, q.add(queue.Damage{From: 30, To: 40}), "it is known")
	q.release(30, 31)
	require.Equal(t, quarantine{{From: 20, To: 30}, {From: 40, To: 50}}, q)

	_, p, sent := longLog(t)
	require.False(t, p.notice(queue.Damage{From: p.Restored().End.Offset, To: p.Restored().End.Offset + 1}), "it was cut")
	require.True(t, p.notice(queue.Damage{From: sent[3].At.Offset, To: sent[3].End.Offset}))
	_, err := p.Mend(sent[3:4])
	require.NoError(t, err)
	require.Empty(t, p.Damaged(), "it is whole")

	require.NoError(t, p.TrimHead(sent[len(sent)-1].At))
	require.NotZero(t, p.Start().Offset)
	require.False(t, p.notice(queue.Damage{From: 0, To: 1}), "retention took it")
}
