// Package dump has the command of nsqctl that prints the files of a data directory, one line per batch or record. It is
// read-only.
//
// # Invariants
//
//  1. Damage is printed with its offset, and counted; printing continues at the next readable entry.
//  2. The whole file is in memory: the tool is for one file at a time.
package dump

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// New returns the command.
func New(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "dump FILE...",
		Short: "print the files of a data directory: segments, commit logs, journal",
		Long: `dump prints a segment (.seg), a commit log (.idx) or a journal file (.log), one line per batch or record.
It is read-only and may run beside a broker. Exit code 1 if a file is damaged. With -o json each line is an object with
the file and the entry, and the last one of a file has its counts.`,
		Example: `  nsqctl dump data/n1/topics/*/0/*.seg | tail`,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			damaged := 0
			for _, name := range args {
				s, err := printFile(out, name, t.Output == "json", len(args) > 1)
				if err != nil {
					_ = out.Flush() // the error of the command matters more
					return err
				}
				damaged += s.damaged
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if damaged > 0 {
				return errors.New(api.Count(damaged, "damaged place"))
			}
			return nil
		},
	}
}

// printFile prints one file and its counts; titled puts its name before it.
func printFile(out io.Writer, name string, asJSON, titled bool) (summary, error) {
	if asJSON {
		lines := json.NewEncoder(out)
		s, err := file(func(line string) error { return lines.Encode(map[string]string{"file": name, "entry": line}) }, vfs.OS, name)
		if err == nil {
			err = lines.Encode(map[string]any{"file": name, "entries": s.entries, "damaged": s.damaged})
		}
		return s, err
	}
	if titled {
		fmt.Fprintf(out, "%s:\n", name)
	}
	s, err := file(func(line string) error { _, err := fmt.Fprintln(out, line); return err }, vfs.OS, name)
	if err == nil {
		_, err = fmt.Fprintf(out, "%d entries, %d damaged\n", s.entries, s.damaged)
	}
	return s, err
}

// errUnknown means that the kind of a file cannot be derived from its name.
var errUnknown = errors.New("dump: not a segment (.seg), a commit log (.idx) or a journal file (.log)")

// summary counts the entries of a file.
type summary struct {
	entries int // batches, records or groups
	damaged int // unreadable places
}

// file prints a file. Its name selects the format.
func file(print func(line string) error, fs vfs.FS, name string) (summary, error) {
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		return summary{}, fmt.Errorf("dump: %w", err)
	}
	p := &printer{print: print}
	switch path.Ext(name) {
	case ".seg":
		base, err := strconv.ParseInt(strings.TrimSuffix(path.Base(name), ".seg"), 10, 64)
		if err != nil {
			base = -1 // a renamed copy: the offsets in the headers are used
		}
		p.segment(b, ident.Offset(base))
	case ".idx":
		p.commitLog(b)
	case ".log":
		p.journal(b)
	default:
		return summary{}, fmt.Errorf("%w: %s", errUnknown, name)
	}
	return p.summary, p.err
}

type printer struct {
	summary
	print func(line string) error
	err   error // the first error of print
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		p.err = p.print(fmt.Sprintf(format, args...))
	}
}

func (p *printer) damage(from, to int, err error) {
	p.damaged++
	p.line("DAMAGED bytes %d to %d of the file: %v", from, to, err)
}

func (p *printer) batch(indent string, b queue.Batch) {
	kind := api.Count(int(b.Count), "message")
	if b.Control != 0 {
		kind = fmt.Sprintf("control %d", b.Control)
	}
	p.line("%soffset %d sequence %d epoch %d %s size %d crc %08x prev %08x time %s request %d.%d", indent,
		b.At.Offset, b.At.Sequence, b.Epoch, kind, b.End.Offset-b.At.Offset, b.CRC, b.PrevCRC,
		time.Unix(0, b.Time).UTC().Format(time.RFC3339Nano), b.Request.Producer, b.Request.N)
}

// segment prints batches. After damage it continues at the next batch whose offset matches its position.
func (p *printer) segment(data []byte, base ident.Offset) {
	for at := 0; at < len(data); {
		b, n, err := placed(data[at:], base, at)
		if err == nil {
			p.batch("", b)
			p.entries++
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
		err = fmt.Errorf("%w: a batch for offset %d is at %d", queue.ErrCorrupt, batch.At.Offset, base+ident.Offset(at))
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
		p.entries++
		p.line("offset %d sequence %d count %d epoch %d size %d crc %08x time %s",
			r.Offset, r.First, r.Count, r.Epoch, r.Size, r.CRC, time.UnixMilli(r.TimeMS).UTC().Format(time.RFC3339Nano))
	}
}

// journal prints groups. Bytes after the file's last group are zero or left from an earlier use of the file; they are
// printed as far as they are readable.
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
		p.entries++
		p.line("group %d generation %d synced %d bytes %d crc %08x prev %08x at %d", h.Group, h.Generation, h.Synced, h.Length, h.CRC, h.PrevCRC, at)
		p.records(body)
		at += n
	}
}

func (p *printer) records(body []byte) {
	for len(body) > 0 {
		r, n, err := store.DecodeRecord(body)
		if err != nil {
			p.damaged++
			p.line("  DAMAGED: %v", err)
			return
		}
		p.line("  %s slot %016x epoch %d %s", kinds[r.Kind], r.Slot, r.Epoch, detail(r))
		for b := r.Encoded; len(b) > 0; {
			batch, n, err := queue.Decode(b)
			if err != nil {
				p.damaged++
				p.line("    DAMAGED: %v", err)
				break
			}
			p.batch("    ", batch)
			b = b[n:]
		}
		body = body[n:]
	}
}

var kinds = [...]string{"?", "append", "epoch", "reset", "truncate", "confirm", "committed", "restart", "identities"}

func detail(r store.Record) string {
	switch r.Kind {
	case queue.WriteState:
		return fmt.Sprintf("version %d.%d full %t bytes %d", r.State.Epoch, r.State.N, r.State.Full, len(r.State.Delta))
	case queue.WriteAppend, queue.WriteEpoch:
		return fmt.Sprintf("bytes %d", len(r.Encoded))
	}
	return fmt.Sprintf("offset %d sequence %d", r.At.Offset, r.At.Sequence)
}
