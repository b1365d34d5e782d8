package store

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// border is the end of a batch, with the state from which the chain continues.
type border struct {
	at   ident.Position
	crc  uint32
	time int64
}

// expected is the required state of one partition after a number of submissions.
type expected struct {
	end       border
	start     ident.Position // before retention, which is not submitted
	epoch     ident.Epoch
	committed ident.Position
	version   queue.StateVersion
}

// model is the test's model of one partition.
type model struct {
	p         *Partition
	borders   []border // from the start on, the last is the end
	trimmed   []border // removed by retention
	start     ident.Position
	epoch     ident.Epoch
	committed ident.Position
	version   queue.StateVersion
	requests  uint64
	sent      map[uint32]bool // checksums of all batches ever made
}

// world drives a store with a random history and records every state.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	store   *Store
	models  []*model
	history [][]expected // after that many submissions
	mu      struct {
		sync.Mutex
		acked     int
		submitted int
		err       error
	}
	cond sync.Cond
}

func quiet() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

func testOptions(fs vfs.FS) Options {
	return Options{
		FS: fs, Dir: "data", BootID: "boot", SegmentBytes: 24 << 10, JournalBytes: 32 << 10,
		CheckpointBytes: 80 << 10, TailBytes: 8 << 10, TailsBytes: 16 << 10, IndexRecords: 8, Log: quiet(),
	}
}

// eitherSync lets checkpoints sync the whole disk if n is even, and each file if it is odd.
func eitherSync(o Options, n uint64) Options {
	o.SyncTogether = 1 + int(n%2)*manyPartitions
	return o
}

// newWorld opens a store with three partitions.
func newWorld(t *testing.T, seed uint64, fs vfs.FS) (*world, error) {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	w.cond.L = &w.mu
	s, err := Open(eitherSync(testOptions(fs), seed))
	if err != nil {
		return nil, err
	}
	w.store = s
	for n := range 3 {
		p, err := s.Create(fmt.Sprintf("t%d", n), ident.Partition{Topic: ident.TopicID(n + 1), Number: uint16(n)})
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		w.models = append(w.models, &model{p: p, borders: []border{{}}})
	}
	w.note()
	return w, nil
}

func (w *world) note() {
	states := make([]expected, len(w.models))
	for i, m := range w.models {
		states[i] = expected{end: m.end(), start: m.start, epoch: m.epoch, committed: m.committed, version: m.version}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, states)
	w.mu.submitted = len(w.history) - 1
}

// Synced implements Sink.
func (w *world) Synced(token uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.mu.err = err
	} else if w.mu.err == nil {
		w.mu.acked = int(token)
	}
	w.cond.Broadcast()
}

func (w *world) acked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.acked
}

func (w *world) submitted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.submitted
}

// settle waits until every submission is answered.
func (w *world) settle() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.mu.err == nil && w.mu.acked < w.mu.submitted {
		w.cond.Wait()
	}
	return w.mu.err
}

func (m *model) end() border { return m.borders[len(m.borders)-1] }

func (m *model) batch(rng *rand.Rand, d queue.Draft) queue.Batch {
	e := m.end()
	b := d.Seal(e.at, m.epoch, e.crc, e.time+int64(rng.IntN(1e7)))
	m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
	m.p.Index().Append(b.Record())
	if m.sent == nil {
		m.sent = map[uint32]bool{}
	}
	m.sent[b.CRC] = true
	return b
}

func (m *model) draft(rng *rand.Rand) queue.Draft {
	d := queue.NewDraft(0)
	for range 1 + rng.IntN(3) {
		size := rng.IntN(2000)
		if rng.IntN(60) == 0 {
			size = 70 << 10
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		_ = d.AddMessage(queue.Message{Body: body})
	}
	m.requests++
	return d.Draft(ident.RequestID{Producer: 7, N: m.requests})
}

// cut takes the model back to a random border not below the committed end.
func (m *model) cut(rng *rand.Rand) ident.Position {
	n := len(m.borders)
	for n > 1 && m.borders[n-2].at.Offset >= m.committed.Offset && rng.IntN(3) > 0 {
		n--
	}
	m.borders = m.borders[:n]
	m.p.Index().Truncate(m.end().at.Offset)
	return m.end().at
}

func (m *model) write(rng *rand.Rand) queue.Write {
	switch k := rng.IntN(20); {
	case k == 0:
		m.epoch++
		return queue.Write{Kind: queue.WriteEpoch, Epoch: m.epoch}
	case k <= 2:
		at := m.cut(rng)
		return queue.Write{Kind: queue.WriteTruncate, At: at, PrevCRC: m.end().crc}
	case k <= 4:
		at, prevCRC := m.cut(rng), m.end().crc
		m.epoch++
		marker := queue.Marker()
		return queue.Write{Kind: queue.WriteReset, Epoch: m.epoch, At: at, PrevCRC: prevCRC, Batches: []queue.Batch{m.batch(rng, marker)}}
	case k <= 6:
		m.version = queue.StateVersion{Epoch: m.version.Epoch, N: m.version.N + 1, Delta: []byte{byte(k)}}
		if m.version.Epoch < m.epoch || m.version.N == 1 {
			m.version.Epoch, m.version.N, m.version.Full = m.epoch, 1, true
		}
		return queue.Write{Kind: queue.WriteState, State: m.version}
	case k <= 8:
		if at := m.borders[rng.IntN(len(m.borders))].at; at.Offset > m.committed.Offset {
			m.committed = at
		}
		return queue.Write{Kind: queue.WriteCommitted, At: m.committed}
	case k == 9 && rng.IntN(3) == 0:
		at := ident.Position{Offset: m.end().at.Offset + 1000, Sequence: m.end().at.Sequence + 10}
		m.borders, m.trimmed = []border{{at: at, crc: rng.Uint32()}}, nil
		m.start, m.committed = at, at
		m.p.Index().Restart(at)
		return queue.Write{Kind: queue.WriteRestart, At: at, PrevCRC: m.end().crc}
	}
	w := queue.Write{Kind: queue.WriteAppend, Epoch: m.epoch}
	for range 1 + rng.IntN(3) {
		d := m.draft(rng)
		if rng.IntN(12) == 0 {
			d = queue.NewFile()
		}
		w.Batches = append(w.Batches, m.batch(rng, d))
	}
	return w
}

// step submits writes of one or several partitions.
func (w *world) step() {
	var subs []Submission
	for _, m := range w.models {
		if w.rng.IntN(2) == 0 {
			continue
		}
		sub := Submission{Partition: m.p}
		for range 1 + w.rng.IntN(2) {
			sub.Writes = append(sub.Writes, m.write(w.rng))
		}
		subs = append(subs, sub)
	}
	w.note() // before Submit: a power cut may come in the middle of it
	w.store.Submit(subs, w, uint64(w.submitted()))
}

// run drives n steps, with waits, checkpoints and retention occasionally.
func (w *world) run(n int) error {
	for range n {
		w.step()
		switch w.rng.IntN(12) {
		case 0, 1, 2, 3:
			if err := w.settle(); err != nil {
				return err
			}
		case 4:
			if err := w.store.Checkpoint(); err != nil {
				return err
			}
		case 5:
			if err := w.trim(w.models[w.rng.IntN(len(w.models))]); err != nil {
				return err
			}
		}
		for _, m := range w.models {
			w.readSome(m)
		}
	}
	return w.settle()
}

// trim applies retention up to the committed end.
func (w *world) trim(m *model) error {
	if err := w.settle(); err != nil {
		return err
	}
	if err := m.p.TrimHead(m.committed); err != nil {
		return err
	}
	for m.borders[0].at.Offset < m.p.Start().Offset {
		m.trimmed = append(m.trimmed, m.borders[0])
		m.borders = m.borders[1:]
	}
	return nil
}

// readSome reads from a random border and compares with the model.
func (w *world) readSome(m *model) {
	i := w.rng.IntN(len(m.borders))
	b, err := m.p.ReadAt(m.borders[i].at.Offset, 4000)
	if err != nil {
		return // a test of failing reads
	}
	for _, batch := range b {
		i++
		require.Equal(w.t, m.borders[i], border{batch.End, batch.CRC, batch.Time})
	}
	if i == 0 || len(b) == 0 {
		return
	}
	seq := b[0].At.Sequence
	bySeq, err := m.p.ReadSequence(seq, 1)
	if err == nil && len(bySeq) > 0 {
		require.LessOrEqual(w.t, bySeq[0].At.Sequence, seq)
		require.Greater(w.t, bySeq[0].End.Sequence, seq)
	}
}

// check opens the disk after a crash and compares it with the history.
func check(t *testing.T, fs vfs.FS, history [][]expected, ids []ident.StoreID, acked, submitted int) {
	t.Helper()
	s, err := Open(eitherSync(testOptions(fs), uint64(acked+submitted)))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	checkStore(t, s, history, ids, acked, submitted)
}

// checkStore compares a store that was just opened with the history. It must have the state after some number of
// submissions, the same for all partitions, not below the acknowledged ones.
func checkStore(t *testing.T, s *Store, history [][]expected, ids []ident.StoreID, acked, submitted int) {
	t.Helper()
	list := s.Partitions()
	require.Len(t, list, 3)
	k := submitted
	for ; k >= acked; k-- {
		same := true
		for i, p := range list {
			same = same && matches(p, history[k][i])
		}
		if same {
			break
		}
	}
	if k < acked {
		for i, p := range list {
			r := p.Restored()
			t.Logf("partition %d: %+v crc %08x epoch %d version %d.%d; acked %+v; submitted %+v", i, r.End, r.LastCRC, r.Epoch, r.State.Epoch, r.State.N, history[acked][i], history[submitted][i])
		}
		require.Fail(t, "recovered to no state between acknowledged and submitted")
	}
	for i, p := range list {
		require.Equal(t, ids[i], p.StoreID(), "a crash is not corruption")
		checkLog(t, p, history[k][i])
	}
}

// reopened continues the history of w with a store that was opened again.
func (w *world) reopened(s *Store) *world {
	next := &world{t: w.t, rng: w.rng, store: s}
	next.cond.L = &next.mu
	for i, p := range s.Partitions() {
		r := p.Restored()
		m := &model{
			p: p, start: p.Start(), epoch: r.Epoch, committed: r.KnownCommitted, requests: w.models[i].requests,
			version: queue.StateVersion{Epoch: r.State.Epoch, N: r.State.N},
		}
		m.borders = []border{{at: r.End, crc: r.LastCRC, time: r.LastTimeNS}}
		for at, n := p.Start(), 0; at.Offset < r.End.Offset; n++ {
			batches, err := p.ReadAt(at.Offset, 1)
			require.NoError(w.t, err)
			b := batches[0]
			if n == 0 {
				m.borders = []border{{at: b.At, crc: b.PrevCRC}}
			}
			m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
			at = b.End
		}
		next.models = append(next.models, m)
	}
	next.note()
	return next
}

func matches(p *Partition, e expected) bool {
	r := p.Restored()
	return r.End == e.end.at && r.LastCRC == e.end.crc && r.Epoch == e.epoch && r.KnownCommitted == e.committed &&
		r.State.Epoch == e.version.Epoch && r.State.N == e.version.N
}

// checkLog reads the whole log back: an unbroken chain up to the end.
func checkLog(t *testing.T, p *Partition, e expected) {
	t.Helper()
	at, crc, known := p.Start(), uint32(0), false
	require.GreaterOrEqual(t, at.Offset, e.start.Offset)
	require.Equal(t, at, p.Index().Start())
	requests := map[ident.RequestID]bool{}
	for at.Offset < e.end.at.Offset {
		batches, err := p.ReadAt(at.Offset, 10000)
		require.NoError(t, err)
		require.NotEmpty(t, batches)
		for _, b := range batches {
			require.Equal(t, at, b.At)
			require.True(t, !known || b.PrevCRC == crc)
			r, ok := p.Index().AtOffset(at.Offset + 5)
			require.True(t, ok)
			require.Equal(t, b.Record(), r)
			at, crc, known = b.End, b.CRC, true
			requests[b.Request] = true
		}
	}
	require.Equal(t, e.end.at, at)
	require.True(t, !known || crc == e.end.crc)
	for _, r := range p.Restored().Recent {
		require.True(t, requests[r.Request])
	}
	if known {
		epochs := p.Index().Epochs()
		require.Equal(t, at, epochs[len(epochs)-1].End)
		require.Equal(t, p.Start(), epochs[0].Start)
	}
}

// Submit is Queue and Flush.
func (s *Store) Submit(subs []Submission, sink Sink, token uint64) {
	if s.Queue(subs, sink, token) {
		s.Flush()
	}
}
