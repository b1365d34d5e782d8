package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func newCluster(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "look at the cluster as a whole"}
	cmd.AddCommand(&cobra.Command{
		Use:   "status",
		Short: "brokers, topics, leaders and in-sync replicas",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v edge.ClusterView
			if err := get(cmd.Context(), t.http, "/v1/cluster", nil, &v); err != nil {
				return err
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			return printStatus(cmd.OutOrStdout(), v)
		},
	})
	return cmd
}

func printStatus(out io.Writer, v edge.ClusterView) error {
	fmt.Fprintf(out, "cluster %s, controller %s, seen by %s\n\n", v.Cluster, v.Controller, v.Self)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BROKER\tALIVE\tTCP\tHTTP\tRPC\tZONE\tVERSION")
	for _, b := range v.Brokers {
		fmt.Fprintf(w, "%s\t%t\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Alive, b.TCPAddress, b.HTTPAddress, b.RPCAddress, b.Zone, b.Version)
	}
	fmt.Fprintln(w)
	printTopics(w, v.Topics)
	return w.Flush()
}

func printTopics(w io.Writer, topics []edge.TopicView) {
	fmt.Fprintln(w, "TOPIC\tPARTITION\tLEADER\tEPOCH\tREPLICAS\tIN SYNC\tCOMMITTED\tEND\t")
	for _, t := range topics {
		for _, p := range t.Partitions {
			note := ""
			if p.UnderReplicated {
				note = "under-replicated"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%d (%d)\t%d\t%s\n", t.Topic, p.Partition, p.Leader, p.Epoch,
				names(p.Replicas), names(p.ISR), p.CommittedSequence, p.CommittedOffset, p.EndOffset, note)
		}
	}
}

func names(nodes []ident.Node) (s string) {
	for i, n := range nodes {
		if i > 0 {
			s += ","
		}
		s += string(n)
	}
	return s
}
