package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/placement"
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
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"topic": args, "partition": {fmt.Sprint(partition)}, "from": {from}, "to": {to}}
			return placement.Change{Path: "/v1/topic/move", Query: q, Plan: true, Left: placement.Unsettled(args[0], partition), Never: placement.NotLeaving(to)}.Run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "number of the partition")
	f.StringVar(&from, "from", "", "broker that has the replica")
	f.StringVar(&to, "to", "", "broker that receives the replica")
	for _, name := range []string{"from", "to"} {
		_ = cmd.MarkFlagRequired(name) // the flags are declared above
	}
	placement.WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cmd
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
		Args:    cobra.ExactArgs(1),
	}
	settings := []string{"replication-factor", "min-in-sync"}
	for _, s := range settings {
		cmd.Flags().Int(s, 0, "0 = unchanged")
	}
	placement.WaitFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"topic": args}
		for _, s := range settings {
			if n, _ := cmd.Flags().GetInt(s); n != 0 { // the flag is declared above
				q.Set(underscored(s), fmt.Sprint(n))
			}
		}
		return placement.Change{Path: "/v1/topic/replication", Query: q, Left: placement.Unsettled(args[0])}.Run(cmd, t)
	}
	return cmd
}
