package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
)

func newTopic(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "create, describe, pause, empty and delete topics"}
	cmd.AddCommand(newTopicCreate(t), newTopicDescribe(t), newTopicList(t), newMove(t), newReplication(t))
	for _, verb := range []string{"pause", "unpause", "empty", "delete"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC",
			Short:   verb + " a topic",
			Example: "  nsqctl topic " + verb + " orders",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := t.call(cmd.Context(), http.MethodPost, t.http, "/topic/"+verb, url.Values{"topic": args})
				return err
			},
		})
	}
	return cmd
}

func newTopicCreate(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "create a topic; answers the effective values",
		Example: `  nsqctl topic create orders --partitions 8 --replication-factor 3 --min-in-sync 2`,
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	settings := []string{"partitions", "replication-factor", "min-in-sync"}
	for _, s := range settings {
		f.Int(s, 0, "0 = the cluster's default")
	}
	limits := []string{"retention-time", "retention-bytes", "max-bytes", "message-ttl"}
	f.String(limits[0], "", "keep finished messages for replay so long, such as 24h; also of a topic that is there")
	f.String(limits[1], "", "keep so many bytes of finished messages for replay; also of a topic that is there")
	f.String(limits[2], "", "refuse puts while more bytes are unfinished; 0 = no limit; also of a topic that is there")
	f.String(limits[3], "", "finish messages that are older instead of delivering them; 0s = no limit; also of a topic that is there")
	f.Bool("ordered", false, "one message at a time and partition, in order")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"topic": args}
		for _, s := range settings {
			if n, _ := f.GetInt(s); n != 0 {
				q.Set(underscored(s), fmt.Sprint(n))
			}
		}
		for _, s := range limits {
			if v, _ := f.GetString(s); v != "" {
				q.Set(underscored(s), v)
			}
		}
		if ordered, _ := f.GetBool("ordered"); ordered {
			q.Set("ordered", "true")
		}
		if _, err := t.call(cmd.Context(), http.MethodPost, t.http, "/topic/create", q); err != nil {
			return err
		}
		return describeTopic(cmd, t, args[0])
	}
	return cmd
}

func newTopicDescribe(t *target) *cobra.Command {
	return &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "leaders, replicas and ends of every partition",
		Example: `  nsqctl topic describe orders`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return describeTopic(cmd, t, args[0]) },
	}
}

func newTopicList(t *target) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "the names of all topics",
		Example: `  nsqctl topic list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v struct {
				Topics []string `json:"topics"`
			}
			if err := t.get(cmd.Context(), t.http, "/topics", nil, &v); err != nil {
				return err
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), v.Topics)
			}
			for _, name := range v.Topics {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		},
	}
}

// underscored is a flag's name as the HTTP API spells it.
func underscored(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

func describeTopic(cmd *cobra.Command, t *target, topic string) error {
	var v edge.ClusterView
	if err := t.get(cmd.Context(), t.http, "/v1/cluster", nil, &v); err != nil {
		return err
	}
	for _, x := range v.Topics {
		if x.Topic != topic {
			continue
		}
		if t.output == "json" {
			return printJSON(cmd.OutOrStdout(), x)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s, id %s, replication factor %d, min in sync %d\n", x.Topic, x.ID, x.ReplicationFactor, x.MinInSync)
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		printTopics(w, []edge.TopicView{x})
		return w.Flush()
	}
	return fmt.Errorf("no topic %q", topic)
}
