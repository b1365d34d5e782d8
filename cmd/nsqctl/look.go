package main

import (
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// The commands of this file print what the pages of the console show: the answers of /v1/console/….

func newChannelList(t *cli.Target) *cobra.Command {
	var sort, search string
	limit := 0
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "all channels with their lag, messages and consumers, the largest lag first",
		Long: `list prints the channels of the cluster, or of a topic. LAG is the age of the oldest
message that is neither finished nor deferred.`,
		Example: `  nsqctl channel list -n 10
  nsqctl channel list orders --sort depth`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"sort": {sort}, "search": {search}, "limit": {fmt.Sprint(limit)}}
			if len(args) == 1 {
				q.Set("topic", args[0])
			}
			var v console.Channels
			if done, err := cli.Look(cmd, t, "/v1/console/channels", q, &v, &v.Unreachable); done || err != nil {
				return err
			}
			return printChannels(cmd.OutOrStdout(), v)
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "lag", "lag, depth, rate or name")
	cmd.Flags().StringVar(&search, "search", "", "only channels with this text in topic/channel")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "largest number of channels, 1 to 500")
	return cmd
}

func printChannels(out io.Writer, v console.Channels) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHANNEL\tLAG\tWAITING\tIN FLIGHT\tDELAYED\tFINISHED/S\tREQUEUED\tTIMED OUT\tCONSUMERS\tSTATE")
	for _, c := range v.Channels {
		state := "delivers"
		switch {
		case c.Paused:
			state = "paused"
		case c.Clients == 0:
			state = "no consumers"
		}
		lag := time.Duration(c.LagSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%s\n", c.Topic, c.Channel, lag, c.Depth, c.InFlight, c.Deferred, cli.Known(c.Finishes, "%.1f"), c.Requeues, c.Timeouts, c.Clients, state)
	}
	if rest := v.Matched - len(v.Channels); rest > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", rest)
	}
	return w.Flush()
}

func newChannelDescribe(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "describe TOPIC CHANNEL",
		Short:   "a channel's lag, oldest message, dead letters, and its consumers with the messages that they hold",
		Example: `  nsqctl channel describe orders billing`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d console.ChannelDetail
			if done, err := cli.Look(cmd, t, "/v1/console/channel", channelArgs(args), &d, &d.Unreachable); done || err != nil {
				return err
			}
			return printChannel(cmd.OutOrStdout(), d)
		},
	}
}

func printChannel(out io.Writer, d console.ChannelDetail) error {
	if err := printChannels(out, console.Channels{Listed: console.Listed{Matched: 1}, Channels: []console.Channel{d.Channel}}); err != nil {
		return err
	}
	if o := d.Oldest; o != nil {
		fmt.Fprintf(out, "\noldest message: partition %d, sequence %d, of %s\n", o.Partition, o.Sequence, time.UnixMilli(o.TimeMS).Format(time.RFC3339))
	}
	switch {
	case d.DeadLetterTopic == "":
		fmt.Fprintln(out, "dead letters: the channel has no dead-letter topic")
	case d.DeadLetters == nil:
		fmt.Fprintf(out, "dead letters: in topic %s, unknown number\n", d.DeadLetterTopic)
	default:
		fmt.Fprintf(out, "dead letters: %[2]d in topic %[1]s\n", d.DeadLetterTopic, *d.DeadLetters)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nCONSUMER\tADDRESS\tBROKER\tREADY\tIN FLIGHT\tOLDEST HELD FOR\tITS ATTEMPT\tITS MESSAGE ID\tRECEIVED\tFINISHED\tREQUEUED\tLAST ACTIVITY\tUSER")
	for _, c := range d.Connections {
		name := c.ClientID
		if name == "" {
			name = c.Hostname
		}
		if c.Version == api.OverHTTP {
			name += " (HTTP)"
		}
		held := "-\t-\t-"
		if m := c.Oldest; m != nil {
			held = fmt.Sprintf("%s\t%d\t%s", m.For.Round(time.Second), m.Attempts, api.Printable(string(m.ID[:])))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s ago\t%s\n", api.Printable(name), c.RemoteAddress, c.Broker, c.ReadyCount, c.InFlightCount, held,
			c.MessageCount, c.FinishCount, c.RequeueCount, since(c.LastActivity.UnixMilli()), api.Printable(c.AuthIdentity))
	}
	return w.Flush()
}

// since is the time since a moment, in whole seconds: the broker's clock may be ahead.
func since(ms int64) time.Duration {
	return max(time.Since(time.UnixMilli(ms)).Round(time.Second), 0)
}

// listTopics prints the topics with their numbers, sorted.
func listTopics(cmd *cobra.Command, t *cli.Target, sort string, limit int) error {
	var v console.Topics
	if done, err := cli.Look(cmd, t, "/v1/console/topics", url.Values{"sort": {sort}, "limit": {fmt.Sprint(limit)}}, &v, &v.Unreachable); done || err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tCHANNELS\tKEPT\tPUT/S\tBYTES/S\tWAITING\tLAG\tMESSAGES")
	for _, x := range v.Topics {
		kept, rate := "unknown", "unknown"
		if x.KeptBytes != nil {
			kept = cli.Size(*x.KeptBytes)
		}
		if x.PutBytes != nil {
			rate = cli.Size(*x.PutBytes)
		}
		lag := time.Duration(x.LagSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\n", x.Topic, x.Partitions, x.ReplicationFactor, x.Channels, kept, cli.Known(x.Puts, "%.0f"), rate, x.Depth, lag, x.Messages)
	}
	if rest := v.Matched - len(v.Topics); rest > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", rest)
	}
	return w.Flush()
}
