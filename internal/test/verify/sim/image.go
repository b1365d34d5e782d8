package sim

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var errTrimmed = errors.New("sim: not retained")

// image is the content of one partition's store: what its journal records add
// up to. Copies share slices, but only the original grows them in place: a copy
// costs nothing, and none sees another's appends.
type image struct {
	start     ident.Position
	startCRC  uint32 // what the first batch's PrevCRC must be
	batches   []queue.Batch
	epoch     ident.Epoch
	committed ident.Position
	confirm   queue.StateVersion   // version only
	confirms  []queue.StateVersion // what adds up to the channels' state
	mark      queue.IdentityMark
	flipped   bool // once; a backup holds the damage too
}

func (m *image) end() ident.Position {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].End
	}
	return m.start
}

func (m *image) lastCRC() uint32 {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].CRC
	}
	return m.startCRC
}

// clone copies the image; both may be appended to.
func (m *image) clone() image {
	c := *m
	c.batches, c.confirms = slices.Clip(m.batches), slices.Clip(m.confirms)
	return c
}

// apply executes one journal record. An error is a write that does not
// continue this log: the machine's view of its own log is wrong.
func (m *image) apply(w queue.Write) error {
	switch w.Kind {
	case queue.WriteAppend:
		return m.append(w.Batches)
	case queue.WriteEpoch:
		return m.promise(w.Epoch)
	case queue.WriteReset:
		if err := m.promise(w.Epoch); err != nil {
			return err
		}
		if err := m.truncate(w.At); err != nil {
			return err
		}
		return m.append(w.Batches)
	case queue.WriteTruncate:
		return m.truncate(w.At)
	case queue.WriteState:
		m.keep(w.State)
	case queue.WriteCommitted:
		m.committed = w.At
	case queue.WriteIdentities:
		m.mark = w.Identities
	case queue.WriteRestart:
		m.start, m.startCRC, m.batches, m.committed, m.mark = w.At, w.PrevCRC, nil, w.At, queue.IdentityMark{}
	default:
		return fmt.Errorf("write of unknown kind %d", w.Kind)
	}
	return nil
}

func (m *image) promise(e ident.Epoch) error {
	if e < m.epoch {
		return fmt.Errorf("promise of epoch %d after %d", e, m.epoch)
	}
	m.epoch = e
	return nil
}

func (m *image) append(bs []queue.Batch) error {
	for _, b := range bs {
		if b.At != m.end() || b.PrevCRC != m.lastCRC() {
			return fmt.Errorf("append at %v with previous crc %08x to a log that ends at %v with %08x",
				b.At, b.PrevCRC, m.end(), m.lastCRC())
		}
		m.batches = append(m.batches, b)
	}
	return nil
}

func (m *image) truncate(p ident.Position) error {
	n := m.index(p.Offset)
	m.batches, m.mark = m.batches[:n:n], m.mark.Cut(p.Offset)
	if m.end() != p {
		return fmt.Errorf("truncation to %v, which is no border (nearest %v)", p, m.end())
	}
	return nil
}

// index finds the first batch that begins at or after o.
func (m *image) index(o ident.Offset) int {
	return sort.Search(len(m.batches), func(i int) bool { return m.batches[i].At.Offset >= o })
}

// trim forgets whole batches that end at or below o, as retention does.
func (m *image) trim(o ident.Offset) {
	n := sort.Search(len(m.batches), func(i int) bool { return m.batches[i].End.Offset > o })
	if n == 0 {
		return
	}
	last := m.batches[n-1]
	m.start, m.startCRC = last.End, last.CRC
	m.batches = m.batches[n:]
}

// foldAfter is how many versions of the channels' state are kept before they
// are folded into one.
const foldAfter = 64

// keep notes a version of the channels' state.
func (m *image) keep(c queue.StateVersion) {
	m.confirm = queue.StateVersion{Epoch: c.Epoch, N: c.N}
	switch {
	case c.Full:
		m.confirms = []queue.StateVersion{c}
	case len(m.confirms) < foldAfter:
		m.confirms = append(m.confirms, c)
	default:
		q := newQueue(nil, nil, nil)
		replica.Replay(q, append(slices.Clip(m.confirms), c))
		m.confirms = []queue.StateVersion{{Epoch: c.Epoch, N: c.N, Full: true, Delta: q.Snapshot()}}
	}
}

// read returns whole batches from o on, about limit bytes, at least one, as a
// store reads them: what does not pass its checksums ends the answer.
func (m *image) read(o ident.Offset, limit int) ([]queue.Batch, error) {
	if o < m.start.Offset {
		return nil, fmt.Errorf("%w: offset %d is below the first retained, %d", errTrimmed, o, m.start.Offset)
	}
	got := make([]queue.Batch, 0, 8)
	for i, size := m.index(o), 0; i < len(m.batches) && (len(got) == 0 || size < limit); i++ {
		b, n, err := queue.Decode(m.batches[i].Bytes)
		if err != nil {
			if len(got) > 0 {
				break
			}
			return nil, &queue.Damage{From: m.batches[i].At.Offset, To: m.batches[i].End.Offset, Err: err}
		}
		got, size = append(got, b), size+n
	}
	return got, nil
}

// atSequence finds the offset of the batch that holds a message, or the first
// one after it.
func (m *image) atSequence(n ident.Sequence) ident.Offset {
	i := sort.Search(len(m.batches), func(i int) bool { return m.batches[i].End.Sequence > n })
	if i == len(m.batches) {
		return m.end().Offset
	}
	return m.batches[i].At.Offset
}

// restored is what a store would report after it opened this content.
func (m *image) restored(index *commitlog.Log) queue.Restored {
	r := queue.Restored{
		Epoch: m.epoch, End: m.end(), LastCRC: m.lastCRC(), KnownCommitted: m.committed,
		State: m.confirm, Epochs: index.Epochs(), Identities: m.mark,
	}
	if r.KnownCommitted.Offset > r.End.Offset {
		r.KnownCommitted = r.End
	}
	r.Recent = make([]queue.RecentPut, 0, len(m.batches))
	for _, b := range m.batches {
		r.LastTimeNS = max(r.LastTimeNS, b.Time)
		switch {
		case !b.Identified || m.mark.End == 0 || b.At.Offset < m.mark.From:
		case damaged(b):
			r.IdentitiesLost = true
		default:
			p := queue.IdentifiedPut{First: b.At.Sequence, At: b.At.Offset, End: b.End.Offset, Clock: b.Clock}
			b.Identities(func(_ int, x queue.Identity) { p.Identities = append(p.Identities, x) })
			r.Identified = append(r.Identified, p)
		}
		if !b.Request.IsZero() {
			r.Recent = append(r.Recent, queue.RecentPut{
				Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End,
			})
		}
	}
	return r
}

// records describes the content as the commit log does.
func (m *image) records() []commitlog.Record {
	rs := make([]commitlog.Record, 0, len(m.batches)+64)
	for _, b := range m.batches {
		rs = append(rs, commitlog.Record{
			Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
			Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: b.Time / 1e6,
		})
	}
	return rs
}
