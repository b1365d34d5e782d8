package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/dump"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

func newDump() *cobra.Command {
	return &cobra.Command{
		Use:   "dump FILE...",
		Short: "print the files of a data directory: segments, commit logs, journal",
		Long: `dump prints a segment (.seg), a commit log (.idx) or a journal file (.log), one
line per batch or record. It is read-only and may run beside a broker. Exit code 1
if a file is damaged.`,
		Example: `  nsqctl dump data/n1/topics/*/0/*.seg | tail`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			damaged := 0
			for _, name := range args {
				if len(args) > 1 {
					fmt.Fprintf(out, "%s:\n", name)
				}
				s, err := dump.File(out, vfs.OS{}, name)
				if err != nil {
					_ = out.Flush() // the error of the command matters more
					return err
				}
				damaged += s.Damaged
				fmt.Fprintf(out, "%d entries, %d damaged\n", s.Entries, s.Damaged)
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
