package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clustercmd"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/option"
)

func newTopic(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "create, change, describe, pause, empty, delete and undelete topics"}
	cmd.AddCommand(newTopicCreate(t), newTopicSet(t), newTopicDescribe(t), newTopicList(t), newTopicDelete(t), newTopicUndelete(t), newTopicPurge(t), newTopicTrash(t), newMove(t), newReplication(t), newPartitions(t))
	for _, verb := range []string{"pause", "unpause", "empty"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC",
			Short:   verb + " a topic",
			Example: "  nsqctl topic " + verb + " orders",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := t.CallAny(cmd.Context(), http.MethodPost, "/topic/"+verb, url.Values{"topic": args})
				return err
			},
		})
	}
	return cmd
}

func newTopicCreate(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "create a topic and print its effective values; an error if it exists with others",
		Example: `  nsqctl topic create orders --partitions 8 --replication-factor 3 --min-in-sync 2`,
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	numbers := []string{"partitions", "replication-factor", "min-in-sync"}
	for _, n := range numbers {
		f.Int(n, 0, "1 or more; not given: the cluster's default")
	}
	limits := topicLimits(f)
	f.Bool("ordered", false, "ordered channels: one message in flight per partition")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := limits(url.Values{"topic": args})
		for _, n := range append(numbers, "ordered") {
			if f.Changed(n) {
				q.Set(underscored(n), f.Lookup(n).Value.String())
			}
		}
		if _, err := t.CallAny(cmd.Context(), http.MethodPost, "/topic/create", q); err != nil {
			return err
		}
		return describeTopic(cmd, t, args[0])
	}
	return cmd
}

func newTopicSet(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set TOPIC",
		Short: "change limits of a topic, or its durability, and print its effective values",
		Long: `set changes the settings that are given; the others stay as they are. Two commands
change the rest: topic replication changes the numbers of replicas, topic partitions
raises the number of partitions.`,
		Example: `  nsqctl topic set orders --retention-time 24h --max-bytes 0`,
		Args:    cobra.ExactArgs(1),
	}
	limits := topicLimits(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := t.CallAny(cmd.Context(), http.MethodPost, "/v1/topic/set", limits(url.Values{"topic": args})); err != nil {
			return err
		}
		return describeTopic(cmd, t, args[0])
	}
	return cmd
}

// topicLimits defines the flags of a topic's limits and durability. The function that it returns adds those that are
// given to a query.
func topicLimits(f *pflag.FlagSet) func(url.Values) url.Values {
	f.String("durability", "", "sync or replicated: the meaning of OK")
	names := []string{"durability"}
	for _, r := range option.Topics {
		f.String(r.Flag(), "", r.Help)
		names = append(names, r.Flag())
	}
	return func(q url.Values) url.Values {
		for _, name := range names {
			if v, _ := f.GetString(name); v != "" {
				q.Set(underscored(name), v)
			}
		}
		return q
	}
}

func newTopicDescribe(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "print leaders, replicas and ends of every partition",
		Example: `  nsqctl topic describe orders`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return describeTopic(cmd, t, args[0]) },
	}
}

func newTopicList(t *cli.Target) *cobra.Command {
	var sort string
	limit := 0
	cmd := &cobra.Command{
		Use:   "list",
		Short: "print the names of all topics; with --sort their numbers, too",
		Long: `list prints the names of all topics. With --sort it prints a table, the largest value
first. KEPT is the size of one copy of the topic's logs, which each of its replicas
has on disk.`,
		Example: `  nsqctl topic list -o json
  nsqctl topic list --sort disk -n 10      # which topics take the disk?`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sort != "" {
				return listTopics(cmd, t, sort, limit)
			}
			var v struct {
				Topics []string `json:"topics"`
			}
			if err := t.GetAny(cmd.Context(), "/topics", nil, &v); err != nil {
				return err
			}
			if t.Output == "json" {
				return cli.PrintJSON(cmd.OutOrStdout(), v.Topics)
			}
			for _, name := range v.Topics {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "", "disk, rate, depth, lag or name: a table in this order")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "with --sort: largest number of topics, 1 to 500")
	return cmd
}

// underscored returns a flag's name in the spelling of the HTTP API.
func underscored(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

func describeTopic(cmd *cobra.Command, t *cli.Target, topic string) error {
	var v api.ClusterView
	if err := t.GetAny(cmd.Context(), "/v1/cluster", nil, &v); err != nil {
		return err
	}
	for _, x := range v.Topics {
		if x.Topic != topic {
			continue
		}
		var channels struct {
			Channels []api.ChannelView `json:"channels"`
		}
		if err := t.GetAny(cmd.Context(), "/v1/topic/channels", url.Values{"topic": {topic}}, &channels); err != nil {
			return err
		}
		if t.Output == "json" {
			return cli.PrintJSON(cmd.OutOrStdout(), struct {
				api.TopicView
				Channels []api.ChannelView `json:"channels"`
			}{x, channels.Channels})
		}
		return printTopic(cmd.OutOrStdout(), v, x, channels.Channels, t.Wide)
	}
	return cli.NotFound("topic", topic)
}

func printTopic(out io.Writer, v api.ClusterView, x api.TopicView, channels []api.ChannelView, wide bool) error {
	fmt.Fprintf(out, "topic %s, id %s, replication factor %d, min in sync %d, durability %s%s",
		x.Topic, x.ID, x.ReplicationFactor, x.MinInSync, cmp.Or(x.Durability, "of each broker"), cli.Mark(x.Ordered, ", ordered"))
	for _, option := range x.Differing() {
		fmt.Fprintf(out, ", %s", option)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	clustercmd.PrintTopics(w, v, []api.TopicView{x}, wide)
	if err := w.Flush(); err != nil || len(channels) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nCHANNEL\tORDERED\tPAUSED\tFILTER")
	for _, c := range channels {
		fmt.Fprintf(w, "%s\t%v\t%v\t%s\n", c.Channel, c.Ordered, c.Paused, cmp.Or(api.Printable(c.Filter), "-"))
	}
	return w.Flush()
}
