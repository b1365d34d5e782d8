// Package clustercmd contains the commands of nsqctl about the cluster as a whole: cluster (status, health, events,
// balance, upgrade), broker (list, drain, decommission), and version, which can ask the brokers for their builds.
// Change is how they, and the commands of topics, change the placement of replicas.
//
// It judges no health itself (internal/observe/health), and plans and moves nothing (coordinator/admin, the controller).
//
// # Invariants
//
//  1. A number that no live broker can give is printed as unknown, and not as 0.
//  2. The exit codes of health, safe-to-stop and upgrade status are for scripts: 0 only if the answer is a full yes.
//  3. A broker that gives no answer is named with the reason.
//  4. With --dry-run no request changes anything. On a terminal a plan with steps is confirmed before the request, unless
//     --yes is given.
//  5. A wait ends when no step is open, at its limit, or when the change can never be done. The change continues in the
//     background after the limit.
package clustercmd

import (
	"cmp"
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
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// Commands are cluster, broker and version.
func Commands(t *cli.Target) []*cobra.Command {
	return []*cobra.Command{newCluster(t), newBroker(t), newVersion(t)}
}

func newCluster(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "show and balance the cluster, invite and decommission brokers"}
	cmd.AddCommand(&cobra.Command{
		Use:   "status",
		Short: "brokers, topics, leaders and in-sync replicas",
		Example: `  nsqctl cluster status
  nsqctl cluster status -o json --nsqd-http-address n1.example:4151`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := t.Cluster(cmd.Context())
			if err != nil {
				return err
			}
			own, _ := askOwn(cmd.Context(), t, v) // without an answer, the brokers that others have noticed are marked
			for i := range v.Brokers {
				v.Brokers[i].Hangs = v.Brokers[i].Hangs || own[v.Brokers[i].Name].Hangs()
			}
			return cli.Print(cmd, t, v, func(w io.Writer) { printStatus(w, v, t.Wide) })
		},
	})
	cmd.AddCommand(newClusterHealth(t), newClusterEvents(t), newSafeToStop(t), newDecommission(t), newBalance(t), newUpgrade(t), newClusterLimits(t), newInvite(t))
	return cmd
}

func newBalance(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "balance",
		Short: "spread replicas and leaders evenly over the brokers that run",
		Long: `balance moves replicas from brokers with more of them to brokers with fewer, as few as possible, and then
balances the leaders. Use it after a broker was added. It is not needed after a failure: a leadership returns by itself
when the preferred replica, the first in the list, is in sync again.`,
		Example: `  nsqctl cluster balance --dry-run                 # the plan, and nothing else
  nsqctl cluster balance --wait 10m`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Change{Path: "/v1/cluster/balance", Plan: true}.Run(cmd, t)
		},
	}
	WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cmd
}

// newDecommission makes the command for "broker" and, under its earlier name, for "cluster".
func newDecommission(t *cli.Target) *cobra.Command {
	var cancel bool
	cmd := &cobra.Command{
		Use:   "decommission BROKER",
		Short: "move a broker's replicas to the others, before it is removed permanently",
		Long: `decommission marks a broker as leaving: it gets no new replicas, and its replicas are moved to the
others, a few at a time. When it has none left, stop it: the cluster then removes it and its member of the embedded
etcd. A dead broker is removed as soon as it has no replicas. --cancel ends the decommission.`,
		Example: `  nsqctl cluster decommission n3 --dry-run         # the plan, and nothing else
  nsqctl cluster decommission n3 --wait 1h && ssh n3 systemctl stop nsqd
  nsqctl broker decommission n3 --wait 1h          # the same`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "cancel")
			a := Change{Path: "/v1/broker/decommission", Query: q, Plan: !cancel, Left: replicasOn(args[0])}
			if cancel {
				a.Left = func(api.ClusterView) []string { return nil }
			}
			dry, _ := cli.Planning(cmd, t)
			if err := a.Run(cmd, t); err != nil || cancel || dry || t.Output == "json" || !cmd.Flags().Changed("wait") {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has no replicas left: stop it, and the cluster removes it\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the decommission of the broker")
	WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cmd
}

func printStatus(w io.Writer, v api.ClusterView, wide bool) {
	fmt.Fprintf(w, "cluster %s, controller %s, feature level %d, seen by %s\n\n", v.Cluster, v.Controller, v.Level, v.Self)
	if unheard := time.Duration(v.MetadataUnheardMS) * time.Millisecond; unheard > 0 {
		fmt.Fprintf(w, "%s has had no answer from etcd for %s: no leader can be replaced, and nothing can be created or changed\n\n", v.Self, unheard.Round(time.Second))
	}
	fmt.Fprintln(w, "BROKER\tALIVE\tTCP\tHTTP\tRPC\tZONE\tVERSION\t"+cli.Mark(wide, "HTTPS\tLEVEL\tINCARNATION\t"))
	for _, b := range v.Brokers {
		note := cli.Mark(b.Leaving, "leaving ")
		switch leads, replicas := health.Load(v, b.Name); b.Drain {
		case "":
		case "leaders":
			note += fmt.Sprintf("drained of leaders (%d left) ", leads)
		default:
			note += fmt.Sprintf("drained of replicas (%d left) ", replicas)
		}
		switch {
		case b.Hangs:
			note += "hangs "
		case b.Silent:
			note += "does not answer "
		case health.Unreachable(&b):
			note += fmt.Sprintf("registered, does not answer %s ", v.Self)
		}
		note += cli.Mark(b.LowSpace, "short of disk")
		fmt.Fprintf(w, "%s\t%t\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Alive, b.TCPAddress, b.HTTPAddress, b.RPCAddress, b.Zone, b.Build, cli.Mark(wide, fmt.Sprintf("%s\t%d\t%v\t", b.HTTPSAddress, b.Level, b.Incarnation))+note)
	}
	fmt.Fprintln(w)
	PrintTopics(w, v, v.Topics, wide)
}

// PrintTopics prints a line for each partition. Only its leader reports the ends: without its answer they are unknown.
func PrintTopics(w io.Writer, v api.ClusterView, topics []api.TopicView, wide bool) {
	fmt.Fprintln(w, "TOPIC\tPARTITION\tLEADER\tEPOCH\tREPLICAS\tIN SYNC\tCOMMITTED\tEND\t"+cli.Mark(wide, "MIN IN SYNC\tTARGET\t"))
	alive := map[ident.Node]bool{}
	for _, b := range v.Brokers {
		alive[b.Name] = b.Alive
	}
	for _, t := range topics {
		for _, p := range t.Partitions {
			leader, committed, end := string(p.Leader), fmt.Sprintf("%d (%d)", p.CommittedSequence, p.CommittedOffset), fmt.Sprint(p.EndOffset)
			if !alive[p.Leader] {
				leader = cmp.Or(cli.Mark(leader != "", leader+" (dead)"), "none")
			}
			if !alive[p.Leader] || p.EndsUnknown {
				committed, end = "unknown", "unknown"
			}
			note := cli.Mark(p.UnderReplicated, "under-replicated")
			for _, d := range p.Damaged {
				note += fmt.Sprintf(" damaged on %s: offsets %d to %d, sequences %d to %d", d.Node, d.From, d.To, d.FirstSequence, d.EndSequence)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", t.Topic, p.Partition, leader, p.Epoch,
				cli.Names(p.Replicas), cli.Names(p.ISR), committed, end, cli.Mark(wide, fmt.Sprintf("%d\t%s\t", p.MinInSync, cli.Names(p.Target)))+note)
		}
	}
}

func newClusterLimits(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "limits",
		Short: "the limits on topics, partitions and channels, with their current use",
		Long: `limits prints how many topics and partitions the cluster has, and the most channels that a topic has,
beside --max-topics, --max-partitions and --max-channels of the broker that answers. Topics in the trash count with
their partitions. The quotas of users are in "nsqctl user list".`,
		Example: `  nsqctl cluster limits`,
		RunE: cli.Show(t, "/v1/cluster/limits", func(w io.Writer, v api.LimitsView) {
			fmt.Fprintln(w, "OF\tUSED\tLIMIT")
			for _, l := range []struct {
				of string
				api.LimitView
			}{{"topics", v.Topics}, {"partitions", v.Partitions}, {"channels of a topic", v.Channels}} {
				limit := cmp.Or(cli.Mark(l.Limit > 0, fmt.Sprint(l.Limit)), "-")
				fmt.Fprintf(w, "%s\t%d\t%s\n", l.of, l.Used, limit)
			}
		}),
	}
}

func newClusterEvents(t *cli.Target) *cobra.Command {
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "events",
		Short: "changes: elections, in-sync sets, brokers, alarms, and administrative actions",
		Long: `events lists the events of the last 24 hours, which all brokers have in memory, the newest last.
Administrative actions (kind audit) are listed for administrators of the cluster, from all brokers, with the user and
the address.

Kinds:` + strings.Join(events.Kinds(), ", ") + `.`,
		Example: `  nsqctl cluster events                                # of the last hour
  nsqctl cluster events --since 24h --kind topic,audit --topic orders
  nsqctl cluster events --broker n2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "limit", "kind", "topic", "broker")
			q.Set("since_ms", fmt.Sprint(time.Now().Add(-since.Abs()).UnixMilli()))
			return cli.ShowConsole(cmd, t, "/v1/console/events", q, func(w io.Writer, v console.Events) {
				if !v.Complete {
					fmt.Fprintln(cmd.ErrOrStderr(), "older events are missing: -n, or a shorter --since")
				}
				for _, e := range slices.Backward(v.Events) {
					by := cli.Mark(e.Identity != "", fmt.Sprintf(" (from %s, %s)", e.Remote, e.Result)) // the text begins with the user already
					fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", time.UnixMilli(e.TimeMS).Format(time.RFC3339), e.Kind, e.State, api.Printable(e.Text), by)
				}
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&since, "since", time.Hour, "events of this time")
	f.String("kind", "", "only these kinds, separated by commas")
	f.String("topic", "", "only events of this topic")
	f.String("broker", "", "only events about this broker")
	f.IntP("limit", "n", 200, "largest number of events, 1 to 1000")
	return cmd
}

func newBroker(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "broker", Short: "list brokers, drain them, decommission them"}
	cmd.AddCommand(newBrokerList(t), newDrain(t), newUndrain(t), newDecommission(t))
	return cmd
}

func newDrain(t *cli.Target) *cobra.Command {
	var leaders, replicas bool
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "move leaderships, or replicas too, away from a broker before its maintenance",
		Long: `drain transfers the leaderships of a broker to other in-sync replicas. The broker gets no leaderships and
no new replicas until "broker undrain". With --replicas its replicas move to other brokers, too, a few at a time. The
broker stays a member of the cluster: to remove it permanently, use "broker decommission".

The cluster stores the request in its metadata: it survives a crash of any broker, and a restart of the drained one. A
drained broker leads a partition only while no other in-sync replica lives, and for about a second after an election
that it won. A new topic has a replica on it only if too few other brokers run.`,
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
		Long: `undrain ends a drain. The leaderships of the partitions that prefer the broker return by themselves.
Replicas that were moved away stay where they are: "cluster balance" spreads them again.`,
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
	return func(v api.ClusterView) []string {
		out := partitions(v, func(t api.TopicView, p api.PartitionView) string {
			switch {
			case p.Leader == n:
				return "is led by " + broker
			case replicas && slices.Contains(p.Replicas, n):
				return cmp.Or(lacks(t, p), "has a replica on "+broker)
			}
			return ""
		})
		if b := slices.IndexFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == n }); len(out) == 0 && b >= 0 && v.Brokers[b].Drain == "" {
			return []string{"the broker that was asked has not received the request yet"}
		}
		return out
	}
}

func newInvite(t *cli.Target) *cobra.Command {
	var withdraw bool
	list := cli.Show(t, "/v1/cluster/invite", func(w io.Writer, v httpapi.InvitationsView) {
		fmt.Fprintln(w, "BROKER\tMAY JOIN UNTIL")
		for _, i := range v.Invitations {
			fmt.Fprintf(w, "%s\t%s\n", i.Node, i.Until.Local().Format(time.DateTime))
		}
	})
	cmd := &cobra.Command{
		Use:   "invite [BROKER]",
		Short: "let a further broker join the cluster",
		Long: `invite admits a broker of this --node-name to a running cluster with embedded etcd, for a time. No broker
is restarted. The broker needs a certificate of the cluster's authority with this name (nsqctl cert broker), and names
itself and the current brokers in --join, or in --etcd-initial-cluster. The invitation is used up when it has joined.
--withdraw ends an invitation before that. Without a name it lists the open invitations.`,
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
			return list(cmd, args)
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

func newBrokerList(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "state, load, latencies, refused puts, disk and etcd of each broker",
		Long: `list prints a line for each broker. Rates and latencies cover the last ten seconds; a latency without a
put is "-". BEHIND is the longest time for which other leaders waited for the broker's replicas: a high PUT P99 of one
broker and a high BEHIND of another mean that the other is slow. REFUSED counts the puts of the broker's clients that
were not answered OK since it started, and the second table says why. A broker that does not answer has unknown numbers.`,
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t%s\n",
			cli.Known(b.Puts, "%.0f"), latency(b.PutP99MS), latency(b.SyncP99MS), behind, refused, b.Connections, cli.Size(&b.DiskDataBytes), cli.Size(b.DiskFreeBytes), b.Etcd)
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

// latency writes milliseconds; "-" if no put was measured in the last interval.
func latency(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", *ms)
}
