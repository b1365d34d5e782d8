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
)

// The commands of this file print the answers of /v1/console/…, which the pages of the console show.

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
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"sort": {sort}, "search": {search}, "limit": {fmt.Sprint(limit)}}
			if len(args) == 1 {
				q.Set("topic", args[0])
			}
			missing := func(v console.Channels) []console.Unreachable { return v.Unreachable }
			return cli.ShowConsole(cmd, t, "/v1/console/channels", q, missing, printChannels)
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "lag", "lag, depth, rate or name")
	cmd.Flags().StringVar(&search, "search", "", "only channels with this text in topic/channel")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "largest number of channels, 1 to 500")
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
	if rest := v.Matched - len(v.Channels); rest > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", rest)
	}
}

func newChannelDescribe(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "describe TOPIC CHANNEL",
		Short:   "a channel's lag, oldest message, dead letters, and its consumers with their messages in flight",
		Example: `  nsqctl channel describe orders billing`,
		RunE: func(cmd *cobra.Command, args []string) error {
			missing := func(d console.ChannelDetail) []console.Unreachable { return d.Unreachable }
			return cli.ShowConsole(cmd, t, "/v1/console/channel", channelArgs(args), missing, printChannel)
		},
	}
}

func printChannel(w io.Writer, d console.ChannelDetail) {
	printChannels(w, console.Channels{Matched: 1, Channels: []console.Channel{d.Channel}})
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
		name := cmp.Or(c.ClientID, c.Hostname) + cli.Mark(c.Protocol == "http", " (HTTP)")
		held := "-\t-\t-"
		if m := c.Oldest; m != nil {
			held = fmt.Sprintf("%s\t%d\t%s", since(m.SinceMS), m.Attempts, api.Printable(m.ID))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s ago\t%s\n", api.Printable(name), c.Address, c.Broker, c.Ready, c.InFlight, held, c.Messages, c.Finishes, c.Requeues, since(c.LastActivityMS), api.Printable(c.User))
	}
}

// since is the time since a moment, in whole seconds: the broker's clock may be ahead.
func since(ms int64) time.Duration {
	return max(time.Since(time.UnixMilli(ms)).Round(time.Second), 0)
}

func lag(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
}

// listTopics prints the topics with their numbers, sorted.
func listTopics(cmd *cobra.Command, t *cli.Target, sort string, limit int) error {
	missing := func(v console.Topics) []console.Unreachable { return v.Unreachable }
	return cli.ShowConsole(cmd, t, "/v1/console/topics", url.Values{"sort": {sort}, "limit": {fmt.Sprint(limit)}}, missing, func(w io.Writer, v console.Topics) {
		size := func(n *float64) string {
			if n == nil {
				return "unknown"
			}
			return cli.Size(*n)
		}
		fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tCHANNELS\tKEPT\tPUT/S\tBYTES/S\tWAITING\tLAG\tMESSAGES")
		for _, x := range v.Topics {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\n",
				x.Topic, x.Partitions, x.ReplicationFactor, x.Channels, size(x.KeptBytes), cli.Known(x.Puts, "%.0f"), size(x.PutBytes), x.Depth, lag(x.LagSeconds), x.Messages)
		}
		if rest := v.Matched - len(v.Topics); rest > 0 {
			fmt.Fprintf(w, "and %d more: -n\n", rest)
		}
	})
}
