package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

func newChannel(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "channel", Short: "list, create, move, pause, empty and delete channels; deferred messages and dead letters"}
	for _, verb := range []string{"pause", "unpause", "empty", "delete"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC CHANNEL",
			Short:   verb + " a channel",
			Example: "  nsqctl channel " + verb + " orders billing",
			RunE:    t.Post("/channel/" + verb),
		})
	}
	cmd.AddCommand(newChannelList(t), newChannelCreate(t), newChannelSeek(t), newChannelDeferred(t), newChannelPolicy(t), newChannelRedrive(t), &cobra.Command{
		Use:     "order TOPIC CHANNEL true|false",
		Short:   "switch the order of a channel on or off: one message in flight per partition",
		Example: `  nsqctl channel order orders billing true`,
		RunE:    t.Post("/channel/setorder"),
	}, &cobra.Command{
		Use:     "cancel TOPIC CHANNEL ID...",
		Short:   "finish deferred messages before they are due",
		Example: `  nsqctl channel cancel orders billing d910000000000007     # an id of "channel deferred"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var n map[string]int
			if err := t.PostAny(cmd.Context(), "/v1/channel/deferred/cancel", cli.Request(cmd, args), &n); err != nil {
				return err
			}
			return printCount(cmd, t, n["cancelled"], "cancelled")
		},
	}, &cobra.Command{
		Use:     "describe TOPIC CHANNEL",
		Short:   "a channel's lag, oldest message, dead letters, and its consumers with their messages in flight",
		Example: `  nsqctl channel describe orders billing`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.ShowConsole(cmd, t, "/v1/console/channel", cli.Request(cmd, args), printChannel)
		},
	})
	return cmd
}

func newChannelCreate(t *cli.Target) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "create TOPIC CHANNEL",
		Short: "create a channel",
		Example: `  nsqctl channel create orders audit --from earliest
  nsqctl channel create orders europe --filter 'header:region^=eu-'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "ordered", "filter")
			if from != "" {
				place, err := cli.Place(from)
				if err != nil {
					return err
				}
				q.Set("from", place)
			}
			return t.PostAny(cmd.Context(), "/channel/create", q, nil)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", cli.Places+"; default: the first channel of a topic begins with its first message, any other with the next message")
	cmd.Flags().Bool("ordered", false, "ordered: one message in flight per partition")
	cmd.Flags().String("filter", "", option.FilterHelp)
	return cmd
}

func newChannelDeferred(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deferred TOPIC CHANNEL",
		Short: "list deferred messages, the next due first",
		Example: `  nsqctl channel deferred orders billing -n 20
  nsqctl channel deferred orders billing -o json`,
		RunE: cli.ShowList(t, "/v1/channel/deferred", "messages", func(w io.Writer, messages []api.DeferredMessage) {
			fmt.Fprintln(w, "ID\tPARTITION\tATTEMPTS\tDUE")
			for _, m := range messages {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", m.ID, m.Partition, m.Attempts, time.Unix(0, m.DeadlineNS).Format(time.RFC3339))
			}
		}, "limit"),
	}
	cmd.Flags().IntP("limit", "n", 100, "largest number of messages")
	return cmd
}

func newChannelPolicy(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy TOPIC CHANNEL",
		Short: "show or set the policy for failing messages, and the filter",
		Long: `policy shows or sets the treatment of failing messages, and the filter of a channel.

A filter is one condition on one header: tag=blue, header:region=eu, header:region^=eu- (prefix), header:region*=eu-*
(glob) or header:region~=^eu-(west|east)$ (RE2); ! in front means the opposite. Messages that it rejects are finished
for this channel. A change applies to all messages that are delivered from then on; messages that are finished already
stay finished, until "channel seek" moves the channel back.`,
		Example: `  nsqctl channel policy orders billing --max-attempts 5 --dead-letter-topic orders-dead --retry-backoff 1s,2,5m,0.2
  nsqctl channel policy orders billing --max-attempts 0
  nsqctl channel policy orders europe --filter 'header:region^=eu-'
  nsqctl channel policy orders europe --filter ''`,
	}
	var settings []string
	for _, r := range option.Policies {
		cmd.Flags().String(r.Flag(), "", r.Help)
		settings = append(settings, r.Flag())
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q := cli.Request(cmd, args, settings...); len(q) > 2 {
			if err := t.PostAny(cmd.Context(), "/v1/channel/policy", q, nil); err != nil {
				return err
			}
		}
		var p api.ChannelPolicy
		if err := t.GetAny(cmd.Context(), "/v1/channel/policy", cli.Request(cmd, args), &p); err != nil {
			return err
		}
		return cli.PrintJSON(cmd.OutOrStdout(), p)
	}
	return cmd
}

func newChannelRedrive(t *cli.Target) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:     "redrive TOPIC CHANNEL",
		Short:   "move a channel's dead letters back to it",
		Example: `  nsqctl channel redrive orders billing -n 100`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return redrive(cmd, t, args, limit)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 1000, "largest number of messages")
	return cmd
}

const redriveEach = 1000 // bounds one request: a broker answers after it has moved all messages

// redrive moves dead letters back until none is left or limit is reached.
func redrive(cmd *cobra.Command, t *cli.Target, args []string, limit int) error {
	q, moved := cli.Request(cmd, args), 0
	for {
		ask := min(limit-moved, redriveEach)
		q.Set("limit", fmt.Sprint(ask))
		var n map[string]int
		switch err := t.PostAny(cmd.Context(), "/v1/channel/redrive", q, &n); {
		case err != nil && moved > 0:
			return fmt.Errorf("%d were redriven, then: %w", moved, err)
		case err != nil:
			return err
		}
		moved += n["redriven"]
		if n["redriven"] < ask || moved == limit {
			return printCount(cmd, t, moved, "redriven")
		}
	}
}

func printCount(cmd *cobra.Command, t *cli.Target, n int, name string) error {
	return cli.Print(cmd, t, map[string]int{name: n}, func(w io.Writer) { fmt.Fprintf(w, "%d %s\n", n, name) })
}

func newChannelSeek(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seek TOPIC CHANNEL POSITION",
		Short: "move a channel's position; messages in flight and deferred ones are dropped",
		Long: `seek moves a channel forward or back, and says how many messages it skips and repeats. POSITION is
earliest, latest, a time (RFC 3339, how long ago, such as 90m, or a Unix time in ns) or a sequence. A sequence beyond
the end of a partition and a time in the future are refused, and nothing is moved. On a terminal it shows the numbers
first, and asks.

A skipped message is not finished, and the channel no longer delivers it. A repeated message was finished or passed
before, or is older than the channel, and the channel delivers it again. Messages that retention has removed count in
neither number.`,
		Example: `  nsqctl channel seek orders audit 2026-11-20T12:00:00Z
  nsqctl channel seek orders audit 90m --dry-run      # the numbers, and nothing else
  nsqctl channel seek orders audit 1200 --partition 0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if args[2], err = cli.Place(args[2]); err != nil {
				return err
			}
			return seek(cmd, t, cli.Request(cmd, args, "partition"))
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

func number[T uint64 | ident.Sequence](n *T) string { return cli.Known(n, "%d") }

func newChannelList(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "all channels with their lag, messages and consumers, the largest lag first",
		Long: `list prints the channels of the cluster, or of a topic. LAG is the age of the oldest message that is
neither finished nor deferred.`,
		Example: `  nsqctl channel list -n 10
  nsqctl channel list orders --sort depth`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.ShowConsole(cmd, t, "/v1/console/channels", cli.Request(cmd, args, "sort", "search", "limit"), printChannels)
		},
	}
	cmd.Flags().String("sort", "lag", "lag, depth, rate or name")
	cmd.Flags().String("search", "", "only channels with this text in topic/channel")
	cmd.Flags().IntP("limit", "n", 50, "largest number of channels, 1 to 500")
	return cmd
}

func printChannels(w io.Writer, v console.Channels) {
	fmt.Fprintln(w, "CHANNEL\tLAG\tWAITING\tIN FLIGHT\tDELAYED\tFINISHED/S\tREQUEUED\tTIMED OUT\tCONSUMERS\tSTATE")
	for _, c := range v.Channels {
		state := "delivers"
		switch {
		case c.Paused:
			state = "paused"
		case c.Clients == 0:
			state = "no consumers"
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%s\n", c.Topic, c.Channel, lag(c.LagSeconds), c.Depth, c.InFlight, c.Deferred, cli.Known(c.Finishes, "%.1f"), c.Requeues, c.Timeouts, c.Clients, state)
	}
	printRest(w, v.Matched-len(v.Channels))
}

func printChannel(w io.Writer, d console.ChannelDetail) {
	printChannels(w, console.Channels{Listed: console.Listed{Matched: 1}, Channels: []console.Channel{d.Channel}})
	if o := d.Oldest; o != nil {
		fmt.Fprintf(w, "\noldest message: partition %d, sequence %d, of %s\n", o.Partition, o.Sequence, time.UnixMilli(o.TimeMS).Format(time.RFC3339))
	}
	switch {
	case d.DeadLetterTopic == "":
		fmt.Fprintln(w, "dead letters: the channel has no dead-letter topic")
	case d.DeadLetters == nil:
		fmt.Fprintf(w, "dead letters: in topic %s, unknown number\n", d.DeadLetterTopic)
	default:
		fmt.Fprintf(w, "dead letters: %[2]d in topic %[1]s\n", d.DeadLetterTopic, *d.DeadLetters)
	}
	fmt.Fprintln(w, "\nCONSUMER\tADDRESS\tBROKER\tREADY\tIN FLIGHT\tOLDEST HELD FOR\tITS ATTEMPT\tITS MESSAGE ID\tRECEIVED\tFINISHED\tREQUEUED\tLAST ACTIVITY\tUSER")
	for _, c := range d.Connections {
		name := cmp.Or(c.ClientID, c.Hostname) + cli.Mark(c.Version == api.OverHTTP, " (HTTP)")
		held := "-\t-\t-"
		if m := c.Oldest; m != nil {
			held = fmt.Sprintf("%s\t%d\t%s", m.For.Round(time.Second), m.Attempts, api.Printable(string(m.ID[:])))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s ago\t%s\n", api.Printable(name), c.RemoteAddress, c.Broker, c.ReadyCount, c.InFlightCount, held,
			c.MessageCount, c.FinishCount, c.RequeueCount, since(c.LastActivity.UnixMilli()), api.Printable(c.AuthIdentity))
	}
}

// since is the time since a moment, in whole seconds: the broker's clock may be ahead.
func since(ms int64) time.Duration {
	return max(time.Since(time.UnixMilli(ms)).Round(time.Second), 0)
}
