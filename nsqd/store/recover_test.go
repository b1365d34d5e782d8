package store

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestSegmentsThatEndTooEarly: the last file lost data that a checkpoint had synced. The journal
// does not have it any more, so the partition gets a new store id.
func TestSegmentsThatEndTooEarly(t *testing.T) {
	mem, p, sent := longLog(t)
	id := p.StoreID()
	require.NoError(t, p.store.Close())
	last := sent[len(sent)-1]
	name, at := p.fileOf(t, last)
	f, err := mem.Open(name)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(at))
	s := reopen(t, testOptions(mem))
	q := s.Partitions()[0]
	require.NotEqual(t, id, q.StoreID(), "acknowledged bytes are missing")
	require.ErrorIs(t, s.Doubt(), ErrCorrupt)
	require.Equal(t, last.At, q.Restored().End)
}

// TestSegmentsOfAnotherTime: the segments have another batch of the same size than the checkpoint,
// and the journal continues after it.
func TestSegmentsOfAnotherTime(t *testing.T) {
	mem, p, sent := longLog(t)
	id, s, last := p.StoreID(), p.store, sent[len(sent)-1]
	submit(t, s, p, queue.Write{Kind: queue.WriteEpoch, Epoch: 9})
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	d := queue.NewDraft(0)
	body := make([]byte, int(last.End.Offset-last.At.Offset)-queue.HeaderSize-5)
	body[0] = 'x'
	_ = d.AddMessage(queue.Message{Body: body})
	forged := d.Draft(last.Request)
	other := forged.Seal(last.At, last.Epoch, last.PrevCRC, last.Time)
	require.Equal(t, last.End, other.End)
	name, at := p.fileOf(t, last)
	f, err := disk.Open(name)
	require.NoError(t, err)
	_, err = f.WriteAt(other.Bytes, at)
	require.NoError(t, err)
	q := reopen(t, testOptions(disk)).Partitions()[0]
	require.NotEqual(t, id, q.StoreID(), "acknowledged bytes are missing")
}

// TestJournalContinuesALostGroup: a group decays that cut the log and wrote another batch of the
// same size. The later groups do not continue the old log.
func TestJournalContinuesALostGroup(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.say(t, s, "before")
	cut := m.end()
	m.say(t, s, "the bit that stays")
	stays := m.end().at
	m.borders = m.borders[:len(m.borders)-1]
	p.Index().Truncate(cut.at.Offset)
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte("the bit that dwins")})
	again := d.Draft(ident.RequestID{})
	b := again.Seal(cut.at, 1, cut.crc, cut.time)
	require.Equal(t, stays, b.End)
	m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
	p.Index().Append(b.Record())
	submit(t, s, p, queue.Write{Kind: queue.WriteReset, Epoch: 2, At: cut.at, PrevCRC: cut.crc, Batches: []queue.Batch{b}})
	m.say(t, s, "after")
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "the bit that dwins")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID())
	require.Equal(t, stays, q.Restored().End, "a batch lies behind one that it does not continue")
}

// TestRecentPutsAreRestored: repeats of the newest puts are recognised after a start, whatever
// their times, and times do not go back.
func TestRecentPutsAreRestored(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	put := func(n uint64, second int64) {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: []byte("once")})
		e := m.end()
		draft := d.Draft(ident.RequestID{Producer: 7, N: n})
		b := draft.Seal(e.at, 1, e.crc, second*1e9)
		m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
		p.Index().Append(b.Record())
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
	require.Equal(t, []uint64{0, 1, 2, 3, 4}, numbers, "the clock may have jumped after the first")
	require.EqualValues(t, 106e9, r.LastTimeNS)
}

// TestRecentPutsWhateverTheClock: a leader puts a thousand messages a second, and its clock jumps an hour ahead.
// After a start the repeats of the last seconds are recognised, those before the jump, too.
func TestRecentPutsWhateverTheClock(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	e := border{}
	const puts, jump = 20_000, 14_000
	var batches []queue.Batch
	for n := range puts {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: []byte("once")})
		draft := d.Draft(ident.RequestID{Producer: 1 + uint64(n%8), N: uint64(n)})
		ms := int64(n)
		if n >= jump {
			ms += 3_600_000
		}
		b := draft.Seal(e.at, 1, e.crc, ms*1e6)
		e = border{b.End, b.CRC, b.Time}
		p.Index().Append(b.Record())
		if batches = append(batches, b); len(batches) == 500 {
			submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: batches})
			batches = nil
		}
	}
	require.NoError(t, s.Checkpoint())
	o.FS, o.RepeatFor = mem.CrashClone(rand.New(rand.NewPCG(1, 1))), 10*time.Second
	r := reopen(t, o).Partitions()[0].Restored()
	require.LessOrEqual(t, r.Recent[0].Request.N, uint64(puts-9_000), "nine seconds ago")
	require.Greater(t, r.Recent[0].Request.N, uint64(puts-12_000), "and not much more")
}

// TestDoubtOfTheCaller: the caller of Open reports that the directory is an old copy.
func TestDoubtOfTheCaller(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	require.NoError(t, s.Close())
	o.FS, o.Doubt = mem, errors.New("restored from a copy")
	s = reopen(t, o)
	require.NotEqual(t, p.StoreID(), s.Partitions()[0].StoreID())
	require.Equal(t, o.Doubt, s.Doubt())
}
