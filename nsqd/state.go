package nsqd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// errState: a delta or snapshot does not hold to the format in doc.go.
var errState = errors.New("nsqd: channel state is malformed")

const stateVersion = 1

// kind numbers the records of a delta. The numbers are in the journal and on the
// wire.
type kind uint8

const (
	kindProgress kind = 1 // a channel got further
	kindCreate   kind = 2
	kindDelete   kind = 3
	kindSeek     kind = 4 // explicit move, also back; emptying is a seek to the end
	kindPause    kind = 5
	kindBarrier  kind = 6 // topic pause
	kindKeep     kind = 7 // what a topic without channels keeps
	kindCarry    kind = 8 // where messages were carried
	kindOrder    kind = 9 // a channel becomes ordered, or is no longer
)

const (
	flagOrdered = 1
	flagPaused  = 2
	flagBack    = 4 // keep
	flagSettled = 4 // carry: all in-sync replicas know it
)

// record is one change of the state.
type record struct {
	kind     kind
	channel  string
	flags    byte           // create, pause, barrier, keep, order
	at       ident.Sequence // create, delete (the topic's cursor), seek, barrier, keep
	progress progress
	offset   ident.Offset // carry: where the batch begins
	seqs     []ident.Sequence
}

// saved is one channel of a snapshot.
type saved struct {
	name     string
	flags    byte
	start    ident.Sequence
	progress progress
}

// snapshot is the whole state.
type snapshot struct {
	flags         byte // flagPaused: the topic is paused
	barrier, keep ident.Sequence
	channels      []saved
	carried       []placed // twice what is not settled: brokers of before took all for settled
}

func appendRecord(b []byte, r record) []byte {
	b = append(b, byte(r.kind), r.flags, byte(len(r.channel)))
	b = append(b, r.channel...)
	switch r.kind {
	case kindProgress:
		return appendProgress(b, r.progress)
	case kindCarry:
		b = binary.LittleEndian.AppendUint64(b, uint64(r.offset))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(r.seqs)))
		for _, seq := range r.seqs {
			b = binary.LittleEndian.AppendUint64(b, uint64(seq))
		}
		return b
	}
	return binary.LittleEndian.AppendUint64(b, uint64(r.at))
}

func appendProgress(b []byte, p progress) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(p.confirmed))
	b = le.AppendUint32(b, uint32(len(p.settled)))
	for _, s := range p.settled {
		b = le.AppendUint64(b, uint64(s.from))
		b = le.AppendUint64(b, uint64(s.to))
	}
	b = le.AppendUint32(b, uint32(len(p.aside)))
	for _, e := range p.aside {
		b = le.AppendUint64(b, e.mark)
		b = le.AppendUint64(b, uint64(e.deadline))
	}
	b = le.AppendUint32(b, uint32(len(p.finished)))
	for _, seq := range p.finished {
		b = le.AppendUint64(b, uint64(seq))
	}
	return b
}

// size is the encoded length of p.
func (p *progress) size() int {
	return 8 + 3*4 + 16*len(p.settled) + 16*len(p.aside) + 8*len(p.finished)
}

func appendSnapshot(b []byte, s snapshot) []byte {
	size := 2 + 8 + 8 + 4 + 4 + 16*len(s.carried)
	for i := range s.channels {
		size += 1 + 1 + len(s.channels[i].name) + 8 + s.channels[i].progress.size()
	}
	b = slices.Grow(b, size) // a million deferred messages are 16 MiB
	le := binary.LittleEndian
	b = append(b, stateVersion, s.flags)
	b = le.AppendUint64(b, uint64(s.barrier))
	b = le.AppendUint64(b, uint64(s.keep))
	b = le.AppendUint32(b, uint32(len(s.channels)))
	for _, c := range s.channels {
		b = append(b, c.flags, byte(len(c.name)))
		b = append(b, c.name...)
		b = le.AppendUint64(b, uint64(c.start))
		b = appendProgress(b, c.progress)
	}
	if len(s.carried) == 0 {
		return b
	}
	b = le.AppendUint32(b, uint32(len(s.carried)))
	for _, x := range s.carried {
		b = le.AppendUint64(b, uint64(x.seq))
		b = le.AppendUint64(b, uint64(x.at))
	}
	return b
}

// decodeDelta reads a delta whole before anything of it is applied.
func decodeDelta(b []byte) ([]record, error) {
	d := decoder{b: b}
	d.version()
	var all []record
	for len(d.b) > 0 && d.err == nil {
		r := record{kind: kind(d.byte()), flags: d.byte(), channel: d.name()}
		if r.kind < kindProgress || r.kind > kindOrder {
			d.fail("kind %d", r.kind)
		}
		switch r.kind {
		case kindProgress:
			r.progress = d.progress()
		case kindCarry:
			r.offset = d.offset()
			for n := d.count(8); n > 0; n-- {
				r.seqs = append(r.seqs, d.sequence())
			}
		default:
			r.at = d.sequence()
		}
		all = append(all, r)
	}
	if d.err != nil {
		return nil, d.err
	}
	return all, nil
}

func decodeSnapshot(b []byte) (snapshot, error) {
	d := decoder{b: b}
	d.version()
	s := snapshot{flags: d.byte(), barrier: d.sequence(), keep: d.sequence()}
	for n := d.count(minSavedBytes); n > 0 && d.err == nil; n-- {
		s.channels = append(s.channels, saved{
			flags: d.byte(), name: d.name(), start: d.sequence(), progress: d.progress(),
		})
	}
	if d.err == nil && len(d.b) > 0 {
		n := d.count(16)
		if n == 0 {
			d.fail("an empty list of carried messages") // one state has one encoding
		}
		for ; n > 0; n-- {
			s.carried = append(s.carried, placed{d.sequence(), d.offset()})
		}
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return s, d.err
}

// minSavedBytes is the least that one channel takes in a snapshot.
const minSavedBytes = 1 + 1 + 8 + 8 + 3*4

// decoder reads fixed fields; after the first error it yields zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{errState}, args...)...)
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
	if n > MaxSequence {
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

// count reads a count and checks that so many elements can follow.
func (d *decoder) count(size int) int {
	n := int(binary.LittleEndian.Uint32(d.take(4)))
	if n > len(d.b)/size {
		d.fail("%d elements in %d bytes", n, len(d.b))
		return 0
	}
	return n
}

func (d *decoder) progress() (p progress) {
	p.confirmed = d.sequence()
	for n := d.count(16); n > 0; n-- {
		s := span{d.sequence(), d.sequence()}
		if s.from >= s.to {
			d.fail("range %d–%d", s.from, s.to)
		}
		p.settled = append(p.settled, s)
	}
	n := d.count(16)
	p.aside = slices.Grow(p.aside, n)
	for ; n > 0; n-- {
		e := entry{mark: d.uint64(), deadline: int64(d.uint64())}
		if e.seq() >= MaxSequence {
			d.fail("sequence %d", e.seq())
		}
		p.aside = append(p.aside, e)
	}
	for n := d.count(8); n > 0; n-- {
		p.finished = append(p.finished, d.sequence())
	}
	return p
}
