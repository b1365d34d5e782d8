package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func newChannelSeek(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seek TOPIC CHANNEL POSITION",
		Short: "move a channel's position; messages in flight and deferred ones are dropped",
		Long: `seek moves a channel forward or back, and says how many messages it skips and
repeats. POSITION is earliest, latest, a time (RFC 3339, how long ago, such as
90m, or a Unix time in ns) or a sequence. A sequence beyond the end of a
partition and a time in the future are refused, and nothing is moved. On a
terminal it shows the numbers first, and asks.

A skipped message is not finished, and the channel does not deliver it any more.
A repeated message was finished or passed before, or is older than the channel,
and the channel delivers it again. Messages that retention has removed count in
neither number.`,
		Example: `  nsqctl channel seek orders audit 2026-11-20T12:00:00Z
  nsqctl channel seek orders audit 90m --dry-run      # the numbers, and nothing else
  nsqctl channel seek orders audit 1200 --partition 0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Given(cmd, channelArgs(args), "partition")
			to, err := cli.Place(args[2])
			if err != nil {
				return err
			}
			q.Set("to", to)
			return seek(cmd, t, q)
		},
	}
	cmd.Flags().Int("partition", -1, "only this partition")
	cli.PlanFlags(cmd)
	return cmd
}

// seek makes a seek. With --dry-run, and first on a terminal, it only counts.
func seek(cmd *cobra.Command, t *cli.Target, q url.Values) error {
	post := func() error {
		var r api.SeekResult
		if err := t.PostAny(cmd.Context(), "/v1/channel/seek", q, &r); err != nil {
			return err
		}
		return cli.Print(cmd, t, r, func(w io.Writer) { printSeek(w, r, t.Wide) })
	}
	dry, ask := cli.Planning(cmd, t)
	if dry || ask {
		q.Set("dry_run", "true")
		if err := post(); err != nil || dry {
			return err
		}
		if err := cli.Confirm(cmd.OutOrStdout(), cmd.InOrStdin()); err != nil {
			return err
		}
		q.Del("dry_run")
	}
	return post()
}

func printSeek(w io.Writer, r api.SeekResult, wide bool) {
	skips, repeats, tail := "skipped", "repeated", ""
	if r.DryRun {
		skips, repeats, tail = "would be skipped", "would be repeated", "; nothing has moved"
	}
	fmt.Fprintf(w, "%s messages %s, %s %s%s\n", number(r.Skips), skips, number(r.Repeats), repeats, tail)
	fmt.Fprintln(w, "PARTITION\tFROM\tTO\tSKIPS\tREPEATS\tNOTE")
	for i, m := range r.Partitions {
		if i == cli.StepsShown && !wide {
			fmt.Fprintf(w, "and %d more: -o wide\n", len(r.Partitions)-i)
			break
		}
		note := cli.Mark(m.Stays, "stays: it has consumers")
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", m.Partition, number(m.From), number(m.To), number(m.Skips), number(m.Repeats), note)
	}
}

// number writes a number that may be unknown.
func number[T uint64 | ident.Sequence](n *T) string { return cli.Known(n, "%d") }
