package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clustercmd"
)

func newMove(t *cli.Target) *cobra.Command {
	var partition int
	var from, to string
	cmd := &cobra.Command{
		Use:   "move TOPIC",
		Short: "move one replica of a partition to another broker",
		Long: `move moves a replica of a partition to another broker, at the same place in the
list: the first in the list is the preferred leader. The new replica copies the
log and joins the in-sync set before the old one is removed; puts and consumers
continue.`,
		Example: `  nsqctl topic move orders --partition 3 --from n1 --to n4 --wait 1h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"topic": args, "partition": {fmt.Sprint(partition)}, "from": {from}, "to": {to}}
			return clustercmd.Change{Path: "/v1/topic/move", Query: q, Plan: true, Left: clustercmd.Unsettled(args[0], partition), Never: clustercmd.NotLeaving(to)}.Run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "number of the partition")
	f.StringVar(&from, "from", "", "broker that has the replica")
	f.StringVar(&to, "to", "", "broker that receives the replica")
	clustercmd.WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cli.Required(cmd, "from", "to")
}

func newReplication(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replication TOPIC",
		Short: "change the replication factor or the minimum of in-sync replicas of a topic",
		Long: `replication changes the number of replicas of each partition, and the number of
them that must be in sync for a put. Replicas are added or removed one partition
after the other; a higher minimum holds for a partition as soon as that many
replicas are in sync.`,
		Example: `  nsqctl topic replication orders --replication-factor 3 --min-in-sync 2 --wait 1h`,
	}
	settings := []string{"replication-factor", "min-in-sync"}
	for _, s := range settings {
		cmd.Flags().Int(s, 0, "0 = unchanged")
	}
	clustercmd.WaitFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"topic": args}
		for _, s := range settings {
			if n, _ := cmd.Flags().GetInt(s); n != 0 { // the flag is declared above
				q.Set(cli.Underscored(s), fmt.Sprint(n))
			}
		}
		return clustercmd.Change{Path: "/v1/topic/replication", Query: q, Left: clustercmd.Unsettled(args[0])}.Run(cmd, t)
	}
	return cmd
}

func newPartitions(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions TOPIC NUMBER",
		Short: "raise the number of partitions of a topic",
		Long: `partitions raises the number of partitions of a topic, while producers and consumers
continue. The number is never lowered, and the messages that are there stay where
they are. All channels, with their pauses, are in the new partitions before the
first message is.

Later messages of a key may go to another partition than earlier ones, so the order
of the messages of a key is not kept across the change. To keep it: stop the
producers, wait until the channels are empty, raise the number, start the producers.
Ordered topics are refused without --reorder for that reason.

So is a topic that recognises messages by their content: one that was published
before the change and is published again after it may be stored again. Let nobody
publish for the topic's dedupe window before the change. The same holds for messages
with ids, of which the topic does not know whether it has any.`,
		Example: `  nsqctl topic partitions orders 8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return cli.Usage("NUMBER must be a positive number, not %q", args[1])
			}
			q := cli.Given(cmd, url.Values{"topic": args[:1], "partitions": {args[1]}}, "reorder")
			return changeTopic(cmd, t, "/v1/topic/partitions", q)
		},
	}
	cmd.Flags().Bool("reorder", false, "also for an ordered topic, or one with --dedupe content: its channels are empty and nobody publishes, or it does not matter")
	return cmd
}
