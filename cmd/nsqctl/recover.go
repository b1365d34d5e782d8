package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// remains is the answer of /v1/topic/recover.
type remains struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Leader    string `json:"leader"`
	Epoch     int64  `json:"epoch"`
	InSync    []struct {
		Node  string `json:"node"`
		Store string `json:"store"`
		State string `json:"state"`
	} `json:"in_sync"`
	Replicas []struct {
		Node      string `json:"node"`
		Store     string `json:"store"`
		Epoch     int64  `json:"epoch"`
		Committed int64  `json:"committed_sequence"`
		End       int64  `json:"end_sequence"`
	} `json:"replicas"`
	Outdated bool   `json:"outdated,omitempty"`
	Refused  string `json:"refused,omitempty"`
}

func newRecover(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "go on after more disks are lost than the cluster survives; loses messages",
		Long: `recover is for the day when all in-sync replicas of a partition, or the majority
of the embedded etcd, are gone for ever. It shows what is left, and goes on with
it only if you name what is lost. No broker ever does this by itself. If a disk
may come back, wait for it.`,
	}
	cmd.AddCommand(newRecoverTopic(t), newRecoverMetadata())
	return cmd
}

func newRecoverTopic(t *target) *cobra.Command {
	var partition int
	var from, confirm string
	cmd := &cobra.Command{
		Use:   "topic TOPIC",
		Short: "show what is left of a partition without its in-sync replicas; with --from, go on with it",
		Long: `recover topic asks every broker what it holds of a partition whose in-sync
replicas are lost. With --from and --confirm TOPIC/PARTITION that broker's replica
becomes the only one in sync; the others copy it. What was acknowledged and is not
on it is gone for good; the cluster keeps a record. Until another replica is in
sync, an OK of this partition means one disk.

Make sure that the lost brokers are off: one that is merely cut off may still be
taking puts, which then are lost too.`,
		Example: `  nsqctl recover topic orders --partition 3
  nsqctl recover topic orders --partition 3 --from n3 --confirm orders/3`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"topic": args, "partition": {fmt.Sprint(partition)}}
			var r remains
			if from == "" {
				if err := t.get(cmd.Context(), t.http, "/v1/topic/recover", q, &r); err != nil {
					return err
				}
				return printRemains(cmd.OutOrStdout(), t, r)
			}
			q.Set("from", from)
			q.Set("confirm", confirm)
			body, err := t.call(cmd.Context(), http.MethodPost, t.http, "/v1/topic/recover", q)
			if err != nil {
				return err
			}
			if err := decode(body, "/v1/topic/recover", &r); err != nil || t.output == "json" {
				return cmp.Or(err, printJSON(cmd.OutOrStdout(), r))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%d goes on with what %s holds\n", r.Topic, r.Partition, from)
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "which partition")
	f.StringVar(&from, "from", "", "go on with this broker's replica")
	f.StringVar(&confirm, "confirm", "", "TOPIC/PARTITION, to say that you accept the loss")
	return cmd
}

func printRemains(out io.Writer, t *target, r remains) error {
	if t.output == "json" {
		return printJSON(out, r)
	}
	leader := cmp.Or(r.Leader, "nobody")
	fmt.Fprintf(out, "%s/%d, epoch %d, led by %s\n\n", r.Topic, r.Partition, r.Epoch, leader)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "IN SYNC\tDISK\t")
	for _, m := range r.InSync {
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Node, m.Store, m.State)
	}
	fmt.Fprintln(w, "\nREPLICA\tDISK\tEPOCH\tMESSAGES\tKNOWN TO BE COMMITTED")
	best := 0
	for i, h := range r.Replicas {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", h.Node, h.Store, h.Epoch, h.End, h.Committed)
		if b := r.Replicas[best]; slices.Compare([]int64{h.Epoch, h.End}, []int64{b.Epoch, b.End}) > 0 {
			best = i
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Refused != "" {
		fmt.Fprintf(out, "\nnothing to do: %s\n", r.Refused)
		return nil
	}
	if r.Outdated {
		fmt.Fprintln(out, "\nthe metadata is older than these replicas, a backup of it was restored: nobody can lead in an epoch that is over")
	}
	b := r.Replicas[best]
	holds := fmt.Sprintf("%s holds the most: messages 0 to %d. Everything acknowledged after that is lost", b.Node, b.End-1)
	if b.End == 0 {
		holds = "no replica that answers holds a message. Everything acknowledged is lost"
	}
	fmt.Fprintf(out, `
%s
if you go on with %s:

  nsqctl recover topic %s --partition %d --from %s --confirm %s/%d
`, holds, b.Node, r.Topic, r.Partition, b.Node, r.Topic, r.Partition)
	return nil
}
