// Package dump prints the files of a data directory as text, one line per batch or record, for
// `nsqctl dump`. It is read-only.
//
// # Invariants
//
//  1. Damage is printed with its offset, and counted; printing continues at the next
//     readable entry.
//  2. The whole file is in memory: the tool is for one file at a time.
package dump

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// ErrUnknown means that the kind of a file cannot be derived from its name.
var ErrUnknown = errors.New("dump: not a segment (.seg), a commit log (.idx) or a journal file (.log)")

// Summary counts the entries of a file.
type Summary struct {
	Entries int // batches, records or groups
	Damaged int // unreadable places
}

// File prints a file. Its name selects the format.
func File(w io.Writer, fs vfs.FS, name string) (Summary, error) {
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		return Summary{}, fmt.Errorf("dump: %w", err)
	}
	p := &printer{w: w}
	switch path.Ext(name) {
	case ".seg":
		base, err := strconv.ParseInt(strings.TrimSuffix(path.Base(name), ".seg"), 10, 64)
		if err != nil {
			base = -1 // a copy with another name: the offsets of the headers count
		}
		p.segment(b, ident.Offset(base))
	case ".idx":
		p.commitLog(b)
	case ".log":
		p.journal(b)
	default:
		return Summary{}, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	return p.Summary, p.err
}

type printer struct {
	Summary
	w   io.Writer
	err error // first error of w
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) damage(from, to int, err error) {
	p.Damaged++
	p.line("DAMAGED bytes %d to %d of the file: %v", from, to, err)
}

func (p *printer) batch(indent string, b queue.Batch) {
	kind := fmt.Sprintf("%d messages", b.Count)
	if b.Control != 0 {
		kind = fmt.Sprintf("control %d", b.Control)
	}
	p.line("%soffset %d sequence %d epoch %d %s size %d crc %08x prev %08x time %s request %d.%d", indent,
		b.At.Offset, b.At.Sequence, b.Epoch, kind, b.End.Offset-b.At.Offset, b.CRC, b.PrevCRC,
		time.Unix(0, b.Time).UTC().Format(time.RFC3339Nano), b.Request.Producer, b.Request.N)
}

// segment prints batches. After damage it continues at the next bytes that are a batch and
// whose offset matches their place.
func (p *printer) segment(data []byte, base ident.Offset) {
	for at := 0; at < len(data); {
		b, n, err := placed(data[at:], base, at)
		if err == nil {
			p.batch("", b)
			p.Entries++
			at += n
			continue
		}
		next := at + 1
		for next < len(data) {
			if _, _, err := placed(data[next:], base, next); err == nil {
				break
			}
			next++
		}
		p.damage(at, next, err)
		at = next
	}
}

func placed(b []byte, base ident.Offset, at int) (queue.Batch, int, error) {
	batch, n, err := queue.Decode(b)
	if err == nil && base >= 0 && batch.At.Offset != base+ident.Offset(at) {
		err = fmt.Errorf("%w: a batch for offset %d lies at %d", queue.ErrCorrupt, batch.At.Offset, base+ident.Offset(at))
	}
	return batch, n, err
}

func (p *printer) commitLog(data []byte) {
	for at := 0; at < len(data); at += commitlog.RecordSize {
		r, err := commitlog.Decode(data[at:])
		if err != nil {
			p.damage(at, min(at+commitlog.RecordSize, len(data)), err)
			continue
		}
		p.Entries++
		p.line("offset %d sequence %d count %d epoch %d size %d crc %08x time %s",
			r.Offset, r.First, r.Count, r.Epoch, r.Size, r.CRC, time.UnixMilli(r.TimeMS).UTC().Format(time.RFC3339Nano))
	}
}

// journal prints groups. Bytes behind the file's last group are zero or of an earlier use of
// the file; they are printed as far as they are readable.
func (p *printer) journal(data []byte) {
	for at := 0; at < len(data); {
		h, body, n, err := journal.DecodeGroup(data[at:])
		if err != nil {
			if h.Group != 0 {
				p.damage(at, min(at+journal.Align, len(data)), err)
			}
			at += journal.Align
			continue
		}
		p.Entries++
		p.line("group %d generation %d synced %d bytes %d crc %08x prev %08x at %d", h.Group, h.Generation, h.Synced, h.Length, h.CRC, h.PrevCRC, at)
		p.records(body)
		at += n
	}
}

func (p *printer) records(body []byte) {
	for len(body) > 0 {
		r, n, err := store.DecodeRecord(body)
		if err != nil {
			p.Damaged++
			p.line("  DAMAGED: %v", err)
			return
		}
		p.line("  %s slot %016x epoch %d %s", kindName(r.Kind), r.Slot, r.Epoch, detail(r))
		for b := r.Encoded; len(b) > 0; {
			batch, n, err := queue.Decode(b)
			if err != nil {
				p.Damaged++
				p.line("    DAMAGED: %v", err)
				break
			}
			p.batch("    ", batch)
			b = b[n:]
		}
		body = body[n:]
	}
}

func kindName(k queue.WriteKind) string {
	return [...]string{"?", "append", "epoch", "reset", "truncate", "confirm", "committed", "restart", "identities"}[k] // DecodeRecord has checked k
}

func detail(r store.Record) string {
	switch r.Kind {
	case queue.WriteState:
		return fmt.Sprintf("version %d.%d full %t bytes %d", r.State.Epoch, r.State.N, r.State.Full, len(r.State.Delta))
	case queue.WriteAppend, queue.WriteEpoch:
		return fmt.Sprintf("bytes %d", len(r.Encoded))
	}
	return fmt.Sprintf("offset %d sequence %d", r.At.Offset, r.At.Sequence)
}
