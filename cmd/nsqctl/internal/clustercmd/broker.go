package clustercmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// NewBroker returns the command of the brokers.
func NewBroker(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "broker", Short: "list brokers, drain them, decommission them"}
	cmd.AddCommand(newBrokerList(t), newDrain(t), newUndrain(t), newDecommission(t))
	return cmd
}

func newDrain(t *cli.Target) *cobra.Command {
	var leaders, replicas bool
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "move leaderships, or replicas too, away from a broker before its maintenance",
		Long: `drain transfers the leaderships of a broker to other in-sync replicas. The broker
gets no leaderships and no new replicas until "broker undrain". With --replicas its
replicas move to other brokers, too, a few at a time. The broker stays a member of
the cluster: to remove it permanently, use "broker decommission".

The cluster stores the request in its metadata: it survives a crash of any broker,
and a restart of the drained one. A drained broker leads a partition only while no
other in-sync replica lives, and for about a second after an election that it won.
A new topic has a replica on it only if too few other brokers run.`,
		Example: `  nsqctl broker drain n2 --wait 2m && nsqctl cluster safe-to-stop n2 && ssh n2 reboot
  nsqctl broker drain n2 --replicas --wait 2h
  nsqctl broker drain n2 --replicas --dry-run      # the plan, and nothing else`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "replicas")
			return Change{Path: "/v1/broker/drain", Query: q, Plan: true, Left: undrained(args[0], replicas)}.Run(cmd, t)
		},
	}
	cmd.Flags().BoolVar(&leaders, "leaders", false, "leaderships only, which is the default")
	cmd.Flags().BoolVar(&replicas, "replicas", false, "replicas too")
	cmd.MarkFlagsMutuallyExclusive("leaders", "replicas")
	WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cmd
}

func newUndrain(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "undrain BROKER",
		Short: "give a drained broker leaderships and replicas again",
		Long: `undrain ends a drain. The leaderships of the partitions that prefer the broker return
by themselves. Replicas that were moved away stay where they are: "cluster balance"
spreads them again.`,
		Example: `  nsqctl broker undrain n2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"node": args, "cancel": {"true"}}
			return Change{Path: "/v1/broker/drain", Query: q}.Run(cmd, t)
		},
	}
}

// undrained lists the partitions that a drained broker still leads, or has a replica of.
func undrained(broker string, replicas bool) openSteps {
	n := ident.Node(broker)
	return func(v api.ClusterView) (out []string) {
		for _, x := range v.Topics {
			for _, p := range x.Partitions {
				switch {
				case p.Leader == n:
					out = append(out, fmt.Sprintf("%s/%d is led by %s", x.Topic, p.Partition, n))
				case replicas && slices.Contains(p.Replicas, n):
					out = append(out, fmt.Sprintf("%s/%d %s", x.Topic, p.Partition, cmp.Or(lacks(x, p), "has a replica on "+broker)))
				}
			}
		}
		if b := slices.IndexFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == n }); len(out) == 0 && b >= 0 && v.Brokers[b].Drain == "" {
			return []string{"the broker that was asked has not received the request yet"}
		}
		return out
	}
}

func newInvite(t *cli.Target) *cobra.Command {
	var withdraw bool
	cmd := &cobra.Command{
		Use:   "invite [BROKER]",
		Short: "let a further broker join the cluster",
		Long: `invite admits a broker of this --node-name to a running cluster with embedded etcd, for
a time. No broker is restarted. The broker needs a certificate of the cluster's authority
with this name (nsqctl cert broker), and names itself and the current brokers in --join, or
in --etcd-initial-cluster. The invitation is used up when it has joined. --withdraw ends
an invitation before that. Without a name it lists the open invitations.`,
		Example: `  nsqctl cluster invite n4.example
  nsqctl cluster invite n4.example --for 24h
  nsqctl cluster invite n4.example --withdraw
  nsqctl cluster invite`,
	}
	cmd.Flags().Duration("for", time.Hour, "how long the broker may join, at most 168h")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "end the invitation")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if cmd.Flags().Changed("for") || cmd.Flags().Changed("withdraw") {
				return cli.Usage("--for and --withdraw need the name of a broker")
			}
			return cli.Show(t, "/v1/cluster/invite", printInvitations)(cmd, args)
		}
		query := cli.Request(cmd, args, "for")
		if withdraw {
			query = url.Values{"node": args, "withdraw": {"true"}}
		}
		var made httpapi.Invitation
		if err := t.PostAny(cmd.Context(), "/v1/cluster/invite", query, &made); err != nil {
			return err
		}
		return cli.Print(cmd, t, made, func(w io.Writer) {
			if withdraw {
				fmt.Fprintf(w, "%s may not join; a broker that has joined stays a member\n", made.Node)
			} else {
				fmt.Fprintf(w, "%s may join until %s\n", made.Node, made.Until.Local().Format(time.DateTime))
			}
		})
	}
	return cmd
}

func printInvitations(w io.Writer, v httpapi.InvitationsView) {
	fmt.Fprintln(w, "BROKER\tMAY JOIN UNTIL")
	for _, i := range v.Invitations {
		fmt.Fprintf(w, "%s\t%s\n", i.Node, i.Until.Local().Format(time.DateTime))
	}
}

func newBrokerList(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "state, load, latencies, refused puts, disk and etcd of each broker",
		Long: `list prints a line for each broker. Rates and latencies cover the last ten
seconds; a latency without a put is "-". BEHIND is the longest time for which
other leaders waited for the broker's replicas: a high PUT P99 of one broker and a high
BEHIND of another mean that the other is slow. REFUSED counts the puts of the broker's
clients that were not answered OK since it started, and the second table says why.
A broker that does not answer has unknown numbers.`,
		Example: `  nsqctl broker list
  nsqctl broker list -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.ShowConsole(cmd, t, "/v1/console/brokers", nil, func(w io.Writer, v console.Brokers) { printBrokers(w, v.Brokers) })
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
