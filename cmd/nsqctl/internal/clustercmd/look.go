package clustercmd

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
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
		Short: "changes: elections, in-sync sets, brokers, alarms, and administrative actions",
		Long: `events lists the events of the last 24 hours, which all brokers have in memory, the newest
last. Administrative actions (kind audit) are listed for administrators of the
cluster, from all brokers, with the user and the address.

Kinds: ` + strings.Join(events.Kinds(), ", ") + `.`,
		Example: `  nsqctl cluster events                                # of the last hour
  nsqctl cluster events --since 24h --kind topic,audit --topic orders
  nsqctl cluster events --broker n2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"since_ms": {fmt.Sprint(time.Now().Add(-since.Abs()).UnixMilli())}, "limit": {fmt.Sprint(limit)}}
			for name, value := range map[string]string{"kind": kinds, "topic": topic, "broker": broker} {
				if value != "" {
					q.Set(name, value)
				}
			}
			missing := func(v console.Events) []console.Unreachable { return v.Unreachable }
			return cli.ShowConsole(cmd, t, "/v1/console/events", q, missing, func(w io.Writer, v console.Events) {
				if !v.Complete {
					fmt.Fprintln(cmd.ErrOrStderr(), "older events are missing: -n, or a shorter --since")
				}
				for _, e := range slices.Backward(v.Events) {
					by := ""
					if e.Identity != "" {
						by = fmt.Sprintf(" (from %s, %s)", e.Remote, e.Result) // the text begins with the user
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", time.UnixMilli(e.TimeMS).Format(time.RFC3339), e.Kind, e.State, api.Printable(e.Text), by)
				}
			})
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

func newBrokerList(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "state, load, latencies, refused puts, disk and etcd of each broker",
		Long: `list prints a line for each broker. Rates and latencies are those of the last ten
seconds; a latency without a put is "-". BEHIND is the longest time for which
other leaders waited for the broker's replicas: a high PUT P99 of one broker and a high
BEHIND of another mean that the other is slow. REFUSED counts the puts of the broker's
clients that were not answered OK since it started, and the second table says why.
A broker that does not answer has unknown numbers.`,
		Example: `  nsqctl broker list
  nsqctl broker list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			missing := func(v console.Brokers) []console.Unreachable { return v.Unreachable }
			return cli.ShowConsole(cmd, t, "/v1/console/brokers", nil, missing, func(w io.Writer, v console.Brokers) { printBrokers(w, v.Brokers) })
		},
	}
}

func printBrokers(w io.Writer, list []console.Broker) {
	fmt.Fprintln(w, "BROKER\tSTATE\tLEADS\tREPLICAS\tPUT/S\tPUT P99\tSYNC P99\tBEHIND\tREFUSED\tCONNECTIONS\tDISK USED\tDISK FREE\tETCD")
	refusals := ""
	for _, b := range list {
		behind := "unknown"
		if b.BehindSeconds != nil {
			behind = fmt.Sprintf("%.0f ms", *b.BehindSeconds*1000)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t", b.Name, brokerState(b), b.Leads, b.Replicas)
		if b.Live == nil {
			fmt.Fprintf(w, "unknown\tunknown\tunknown\t%s\tunknown\tunknown\tunknown\tunknown\tunknown\n", behind)
			continue
		}
		refused := 0.0
		for _, why := range slices.Sorted(maps.Keys(b.Refused)) {
			refused += b.Refused[why]
			refusals += fmt.Sprintf("%s\t%.0f\t%s\n", b.Name, b.Refused[why], why)
		}
		free := "unknown"
		if b.DiskFreeBytes != nil {
			free = cli.Size(float64(*b.DiskFreeBytes))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t%s\n",
			cli.Known(b.Puts, "%.0f"), latency(b.PutP99MS), latency(b.SyncP99MS), behind, refused, b.Connections, cli.Size(float64(b.DiskDataBytes)), free, b.Etcd)
	}
	if refusals != "" {
		fmt.Fprint(w, "\nBROKER\tPUTS\tNOT ANSWERED OK BECAUSE\n", refusals)
	}
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
