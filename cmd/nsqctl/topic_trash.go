package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

func newTopicDelete(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "delete a topic",
		Long: `delete deletes a topic with its channels. It can be undeleted for the time of
--delete-grace of the brokers (24h by default); its files take disk space until then.
An #ephemeral topic is deleted permanently.`,
		Example: `  nsqctl topic delete orders
  nsqctl topic delete orders --now         # permanently`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.PostAny(cmd.Context(), "/topic/delete", cli.Given(cmd, url.Values{"topic": args}, "now"), nil)
		},
	}
	cmd.Flags().Bool("now", false, "delete permanently, at once: it cannot be undeleted")
	return cmd
}

func newTopicUndelete(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undelete TOPIC",
		Short: "bring a deleted topic back within its grace",
		Long: `undelete brings a deleted topic back as it was: its messages, its channels with their
positions, delayed messages, policies and pauses, its options. Of several deleted
topics of the name it takes the one that was deleted last, or the one with --id.

While another topic has the name it is refused.`,
		Example: `  nsqctl topic undelete orders
  nsqctl topic undelete orders --id 16f3a2b4c5d6e7f8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeTopic(cmd, t, "/v1/topic/undelete", cli.Given(cmd, url.Values{"topic": args}, "id"))
		},
	}
	cmd.Flags().String("id", "", "the id of the deleted topic, as topic trash shows it")
	return cmd
}

func newTopicPurge(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge TOPIC",
		Short: "remove deleted topics of a name permanently, before their grace period ends",
		Long: `purge permanently removes all deleted topics of a name, or the one with --id. Their files
leave the disk after --trash-grace of each broker.`,
		Example: `  nsqctl topic purge orders`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.PostAny(cmd.Context(), "/v1/topic/purge", cli.Given(cmd, url.Values{"topic": args}, "id"), nil)
		},
	}
	cmd.Flags().String("id", "", "the id of one deleted topic, as topic trash shows it")
	return cmd
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v struct {
				Topics []api.TrashedTopic `json:"topics"`
			}
			if err := t.GetAny(cmd.Context(), "/v1/topic/trash", nil, &v); err != nil {
				return err
			}
			return cli.Print(cmd, t, v.Topics, func(w io.Writer) { printTrash(w, v.Topics) })
		},
	}
}

func printTrash(w io.Writer, topics []api.TrashedTopic) {
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
}

func timeOf(ms int64) string { return time.UnixMilli(ms).Format(time.RFC3339) }
