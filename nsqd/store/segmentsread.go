package store

import (
	"errors"
	"fmt"
	"io"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// readAt reads and checks whole batches from offset `from`, where a batch begins, up to limit: about max bytes, at
// least one batch. A damaged batch ends the result; if it is the first, the error is a *queue.Damage.
func (s *segments) readAt(from, limit ident.Offset, max int) ([]queue.Batch, error) {
	return s.read(from, limit, max, s.readBytes)
}

// readDisk is readAt bypassing the page cache: it returns the content of the disk (see vfs.ReadDisk).
func (s *segments) readDisk(from, limit ident.Offset, max int) ([]queue.Batch, error) {
	return s.read(from, limit, max, s.diskBytes)
}

// byteReader reads n bytes of a segment from an offset of the log on.
type byteReader func(g segment, from ident.Offset, n int64) ([]byte, error)

func (s *segments) read(from, limit ident.Offset, max int, bytes byteReader) ([]queue.Batch, error) {
	g, ok := s.covering(from)
	if !ok || from >= limit {
		if from < s.end() && from < limit {
			return nil, s.hole(from)
		}
		return nil, nil
	}
	end := min(g.end(), limit)
	b, err := bytes(g, from, min(int64(max), int64(end-from)))
	if err != nil || len(b) < queue.HeaderSize { // batches before an unreadable range must remain readable
		b, err = bytes(g, from, min(queue.HeaderSize, int64(end-from)))
	}
	if err != nil {
		return nil, &queue.Damage{From: from, To: end, Err: err}
	}
	batches, err := decodeRun(b, from)
	if len(batches) == 0 && errors.Is(err, queue.ErrTorn) {
		if b, err = s.readFirst(g, b, from, end, bytes); err == nil {
			batches, err = decodeRun(b, from)
		}
	}
	if len(batches) > 0 {
		return batches, nil
	}
	return nil, s.damage(b, from, end, err)
}

// readFirst reads one batch that is larger than the requested bytes.
func (s *segments) readFirst(g segment, head []byte, from, end ident.Offset, bytes byteReader) ([]byte, error) {
	_, n, err := queue.DecodeHeader(head)
	if err != nil {
		return nil, err
	}
	if int64(n) > int64(end-from) {
		return nil, fmt.Errorf("%w: the batch passes the end of its file or of the log", queue.ErrCorrupt)
	}
	return bytes(g, from, int64(n))
}

func (s *segments) diskBytes(g segment, from ident.Offset, n int64) ([]byte, error) {
	return vfs.ReadDisk(s.fs, s.name(g.base), int64(from-g.base), n)
}

func (s *segments) readBytes(g segment, from ident.Offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	err := s.files.Use(s.name(g.base), func(f vfs.File) error {
		read, err := f.ReadAt(b, int64(from-g.base))
		if errors.Is(err, io.EOF) && read == len(b) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// decodeRun decodes batches that follow each other from offset at. The error is why it stopped before the end.
func decodeRun(b []byte, at ident.Offset) ([]queue.Batch, error) {
	var batches []queue.Batch
	for len(b) > 0 {
		batch, n, err := queue.Decode(b)
		if err != nil {
			return batches, err
		}
		if batch.At.Offset != at {
			return batches, fmt.Errorf("%w: a batch for offset %d is at %d", queue.ErrCorrupt, batch.At.Offset, at)
		}
		batches = append(batches, batch)
		b, at = b[n:], batch.End.Offset
	}
	return batches, nil
}

func (s *segments) damage(b []byte, from, end ident.Offset, err error) error {
	to := end
	if head, _, headErr := queue.DecodeHeader(b); headErr == nil && head.At.Offset == from {
		to = min(head.End.Offset, end)
	}
	return &queue.Damage{From: from, To: to, Err: err}
}

// hole is the damage of a range that no file covers. A repair must fill it from its start.
func (s *segments) hole(o ident.Offset) *queue.Damage {
	d := &queue.Damage{From: o, To: s.end(), Err: fmt.Errorf("%w: no segment file covers this range", queue.ErrCorrupt)}
	for _, g := range s.segments() {
		if g.base > o {
			d.To = g.base
			break
		}
		d.From = g.end()
	}
	return d
}

// scanBytes is the number of bytes that headers reads at a time.
const scanBytes = 256 << 10

// headers calls visit for the header of each batch from offset `from`, where a batch begins, up to limit, until visit
// returns false. It returns the offset at which it stopped and, if it could not continue, a *queue.Damage.
func (s *segments) headers(from, limit ident.Offset, visit func(queue.Batch) bool) (ident.Offset, error) {
	var buf []byte
	bufAt := from
	for from < limit {
		g, ok := s.covering(from)
		switch {
		case !ok && from < s.end():
			return from, s.hole(from)
		case !ok:
			return from, nil
		}
		end := min(g.end(), limit)
		at := int(from - bufAt)
		if at < 0 || at+queue.HeaderSize > len(buf) {
			var err error
			if buf, err = s.readBytes(g, from, min(scanBytes, int64(end-from))); err != nil {
				return from, &queue.Damage{From: from, To: end, Err: err}
			}
			bufAt, at = from, 0
		}
		head, _, err := queue.DecodeHeader(buf[at:])
		if err == nil && (head.At.Offset != from || head.End.Offset > end) {
			err = fmt.Errorf("%w: the header names offsets %d to %d", queue.ErrCorrupt, head.At.Offset, head.End.Offset)
		}
		if err != nil {
			return from, &queue.Damage{From: from, To: end, Err: err}
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

// base is the first offset of the file that covers o, where a batch begins; false without such a file.
func (s *segments) base(o ident.Offset) (ident.Offset, bool) {
	g, ok := s.covering(o)
	return g.base, ok
}

func (s *segments) bases() []ident.Offset {
	list := s.segments()
	bases := make([]ident.Offset, len(list))
	for i, g := range list {
		bases[i] = g.base
	}
	return bases
}
