package queue

import (
	"errors"
	"fmt"
	"io"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// ReadAt reads whole batches from `from`, where one begins, up to limit: about
// max bytes and at least one batch. Every batch is checked; a batch that does
// not hold ends the answer, and is a *Damage if it is the first. The answer is
// empty at or beyond the end.
func (s *Segments) ReadAt(from, limit ident.Offset, max int) ([]Batch, error) {
	g, ok := s.covering(from)
	if !ok || from >= limit {
		if from < s.End() && from < limit {
			return nil, s.hole(from)
		}
		return nil, nil
	}
	end := min(g.end(), limit)
	b, err := s.readBytes(g, from, min(int64(max), int64(end-from)))
	if err != nil || len(b) < HeaderSize { // what cannot be read must not hide what lies before it
		b, err = s.readBytes(g, from, min(HeaderSize, int64(end-from)))
	}
	if err != nil {
		return nil, &Damage{From: from, To: end, Err: err}
	}
	batches, err := decodeRun(b, from)
	if len(batches) == 0 && errors.Is(err, ErrTorn) {
		if b, err = s.readFirst(g, b, from, end); err == nil {
			batches, err = decodeRun(b, from)
		}
	}
	if len(batches) > 0 {
		return batches, nil
	}
	return nil, s.damage(b, from, end, err)
}

// readFirst reads one batch that is larger than what was asked for.
func (s *Segments) readFirst(g segment, head []byte, from, end ident.Offset) ([]byte, error) {
	_, n, err := DecodeHeader(head)
	if err != nil {
		return nil, err
	}
	if int64(n) > int64(end-from) {
		return nil, fmt.Errorf("%w: it passes the end of its file or of the log", ErrCorrupt)
	}
	return s.readBytes(g, from, int64(n))
}

func (s *Segments) readBytes(g segment, from ident.Offset, n int64) ([]byte, error) {
	h, err := s.files.Open(s.Name(g.base))
	if err != nil {
		return nil, err
	}
	defer h.Release()
	b := make([]byte, n)
	if read, err := h.ReadAt(b, int64(from-g.base)); err != nil && !(errors.Is(err, io.EOF) && read == len(b)) {
		return nil, err
	}
	return b, nil
}

// decodeRun decodes batches that follow each other from offset at. The error is
// why it stopped before the end of b.
func decodeRun(b []byte, at ident.Offset) ([]Batch, error) {
	var batches []Batch
	for len(b) > 0 {
		batch, n, err := Decode(b)
		if err != nil {
			return batches, err
		}
		if batch.At.Offset != at {
			return batches, fmt.Errorf("%w: a batch for offset %d lies at %d", ErrCorrupt, batch.At.Offset, at)
		}
		batches = append(batches, batch)
		b, at = b[n:], batch.End.Offset
	}
	return batches, nil
}

func (s *Segments) damage(b []byte, from, end ident.Offset, err error) error {
	to := end
	if head, _, headErr := DecodeHeader(b); headErr == nil && head.At.Offset == from {
		to = min(head.End.Offset, end)
	}
	return &Damage{From: from, To: to, Err: err}
}

// hole is the damage of a place that no file reaches: the one before it was cut
// short. It has to be filled from its beginning.
func (s *Segments) hole(o ident.Offset) *Damage {
	d := &Damage{From: o, To: s.End(), Err: fmt.Errorf("%w: no file holds it", ErrCorrupt)}
	for _, g := range s.segments() {
		if g.base > o {
			d.To = g.base
			break
		}
		d.From = g.end()
	}
	return d
}

// scanBytes is how much Headers reads at a time.
const scanBytes = 256 << 10

// Headers calls visit for the header of each batch from `from`, where one
// begins, up to limit, until visit returns false. Payloads are not checked. It
// returns where it stopped and, as *Damage, why it could not go on.
func (s *Segments) Headers(from, limit ident.Offset, visit func(Batch) bool) (ident.Offset, error) {
	var buf []byte
	bufAt := from
	for from < limit {
		g, ok := s.covering(from)
		switch {
		case !ok && from < s.End():
			return from, s.hole(from)
		case !ok:
			return from, nil
		}
		end := min(g.end(), limit)
		at := int(from - bufAt)
		if at < 0 || at+HeaderSize > len(buf) {
			var err error
			if buf, err = s.readBytes(g, from, min(scanBytes, int64(end-from))); err != nil {
				return from, &Damage{From: from, To: end, Err: err}
			}
			bufAt, at = from, 0
		}
		head, _, err := DecodeHeader(buf[at:])
		if err == nil && (head.At.Offset != from || head.End.Offset > end) {
			err = fmt.Errorf("%w: misplaced", ErrCorrupt)
		}
		if err != nil {
			return from, &Damage{From: from, To: end, Err: err}
		}
		if !visit(head) {
			return from, nil
		}
		if from = head.End.Offset; from == g.end() {
			buf = nil
		}
	}
	return from, nil
}

// Base gives the beginning of the file that covers o: a place where a batch
// begins, for a search without an index.
func (s *Segments) Base(o ident.Offset) (ident.Offset, bool) {
	g, ok := s.covering(o)
	return g.base, ok
}

// Bases are the beginnings of all files.
func (s *Segments) Bases() []ident.Offset {
	list := s.segments()
	bases := make([]ident.Offset, len(list))
	for i, g := range list {
		bases[i] = g.base
	}
	return bases
}
