package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

func newTopicDelete(t *cli.Target) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "delete a topic",
		Long: `delete deletes a topic with its channels. It can be undeleted for the time of
--delete-grace of the brokers (24h by default); its files take disk space until then.
An #ephemeral topic is deleted permanently.`,
		Example: `  nsqctl topic delete orders
  nsqctl topic delete orders --now         # permanently`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"topic": args}
			if now {
				q.Set("now", "true")
			}
			_, err := t.CallAny(cmd.Context(), http.MethodPost, "/topic/delete", q)
			return err
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "delete permanently, at once: it cannot be undeleted")
	return cmd
}

func newTopicUndelete(t *cli.Target) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "undelete TOPIC",
		Short: "bring a deleted topic back within its grace",
		Long: `undelete brings a deleted topic back as it was: its messages, its channels with their
positions, delayed messages, policies and pauses, its options. Of several deleted
topics of the name it takes the one that was deleted last, or the one with --id.

While another topic has the name it is refused.`,
		Example: `  nsqctl topic undelete orders
  nsqctl topic undelete orders --id 16f3a2b4c5d6e7f8`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := t.CallAny(cmd.Context(), http.MethodPost, "/v1/topic/undelete", trashed(args, id)); err != nil {
				return err
			}
			return describeTopic(cmd, t, args[0])
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the id of the deleted topic, as topic trash shows it")
	return cmd
}

func newTopicPurge(t *cli.Target) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "purge TOPIC",
		Short: "remove deleted topics of a name permanently, before their grace period ends",
		Long: `purge permanently removes all deleted topics of a name, or the one with --id. Their files
leave the disk after --trash-grace of each broker.`,
		Example: `  nsqctl topic purge orders`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := t.CallAny(cmd.Context(), http.MethodPost, "/v1/topic/purge", trashed(args, id))
			return err
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the id of one deleted topic, as topic trash shows it")
	return cmd
}

// trashed names deleted topics.
func trashed(topic []string, id string) url.Values {
	q := url.Values{"topic": topic}
	if id != "" {
		q.Set("id", id)
	}
	return q
}

func newTopicTrash(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "trash",
		Short: "print the deleted topics that can be undeleted",
		Long: `trash prints the deleted topics that can be undeleted, the one that was deleted first
first. BYTES is the size of one copy of the logs, which each replica has on disk; it is
unknown while the leader of a partition does not answer. UNTIL
is when the topic is removed permanently; while the cluster has no controller it moves
into the future.`,
		Example: `  nsqctl topic trash
  nsqctl topic trash -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v struct {
				Topics []api.TrashedTopic `json:"topics"`
			}
			if err := t.GetAny(cmd.Context(), "/v1/topic/trash", nil, &v); err != nil {
				return err
			}
			if t.Output == "json" {
				return cli.PrintJSON(cmd.OutOrStdout(), v.Topics)
			}
			return printTrash(cmd.OutOrStdout(), v.Topics)
		},
	}
}

func printTrash(out io.Writer, topics []api.TrashedTopic) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tID\tDELETED\tBY\tPARTITIONS\tCHANNELS\tMESSAGES\tBYTES\tUNTIL")
	for _, x := range topics {
		until := timeOf(x.UntilMS)
		if x.Purging {
			until = "being removed"
		}
		messages, size := strconv.FormatInt(x.Messages, 10), cli.Size(float64(x.Bytes))
		if x.Incomplete {
			messages, size = "unknown", "unknown"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", x.Topic, x.ID, timeOf(x.DeletedAtMS), cmp.Or(api.Printable(x.By), "-"),
			x.Partitions, x.Channels, messages, size, until)
	}
	return w.Flush()
}

func timeOf(ms int64) string { return time.UnixMilli(ms).Format(time.RFC3339) }
