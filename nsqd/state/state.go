package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// errMalformed means that a delta or snapshot violates the format in doc.go.
var errMalformed = errors.New("state: malformed channel state")

const stateVersion = 1

// kind numbers the records of a delta. The numbers are on disk and on the wire: append only.
type kind uint8

const (
	KindProgress kind = 1 // a channel's cursor advanced
	KindCreate   kind = 2 // a channel begins
	KindDelete   kind = 3 // a channel ends
	KindSeek     kind = 4 // explicit move of the cursor, forward or back; emptying is a seek to the end
	KindPause    kind = 5 // a channel is paused or resumed
	KindBarrier  kind = 6 // topic pause
	KindKeep     kind = 7 // first sequence that a topic without channels keeps
	KindRelocate kind = 8 // offset of a relocation batch and its messages
	KindOrder    kind = 9 // a channel becomes ordered or unordered
)

const (
	// The flags are on disk and on the wire, like Kind. Different kinds use bit 4.
	FlagOrdered = 1 // create, order
	FlagPaused  = 2 // pause, barrier
	FlagBack    = 4 // keep: the cursor moves back
	FlagSettled = 4 // relocate: all in-sync replicas have the relocation
	FlagBeyond  = 8 // relocate: the log ends at the offset, so batches from there on are forgotten
)

// Record is one change of the state.
type Record struct {
	Kind     kind
	Channel  string
	Flags    byte           // create, pause, barrier, keep, order
	ID       uint64         // create: of the channel
	At       ident.Sequence // create, delete (the topic's cursor), seek, barrier, keep
	Progress cursor.Progress
	Offset   ident.Offset // relocate: offset of the batch
	Seqs     []ident.Sequence
}

// Channel is one channel of a snapshot. The ID distinguishes it from an earlier channel of the same name.
type Channel struct {
	Name     string
	ID       uint64
	Flags    byte
	Start    ident.Sequence
	Progress cursor.Progress
}

// Snapshot is the whole state.
type Snapshot struct {
	Flags         byte // FlagPaused: the topic is paused
	Barrier, Keep ident.Sequence
	Channels      []Channel
	Relocated     []Relocated
}

// Relocated is one relocated message, with the newest batch that all in-sync replicas have (0: none) and the newest.
type Relocated struct {
	Seq             ident.Sequence
	Settled, Latest ident.Offset
}

// EncodeDelta encodes records as one delta.
func EncodeDelta(records []Record) []byte {
	b := []byte{stateVersion}
	for _, r := range records {
		b = appendRecord(b, r)
	}
	return b
}

// appendRecord encodes a record. On disk, by position, append only: see doc.go.
func appendRecord(b []byte, r Record) []byte {
	b = append(b, byte(r.Kind), r.Flags, byte(len(r.Channel)))
	b = append(b, r.Channel...)
	switch r.Kind {
	case KindProgress:
		return appendProgress(b, r.Progress)
	case KindRelocate:
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Seqs)))
		for _, seq := range r.Seqs {
			b = binary.LittleEndian.AppendUint64(b, uint64(seq))
		}
		return b
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	if r.Kind == KindCreate {
		b = binary.LittleEndian.AppendUint64(b, r.ID)
	}
	return b
}

func appendProgress(b []byte, p cursor.Progress) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(p.Confirmed))
	b = le.AppendUint32(b, uint32(len(p.Settled)))
	for _, s := range p.Settled {
		b = le.AppendUint64(b, uint64(s.From))
		b = le.AppendUint64(b, uint64(s.To))
	}
	b = le.AppendUint32(b, uint32(len(p.Deferred)))
	for _, e := range p.Deferred {
		b = le.AppendUint64(b, e.Packed)
		b = le.AppendUint64(b, uint64(e.Deadline))
	}
	b = le.AppendUint32(b, uint32(len(p.Finished)))
	for _, seq := range p.Finished {
		b = le.AppendUint64(b, uint64(seq))
	}
	return b
}

// encodedSize is the encoded length of p in bytes.
func encodedSize(p *cursor.Progress) int {
	return 8 + 3*4 + 16*len(p.Settled) + 16*len(p.Deferred) + 8*len(p.Finished)
}

// AppendSnapshot appends an encoded snapshot to b.
func AppendSnapshot(b []byte, s Snapshot) []byte {
	size := 2 + 8 + 8 + 4 + 4 + 24*len(s.Relocated)
	for i := range s.Channels {
		size += 1 + 1 + len(s.Channels[i].Name) + 8 + 8 + encodedSize(&s.Channels[i].Progress)
	}
	b = slices.Grow(b, size) // a million deferred messages are 16 MiB
	le := binary.LittleEndian
	b = append(b, stateVersion, s.Flags)
	b = le.AppendUint64(b, uint64(s.Barrier))
	b = le.AppendUint64(b, uint64(s.Keep))
	b = le.AppendUint32(b, uint32(len(s.Channels)))
	for _, c := range s.Channels {
		b = append(b, c.Flags, byte(len(c.Name)))
		b = append(b, c.Name...)
		b = le.AppendUint64(b, c.ID)
		b = le.AppendUint64(b, uint64(c.Start))
		b = appendProgress(b, c.Progress)
	}
	if len(s.Relocated) == 0 {
		return b
	}
	b = le.AppendUint32(b, uint32(len(s.Relocated)))
	for _, x := range s.Relocated {
		b = le.AppendUint64(b, uint64(x.Seq))
		b = le.AppendUint64(b, uint64(x.Settled))
		b = le.AppendUint64(b, uint64(x.Latest))
	}
	return b
}

// DecodeDelta decodes a delta completely before any record of it is applied. Its error is errMalformed.
func DecodeDelta(b []byte) ([]Record, error) {
	d := decoder{b: b}
	d.version()
	var all []Record
	for len(d.b) > 0 && d.err == nil {
		r := Record{Kind: kind(d.byte()), Flags: d.byte(), Channel: d.name()}
		if r.Kind < KindProgress || r.Kind > KindOrder {
			d.fail("kind %d", r.Kind)
		}
		switch r.Kind {
		case KindProgress:
			r.Progress = d.progress()
		case KindRelocate:
			r.Offset = d.offset()
			for n := d.count(8); n > 0; n-- {
				r.Seqs = append(r.Seqs, d.sequence())
			}
		case KindCreate:
			r.At, r.ID = d.sequence(), d.uint64()
		default:
			r.At = d.sequence()
		}
		all = append(all, r)
	}
	if d.err != nil {
		return nil, d.err
	}
	return all, nil
}

// DecodeSnapshot decodes a snapshot. With an error, errMalformed, the value is not valid.
func DecodeSnapshot(b []byte) (Snapshot, error) {
	d := decoder{b: b}
	d.version()
	s := Snapshot{Flags: d.byte(), Barrier: d.sequence(), Keep: d.sequence()}
	for n := d.count(minSavedBytes); n > 0 && d.err == nil; n-- {
		s.Channels = append(s.Channels, Channel{
			Flags: d.byte(), Name: d.name(), ID: d.uint64(), Start: d.sequence(), Progress: d.progress(),
		})
	}
	if d.err == nil && len(d.b) > 0 {
		n := d.count(24)
		if n == 0 {
			d.fail("an empty list of relocated messages") // not allowed, because each state has exactly one encoding
		}
		for ; n > 0; n-- {
			x := Relocated{d.sequence(), d.offset(), d.offset()}
			if x.Settled > x.Latest || x.Latest == 0 {
				d.fail("relocation batches %d, %d", x.Settled, x.Latest)
			}
			s.Relocated = append(s.Relocated, x)
		}
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return s, d.err
}

// minSavedBytes is the smallest size of one channel in a snapshot.
const minSavedBytes = 1 + 1 + 8 + 8 + 8 + 3*4

// decoder reads fixed fields. After the first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if len(d.b) < n {
		d.fail("cut short")
		return make([]byte, n) // n is a constant or below 256
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) version() {
	if v := d.byte(); d.err == nil && v != stateVersion {
		d.fail("version %d", v)
	}
}

func (d *decoder) byte() byte     { return d.take(1)[0] }
func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *decoder) name() string   { return string(d.take(int(d.byte()))) }

func (d *decoder) sequence() ident.Sequence {
	n := ident.Sequence(d.uint64())
	if n > ident.MaxSequence {
		d.fail("sequence %d", n)
		return 0
	}
	return n
}

func (d *decoder) offset() ident.Offset {
	o := ident.Offset(d.uint64())
	if o < 0 {
		d.fail("offset %d", o)
		return 0
	}
	return o
}

// count reads a count, and checks that the remaining bytes suffice for that many elements.
func (d *decoder) count(size int) int {
	n := int(binary.LittleEndian.Uint32(d.take(4)))
	if n > len(d.b)/size {
		d.fail("%d elements in %d bytes", n, len(d.b))
		return 0
	}
	return n
}

func (d *decoder) progress() (p cursor.Progress) {
	p.Confirmed = d.sequence()
	for n := d.count(16); n > 0; n-- {
		s := cursor.Span{From: d.sequence(), To: d.sequence()}
		if s.From >= s.To {
			d.fail("range %d–%d", s.From, s.To)
		}
		p.Settled = append(p.Settled, s)
	}
	n := d.count(16)
	p.Deferred = slices.Grow(p.Deferred, n)
	for ; n > 0; n-- {
		e := cursor.Entry{Packed: d.uint64(), Deadline: int64(d.uint64())}
		if e.Seq() >= ident.MaxSequence {
			d.fail("sequence %d", e.Seq())
		}
		p.Deferred = append(p.Deferred, e)
	}
	for n := d.count(8); n > 0; n-- {
		p.Finished = append(p.Finished, d.sequence())
	}
	return p
}
