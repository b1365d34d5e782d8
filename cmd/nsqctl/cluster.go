package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	cmd.AddCommand(newDecommission(t))
	return cmd
}

func newDecommission(t *target) *cobra.Command {
	var cancel bool
	cmd := &cobra.Command{
		Use:   "decommission BROKER",
		Short: "move a broker's replicas to the others, so that it can go for good",
		Long: `decommission marks a broker as leaving: it gets no new replicas, and those it has
are moved to the others, a few at a time. Stop it for good when "cluster status"
shows it in no partition any more. --cancel keeps it after all.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"node": {args[0]}, "cancel": {fmt.Sprint(cancel)}}
			_, err := call(cmd.Context(), http.MethodPost, t.http, "/v1/broker/decommission", q)
			return err
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "let it stay after all")
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
