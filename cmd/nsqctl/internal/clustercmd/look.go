package clustercmd

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

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

func newClusterEvents(t *cli.Target) *cobra.Command {
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
			if done, err := cli.Look(cmd, t, "/v1/console/events", q, &v, &v.Unreachable); done || err != nil {
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", time.UnixMilli(e.TimeMS).Format(time.RFC3339), e.Kind, e.State, api.Printable(e.Text), by)
	}
	return w.Flush()
}

func newBrokerList(t *cli.Target) *cobra.Command {
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
			if done, err := cli.Look(cmd, t, "/v1/console/brokers", nil, &v, &v.Unreachable); done || err != nil {
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
			free = cli.Size(float64(*b.DiskFreeBytes))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t%s\n", b.Name, brokerState(b), b.Leads, b.Replicas,
			cli.Known(b.Puts, "%.0f"), latency(b.PutP99MS), latency(b.SyncP99MS), behind(b.BehindSeconds), refused, b.Connections, cli.Size(float64(b.DiskDataBytes)), free, b.Etcd)
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
	case b.Hangs:
		return "hangs"
	case b.Unreachable:
		return "unreachable"
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
