package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/dump"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

func newDump(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "dump FILE...",
		Short: "print the files of a data directory: segments, commit logs, journal",
		Long: `dump prints a segment (.seg), a commit log (.idx) or a journal file (.log), one
line per batch or record. It is read-only and may run beside a broker. Exit code 1
if a file is damaged. With -o json each line is an object with the file and the
entry, and the last one of a file has its counts.`,
		Example: `  nsqctl dump data/n1/topics/*/0/*.seg | tail`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			damaged := 0
			for _, name := range args {
				s, err := dumpFile(out, name, t.Output == "json", len(args) > 1)
				if err != nil {
					_ = out.Flush() // the error of the command matters more
					return err
				}
				damaged += s.Damaged
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if damaged > 0 {
				return fmt.Errorf("%d damaged places", damaged)
			}
			return nil
		},
	}
}

// dumpFile prints one file and its counts; titled puts its name before it.
func dumpFile(out io.Writer, name string, asJSON, titled bool) (dump.Summary, error) {
	if asJSON {
		lines := &jsonLines{to: json.NewEncoder(out), file: name}
		s, err := dump.File(lines, vfs.OS{}, name)
		if err != nil {
			return s, err
		}
		return s, lines.to.Encode(map[string]any{"file": name, "entries": s.Entries, "damaged": s.Damaged})
	}
	if titled {
		fmt.Fprintf(out, "%s:\n", name)
	}
	s, err := dump.File(out, vfs.OS{}, name)
	if err != nil {
		return s, err
	}
	_, err = fmt.Fprintf(out, "%d entries, %d damaged\n", s.Entries, s.Damaged)
	return s, err
}

// jsonLines makes an object of every line.
type jsonLines struct {
	to   *json.Encoder
	file string
	open []byte // the beginning of a line
}

// Write takes text in pieces of any size.
func (j *jsonLines) Write(p []byte) (int, error) {
	j.open = append(j.open, p...)
	for {
		line, rest, whole := bytes.Cut(j.open, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if err := j.to.Encode(map[string]string{"file": j.file, "entry": string(line)}); err != nil {
			return 0, err
		}
		j.open = append(j.open[:0], rest...)
	}
}
