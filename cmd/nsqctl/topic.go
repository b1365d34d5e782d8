package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clustercmd"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/option"
)

func newTopic(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "create, change, describe, pause, empty, delete and undelete topics"}
	cmd.AddCommand(newTopicCreate(t), newTopicSet(t), newTopicDescribe(t), newTopicList(t), newTopicDelete(t), newTopicUndelete(t), newTopicPurge(t),
		newTopicTrash(t), newMove(t), newReplication(t), newPartitions(t))
	for _, verb := range []string{"pause", "unpause", "empty"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC",
			Short:   verb + " a topic",
			Example: "  nsqctl topic " + verb + " orders",
			RunE: func(cmd *cobra.Command, args []string) error {
				return t.PostAny(cmd.Context(), "/topic/"+verb, url.Values{"topic": args}, nil)
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
	}
	f := cmd.Flags()
	numbers := []string{"partitions", "replication-factor", "min-in-sync"}
	for _, n := range numbers {
		f.Int(n, 0, "1 or more; not given: the cluster's default")
	}
	limits := topicLimits(f)
	f.Bool("ordered", false, "ordered channels: one message in flight per partition")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := cli.Given(cmd, limits(url.Values{"topic": args}), append(numbers, "ordered")...)
		return changeTopic(cmd, t, "/topic/create", q)
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
	}
	limits := topicLimits(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return changeTopic(cmd, t, "/v1/topic/set", limits(url.Values{"topic": args}))
	}
	return cmd
}

// topicLimits defines the flags of a topic's limits and durability. The returned function adds the given ones to a
// query.
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
				q.Set(cli.Underscored(name), v)
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sort != "" {
				return listTopics(cmd, t, sort, limit)
			}
			return cli.ShowList(cmd, t, "/topics", nil, "topics", func(w io.Writer, names []string) {
				for _, name := range names {
					fmt.Fprintln(w, name)
				}
			})
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "", "disk, rate, depth, lag or name: a table in this order")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "with --sort: largest number of topics, 1 to 500")
	return cmd
}

// changeTopic makes a change, and prints the topic as it is then.
func changeTopic(cmd *cobra.Command, t *cli.Target, path string, q url.Values) error {
	if err := t.PostAny(cmd.Context(), path, q, nil); err != nil {
		return err
	}
	return describeTopic(cmd, t, q.Get("topic"))
}

func describeTopic(cmd *cobra.Command, t *cli.Target, topic string) error {
	v, x, there, err := t.Topic(cmd.Context(), topic)
	if err != nil {
		return err
	}
	if !there {
		return cli.NotFound("topic", topic)
	}
	channels, err := t.Channels(cmd.Context(), topic)
	if err != nil {
		return err
	}
	answer := struct {
		api.TopicView
		Channels []api.ChannelView `json:"channels"`
	}{x, channels}
	return cli.Print(cmd, t, answer, func(w io.Writer) { _ = printTopic(w, v, x, channels, t.Wide) })
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

func lag(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
}

// listTopics prints the topics with their numbers, sorted.
func listTopics(cmd *cobra.Command, t *cli.Target, sort string, limit int) error {
	return cli.ShowConsole(cmd, t, "/v1/console/topics", url.Values{"sort": {sort}, "limit": {fmt.Sprint(limit)}}, func(w io.Writer, v console.Topics) {
		size := func(n *float64) string {
			if n == nil {
				return "unknown"
			}
			return cli.Size(*n)
		}
		fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tCHANNELS\tKEPT\tPUT/S\tBYTES/S\tWAITING\tLAG\tMESSAGES")
		for _, x := range v.Topics {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\n",
				x.Topic, x.Partitions, x.ReplicationFactor, x.Channels, size(x.KeptBytes), cli.Known(x.Puts, "%.0f"), size(x.PutBytes), x.Depth, lag(x.LagSeconds), x.Messages)
		}
		if rest := v.Matched - len(v.Topics); rest > 0 {
			fmt.Fprintf(w, "and %d more: -n\n", rest)
		}
	})
}
