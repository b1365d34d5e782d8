package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

func newMove(t *target) *cobra.Command {
	var partition int
	var from, to string
	cmd := &cobra.Command{
		Use:   "move TOPIC",
		Short: "move one replica of a partition to another broker",
		Long: `move puts a replica of a partition on another broker, in the same place: the
first in the list is the preferred leader. The new one is filled and joins the
in-sync set before the old one goes; puts and consumers go on.`,
		Example: `  nsqctl topic move orders --partition 3 --from n1 --to n4 --wait 1h`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"topic": args, "partition": {fmt.Sprint(partition)}, "from": {from}, "to": {to}}
			return arrangement{path: "/v1/topic/move", query: q, left: unsettled(args[0]), never: leaving(to)}.run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "which partition")
	f.StringVar(&from, "from", "", "the broker that has the replica")
	f.StringVar(&to, "to", "", "the broker that is to have it")
	for _, name := range []string{"from", "to"} {
		_ = cmd.MarkFlagRequired(name) // declared above
	}
	waitFlag(cmd)
	return cmd
}

func newReplication(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replication TOPIC",
		Short: "change the replication factor, or the minimum in sync, of a topic",
		Long: `replication changes how many replicas each partition has, and how many of them
must be in sync before a put is taken. Replicas are added or taken away one
partition after the other; a higher minimum holds for a partition as soon as so
many are in sync.`,
		Example: `  nsqctl topic replication orders --replication-factor 3 --min-in-sync 2 --wait 1h`,
		Args:    cobra.ExactArgs(1),
	}
	settings := []string{"replication-factor", "min-in-sync"}
	for _, s := range settings {
		cmd.Flags().Int(s, 0, "0 = as it is")
	}
	waitFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"topic": args}
		for _, s := range settings {
			if n, _ := cmd.Flags().GetInt(s); n != 0 { // declared above
				q.Set(underscored(s), fmt.Sprint(n))
			}
		}
		return arrangement{path: "/v1/topic/replication", query: q, left: unsettled(args[0])}.run(cmd, t)
	}
	return cmd
}
