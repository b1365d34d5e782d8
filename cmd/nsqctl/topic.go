package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
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
	for _, verb := range []string{"pause", "unpause", "empty"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC",
			Short:   verb + " a topic",
			Example: "  nsqctl topic " + verb + " orders",
			RunE:    t.Post("/topic/" + verb),
		})
	}
	cmd.AddCommand(newTopicCreate(t), newTopicSet(t), newTopicList(t), newTopicDelete(t), newTopicUndelete(t), newTopicPurge(t),
		newTopicTrash(t), newMove(t), newReplication(t), newPartitions(t), &cobra.Command{
			Use:     "describe TOPIC",
			Short:   "print leaders, replicas and ends of every partition",
			Example: `  nsqctl topic describe orders`,
			RunE:    func(cmd *cobra.Command, args []string) error { return describeTopic(cmd, t, args[0]) },
		})
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
	f.Bool("ordered", false, "ordered channels: one message in flight per partition")
	cmd.RunE = changeOptions(t, "/topic/create", append(topicOptions(f), append(numbers, "ordered")...))
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
	cmd.RunE = changeOptions(t, "/v1/topic/set", topicOptions(cmd.Flags()))
	return cmd
}

// topicOptions defines the flags of a topic's options and durability, and returns their names.
func topicOptions(f *pflag.FlagSet) []string {
	f.String("durability", "", "sync or replicated: the meaning of OK")
	names := []string{"durability"}
	for _, r := range option.Topics {
		f.String(r.Flag(), "", r.Help)
		names = append(names, r.Flag())
	}
	return names
}

// changeOptions returns the RunE of a command that sends the named flags; an empty one counts as not given.
func changeOptions(t *cli.Target, path string, names []string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		q := cli.Request(cmd, args, names...)
		maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
		return changeTopic(cmd, t, path, q)
	}
}

func newTopicList(t *cli.Target) *cobra.Command {
	names := cli.ShowList(t, "/topics", "topics", func(w io.Writer, names []string) {
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
	})
	cmd := &cobra.Command{
		Use:   "list",
		Short: "print the names of all topics; with --sort their numbers, too",
		Long: `list prints the names of all topics. With --sort it prints a table, the largest value
first. KEPT is the size of one copy of the topic's logs, which each of its replicas
has on disk.`,
		Example: `  nsqctl topic list -o json
  nsqctl topic list --sort disk -n 10      # which topics take the disk?`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if q := cli.Request(cmd, args, "sort", "limit"); q.Get("sort") != "" {
				return cli.ShowConsole(cmd, t, "/v1/console/topics", q, printTopics)
			}
			return names(cmd, args)
		},
	}
	cmd.Flags().String("sort", "", "disk, rate, depth, lag or name: a table in this order")
	cmd.Flags().IntP("limit", "n", 50, "with --sort: largest number of topics, 1 to 500")
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

func printTopics(w io.Writer, v console.Topics) {
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
	printRest(w, v.Matched-len(v.Topics))
}

// printRest says how many lines a list does not have.
func printRest(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", n)
	}
}
