package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
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
		Long: `set changes the settings that are given; the others stay as they are. Two commands change the rest: topic
replication changes the numbers of replicas, topic partitions raises the number of partitions.`,
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
		Short: "print the names of all topics; with --sort also their numbers",
		Long: `list prints the names of all topics. With --sort it prints a table, the largest value first. KEPT is the
size of one copy of the topic's logs, which each of its replicas has on disk.`,
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
	return cli.Print(cmd, t, answer, func(w io.Writer) { printTopic(w, v, x, channels, t.Wide) })
}

func printTopic(w io.Writer, v api.ClusterView, x api.TopicView, channels []api.ChannelView, wide bool) {
	fmt.Fprintf(w, "topic %s, id %s, replication factor %d, min in sync %d, durability %s%s",
		x.Topic, x.ID, x.ReplicationFactor, x.MinInSync, cmp.Or(x.Durability, "of each broker"), cli.Mark(x.Ordered, ", ordered"))
	for _, option := range x.Differing() {
		fmt.Fprintf(w, ", %s", option)
	}
	fmt.Fprintln(w)
	clustercmd.PrintTopics(w, v, []api.TopicView{x}, wide)
	if len(channels) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCHANNEL\tORDERED\tPAUSED\tFILTER")
	for _, c := range channels {
		fmt.Fprintf(w, "%s\t%v\t%v\t%s\n", c.Channel, c.Ordered, c.Paused, cmp.Or(api.Printable(c.Filter), "-"))
	}
}

func lag(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
}

func printTopics(w io.Writer, v console.Topics) {
	fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tCHANNELS\tKEPT\tPUT/S\tBYTES/S\tWAITING\tLAG\tMESSAGES")
	for _, x := range v.Topics {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%d\n",
			x.Topic, x.Partitions, x.ReplicationFactor, x.Channels, cli.Size(x.KeptBytes), cli.Known(x.Puts, "%.0f"), cli.Size(x.PutBytes), x.Depth, lag(x.LagSeconds), x.Messages)
	}
	printRest(w, v.Matched-len(v.Topics))
}

// printRest says how many lines a list does not have.
func printRest(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more: -n\n", n)
	}
}

func newMove(t *cli.Target) *cobra.Command {
	var partition int
	var to string
	cmd := &cobra.Command{
		Use:   "move TOPIC",
		Short: "move one replica of a partition to another broker",
		Long: `move moves a replica of a partition to another broker, at the same place in the list: the first in the
list is the preferred leader. The new replica copies the log and joins the in-sync set before the old one is removed;
puts and consumers continue.`,
		Example: `  nsqctl topic move orders --partition 3 --from n1 --to n4 --wait 1h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "from", "to")
			q.Set("partition", fmt.Sprint(partition))
			return clustercmd.Change{
				Path: "/v1/topic/move", Query: q, Plan: true, Left: clustercmd.Unsettled(args[0], partition), Never: clustercmd.NotLeaving(to),
			}.Run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "number of the partition")
	f.String("from", "", "broker that has the replica")
	f.StringVar(&to, "to", "", "broker that receives the replica")
	clustercmd.WaitFlag(cmd)
	cli.PlanFlags(cmd)
	return cli.Required(cmd, "from", "to")
}

func newReplication(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replication TOPIC",
		Short: "change the replication factor or the minimum of in-sync replicas of a topic",
		Long: `replication changes the number of replicas of each partition, and the number of them that must be in sync
for a put. Replicas are added or removed one partition after the other; a higher minimum applies to a partition as soon
as that many replicas are in sync.`,
		Example: `  nsqctl topic replication orders --replication-factor 3 --min-in-sync 2 --wait 1h`,
	}
	settings := []string{"replication-factor", "min-in-sync"}
	for _, s := range settings {
		cmd.Flags().Int(s, 0, "0 = unchanged")
	}
	clustercmd.WaitFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := cli.Request(cmd, args, settings...)
		maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "0" })
		return clustercmd.Change{Path: "/v1/topic/replication", Query: q, Left: clustercmd.Unsettled(args[0])}.Run(cmd, t)
	}
	return cmd
}

func newPartitions(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions TOPIC NUMBER",
		Short: "raise the number of partitions of a topic",
		Long: `partitions raises the number of partitions of a topic, while producers and consumers continue. The number
is never lowered, and the messages that are there stay where they are. All channels, with their pauses, are in the new
partitions before the first message is.

Later messages of a key may go to another partition than earlier ones, so the order of the messages of a key is lost at
the change. To preserve it, stop the producers, wait until the channels are empty, raise the number, start the
producers. Ordered topics are refused without --reorder for that reason.

So is a topic that recognises messages by their content: one that was published before the change and is published again
after it may be stored again. Stop all producers for the topic's dedupe window before the change. The same is true for
messages with ids, and the topic cannot tell whether it has any.`,
		Example: `  nsqctl topic partitions orders 8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return cli.Usage("NUMBER must be a positive number, not %q", args[1])
			}
			return changeTopic(cmd, t, "/v1/topic/partitions", cli.Request(cmd, args, "reorder"))
		},
	}
	cmd.Flags().Bool("reorder", false, "also for an ordered topic, or one with --dedupe content: its channels are empty and no client publishes, or the order does not matter")
	return cmd
}

func newTopicDelete(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "delete a topic",
		Long: `delete deletes a topic with its channels. It can be undeleted for the time of --delete-grace of the
brokers (24h by default); its files take disk space until then. An #ephemeral topic is deleted permanently.`,
		Example: `  nsqctl topic delete orders
  nsqctl topic delete orders --now         # permanently`,
		RunE: t.Post("/topic/delete", "now"),
	}
	cmd.Flags().Bool("now", false, "delete permanently, at once: it cannot be undeleted")
	return cmd
}

func newTopicUndelete(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undelete TOPIC",
		Short: "bring a deleted topic back within its grace",
		Long: `undelete brings a deleted topic back as it was: its messages, its channels with their positions, delayed
messages, policies and pauses, its options. Of several deleted topics of the name it takes the last deleted, or the one
with --id.

While another topic has the name it is refused.`,
		Example: `  nsqctl topic undelete orders
  nsqctl topic undelete orders --id 16f3a2b4c5d6e7f8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeTopic(cmd, t, "/v1/topic/undelete", cli.Request(cmd, args, "id"))
		},
	}
	cmd.Flags().String("id", "", "the id of the deleted topic, as topic trash shows it")
	return cmd
}

func newTopicPurge(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge TOPIC",
		Short: "remove deleted topics of a name permanently, before their grace period ends",
		Long: `purge permanently removes all deleted topics of a name, or the one with --id. Their files leave the disk
after --trash-grace of each broker.`,
		Example: `  nsqctl topic purge orders`,
		RunE:    t.Post("/v1/topic/purge", "id"),
	}
	cmd.Flags().String("id", "", "the id of one deleted topic, as topic trash shows it")
	return cmd
}

func newTopicTrash(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "trash",
		Short: "print the deleted topics that can be undeleted",
		Long: `trash prints the deleted topics that can be undeleted, oldest deletion first. BYTES is the size of one
copy of the logs, which each replica has on disk; it is unknown while the leader of a partition does not answer. UNTIL
is when the topic is removed permanently; while the cluster has no controller it moves into the future.`,
		Example: `  nsqctl topic trash
  nsqctl topic trash -o json`,
		RunE: cli.ShowList(t, "/v1/topic/trash", "topics", printTrash),
	}
}

func printTrash(w io.Writer, topics []api.TrashedTopic) {
	fmt.Fprintln(w, "TOPIC\tID\tDELETED\tBY\tPARTITIONS\tCHANNELS\tMESSAGES\tBYTES\tUNTIL")
	for _, x := range topics {
		until := timeOf(x.UntilMS)
		if x.Purging {
			until = "being removed"
		}
		messages, size := strconv.FormatInt(x.Messages, 10), cli.Size(&x.Bytes)
		if x.Incomplete {
			messages, size = "unknown", "unknown"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", x.Topic, x.ID, timeOf(x.DeletedAtMS), cmp.Or(api.Printable(x.By), "-"),
			x.Partitions, x.Channels, messages, size, until)
	}
}

func timeOf(ms int64) string { return time.UnixMilli(ms).Format(time.RFC3339) }
