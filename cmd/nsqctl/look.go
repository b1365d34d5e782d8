package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/console"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/events"
)

// The commands of this file print what the pages of the console show: the answers of /v1/console/….

// look gets an answer of the console. done: it is printed already, as JSON. Otherwise silent, the part
// of the answer with the brokers that gave none, has been named on standard error.
func look(cmd *cobra.Command, t *target, path string, q url.Values, answer any, silent *[]console.Unreachable) (done bool, err error) {
	if err := t.GetAny(cmd.Context(), path, q, answer); err != nil {
		return false, err
	}
	if t.output == "json" {
		return true, printJSON(cmd.OutOrStdout(), answer)
	}
	warnSilent(cmd, *silent)
	return false, nil
}

// warnSilent names the brokers whose part is missing.
func warnSilent(cmd *cobra.Command, list []console.Unreachable) {
	for _, u := range list {
		fmt.Fprintf(cmd.ErrOrStderr(), "no answer from %s (%s): its part is missing\n", u.Broker, edge.Printable(u.Reason))
	}
}

func newClusterEvents(t *target) *cobra.Command {
	var since time.Duration
	var kinds, topic, broker string
	limit := 0
	cmd := &cobra.Command{
		Use:   "events",
		Short: "what changed: elections, in-sync sets, brokers, alarms, and who did what",
		Long: `events lists the events that all brokers keep in memory for 24 hours, the newest
last. Administrative actions (kind audit) are listed for administrators of the
cluster, from all brokers, with the user and the address.

Kinds: ` + strings.Join(events.Kinds(), ", ") + `.`,
		Example: `  nsqctl cluster events                                # of the last hour
  nsqctl cluster events --since 24h --kind topic,audit --topic orders
  nsqctl cluster events --broker n2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"since_ms": {fmt.Sprint(time.Now().Add(-since.Abs()).UnixMilli())}, "limit": {fmt.Sprint(limit)}}
			for name, value := range map[string]string{"kind": kinds, "topic": topic, "broker": broker} {
				if value != "" {
					q.Set(name, value)
				}
			}
			var v console.Events
			if done, err := look(cmd, t, "/v1/console/events", q, &v, &v.Unreachable); done || err != nil {
				return err
			}
			if !v.Complete {
				fmt.Fprintln(cmd.ErrOrStderr(), "older events are missing: -n, or a shorter --since")
			}
			return printEvents(cmd.OutOrStdout(), v.Events)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&since, "since", time.Hour, "events of this time")
	f.StringVar(&kinds, "kind", "", "only these kinds, separated by commas")
	f.StringVar(&topic, "topic", "", "only events of this topic")
	f.StringVar(&broker, "broker", "", "only events about this broker")
	f.IntVarP(&limit, "limit", "n", 200, "largest number of events, 1 to 1000")
	return cmd
}

func printEvents(out io.Writer, list []console.Event) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, e := range slices.Backward(list) {
		by := ""
		if e.Identity != "" {
			by = fmt.Sprintf(" (from %s, %s)", e.Remote, e.Result) // the text begins with the user
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", time.UnixMilli(e.TimeMS).Format(time.RFC3339), e.Kind, e.State, edge.Printable(e.Text), by)
	}
	return w.Flush()
}

func newBrokerList(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "state, load, latencies, refused puts, disk and etcd of each broker",
		Long: `list prints a line for each broker. Rates and latencies are those of the last ten
seconds; a latency without a put is "-". BEHIND is the longest time for which the
broker's replicas kept other leaders waiting: a high PUT P99 of one broker and a high
BEHIND of another mean that the other is slow. REFUSED counts the puts of the broker's
clients that were not answered OK since it started, and the second table says why.
A broker that does not answer has unknown numbers.`,
		Example: `  nsqctl broker list
  nsqctl broker list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v console.Brokers
			if done, err := look(cmd, t, "/v1/console/brokers", nil, &v, &v.Unreachable); done || err != nil {
				return err
			}
			return printBrokers(cmd.OutOrStdout(), v.Brokers)
		},
	}
}

func printBrokers(out io.Writer, list []console.Broker) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BROKER\tSTATE\tLEADS\tREPLICAS\tPUT/S\tPUT P99\tSYNC P99\tBEHIND\tREFUSED\tCONNECTIONS\tDISK USED\tDISK FREE\tETCD")
	for _, b := range list {
		if b.Live == nil {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\tunknown\tunknown\tunknown\t%s\tunknown\tunknown\tunknown\tunknown\tunknown\n", b.Name, brokerState(b), b.Leads, b.Replicas, behind(b.BehindSeconds))
			continue
		}
		refused := 0.0
		for _, n := range b.Refused {
			refused += n
		}
		free := "unknown"
		if b.DiskFreeBytes != nil {
			free = size(float64(*b.DiskFreeBytes))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t%s\n", b.Name, brokerState(b), b.Leads, b.Replicas,
			known(b.Puts, "%.0f"), latency(b.PutP99MS), latency(b.SyncP99MS), behind(b.BehindSeconds), refused, b.Connections, size(float64(b.DiskDataBytes)), free, b.Etcd)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	head := "\nBROKER\tPUTS\tNOT ANSWERED OK BECAUSE"
	for _, b := range list {
		if b.Live == nil {
			continue
		}
		for _, why := range slices.Sorted(maps.Keys(b.Refused)) {
			if head != "" {
				fmt.Fprintln(w, head)
				head = ""
			}
			fmt.Fprintf(w, "%s\t%.0f\t%s\n", b.Name, b.Refused[why], why)
		}
	}
	return w.Flush()
}

func brokerState(b console.Broker) string {
	switch {
	case !b.Alive:
		return "dead"
	case b.LowSpace:
		return "disk full"
	case !b.Answered:
		return "silent"
	case b.Leaving:
		return "leaving"
	case b.Drain != "":
		return "drained of " + b.Drain
	}
	return "alive"
}

// known writes a number that may be unknown.
func known(v *float64, format string) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf(format, *v)
}

// latency writes milliseconds; without a put in the last step there are none.
func latency(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", *ms)
}

// behind writes seconds as milliseconds.
func behind(seconds *float64) string {
	if seconds == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f ms", *seconds*1000)
}

// size writes bytes.
func size(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

func newChannelList(t *target) *cobra.Command {
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
			if done, err := look(cmd, t, "/v1/console/channels", q, &v, &v.Unreachable); done || err != nil {
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
		fmt.Fprintf(w, "%s/%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%s\n", c.Topic, c.Channel, lag, c.Depth, c.InFlight, c.Deferred, known(c.Finishes, "%.1f"), c.Requeues, c.Timeouts, c.Clients, state)
	}
	if rest := v.Matched - len(v.Channels); rest > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", rest)
	}
	return w.Flush()
}

func newChannelDescribe(t *target) *cobra.Command {
	return &cobra.Command{
		Use:     "describe TOPIC CHANNEL",
		Short:   "a channel's lag, oldest message, consumers, policy and dead letters",
		Example: `  nsqctl channel describe orders billing`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d console.ChannelDetail
			if done, err := look(cmd, t, "/v1/console/channel", channelArgs(args), &d, &d.Unreachable); done || err != nil {
				return err
			}
			return printChannel(cmd.OutOrStdout(), d)
		},
	}
}

func printChannel(out io.Writer, d console.ChannelDetail) error {
	if err := printChannels(out, console.Channels{Matched: 1, Channels: []console.Channel{d.Channel}}); err != nil {
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
		fmt.Fprintf(out, "dead letters: in topic %s, %d so far\n", d.DeadLetterTopic, *d.DeadLetters)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nCONSUMER\tADDRESS\tBROKER\tREADY\tIN FLIGHT\tRECEIVED\tFINISHED\tREQUEUED\tLAST ACTIVITY\tUSER")
	for _, c := range d.Connections {
		name := c.ClientID
		if name == "" {
			name = c.Hostname
		}
		ago := time.Since(time.UnixMilli(c.LastActivityMS)).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s ago\t%s\n", edge.Printable(name), c.Address, c.Broker, c.Ready, c.InFlight, c.Messages, c.Finishes, c.Requeues, max(ago, 0), edge.Printable(c.User))
	}
	return w.Flush()
}

// listTopics prints the topics with their numbers, sorted.
func listTopics(cmd *cobra.Command, t *target, sort string, limit int) error {
	var v console.Topics
	if done, err := look(cmd, t, "/v1/console/topics", url.Values{"sort": {sort}, "limit": {fmt.Sprint(limit)}}, &v, &v.Unreachable); done || err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tCHANNELS\tKEPT\tPUT/S\tBYTES/S\tWAITING\tLAG\tMESSAGES")
	for _, x := range v.Topics {
		kept, rate := "unknown", "unknown"
		if x.KeptBytes != nil {
			kept = size(*x.KeptBytes)
		}
		if x.PutBytes != nil {
			rate = size(*x.PutBytes)
		}
		lag := time.Duration(x.LagSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\n", x.Topic, x.Partitions, x.ReplicationFactor, x.Channels, kept, known(x.Puts, "%.0f"), rate, x.Depth, lag, x.Messages)
	}
	if rest := v.Matched - len(v.Topics); rest > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", rest)
	}
	return w.Flush()
}
