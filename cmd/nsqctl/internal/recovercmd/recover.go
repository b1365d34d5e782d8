// Package recovercmd contains the commands of nsqctl that restore service after the loss of more disks than the cluster
// tolerates. They show what is left, and change something only after the operator confirms the loss.
//
// The brokers recover a topic (coordinator/admin). The metadata and the data path of a stopped broker are changed here,
// without a connection to any broker.
//
// # Invariants
//
//  1. Nothing changes without --confirm and the name of what is lost.
//  2. Nothing changes while a broker runs on the data path: the commands hold the path's lock.
//  3. A copy of the etcd directory exists before the directory is changed.
//  4. No revision of the metadata that a lost member may have given out is used again.
package recovercmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

// NewRecover returns the command that recovers after a loss.
func NewRecover(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "continue after the loss of more disks than the cluster tolerates; loses messages",
		Long: `recover is for the loss of all in-sync replicas of a partition, or of the majority of the embedded etcd.
It shows the remaining data, and continues with it only after a confirmation of the loss. No broker ever does this by
itself. If a disk may come back, wait for it.`,
	}
	cmd.AddCommand(newRecoverTopic(t), newRecoverMetadata(), newRecoverDataPath())
	return cmd
}

func newRecoverTopic(t *cli.Target) *cobra.Command {
	var partition int
	var from, discard string
	cmd := &cobra.Command{
		Use:   "topic TOPIC",
		Short: "show the remaining replicas of a partition without its in-sync replicas; with --from, continue with one",
		Long: `recover topic lists the replicas of a partition whose in-sync replicas are lost. With --from and
--confirm TOPIC/PARTITION that broker's replica becomes the only one in sync; the others copy it. Acknowledged messages
that it does not have are lost permanently; the cluster keeps a record. Until another replica is in sync, an OK of this
partition means one disk.

A broker that returns later with messages of the lost part is refused with an alarm. Save them with "nsqctl peek TOPIC
--partition N --node BROKER --uncommitted"; then --discard BROKER moves its replica of this partition to its trash, and
the broker copies the partition again.

Make sure that the lost brokers are off: a broker that is only partitioned may still accept puts, which then are lost
too.`,
		Example: `  nsqctl recover topic orders --partition 3
  nsqctl recover topic orders --partition 3 --from n3 --confirm orders/3
  nsqctl recover topic orders --partition 3 --discard n1 --confirm orders/3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := cli.Request(cmd, args, "from", "discard", "confirm")
			q.Set("partition", fmt.Sprint(partition))
			if from != "" && discard != "" {
				return errors.New("--from and --discard are two decisions: give one at a time")
			}
			var r api.Remains
			if from == "" && discard == "" {
				if err := t.GetAny(cmd.Context(), "/v1/topic/recover", q, &r); err != nil {
					return err
				}
				return cli.Print(cmd, t, r, func(w io.Writer) { printRemains(w, r) })
			}
			if err := t.PostAny(cmd.Context(), "/v1/topic/recover", q, &r); err != nil {
				return err
			}
			return cli.Print(cmd, t, r, func(w io.Writer) {
				if discard != "" {
					fmt.Fprintf(w, "%s/%d: the replica on %s is in its trash, and is copied again\n", r.Topic, r.Partition, discard)
				} else {
					fmt.Fprintf(w, "%s/%d continues with the replica of %s\n", r.Topic, r.Partition, from)
				}
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", 0, "number of the partition")
	f.StringVar(&from, "from", "", "broker whose replica becomes the leader")
	f.StringVar(&discard, "discard", "", "broker whose refused replica is discarded: it has messages that a recovery gave up")
	f.String("confirm", "", "TOPIC/PARTITION, to accept the loss")
	return cmd
}

func printRemains(w io.Writer, r api.Remains) {
	fmt.Fprintf(w, "%s/%d, epoch %d, led by %s\n\n", r.Topic, r.Partition, r.Epoch, cmp.Or(string(r.Leader), "no broker"))
	fmt.Fprintln(w, "IN SYNC\tDISK\t")
	for _, m := range r.InSync {
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.Node, m.Store, m.State)
	}
	fmt.Fprintln(w, "\nREPLICA\tDISK\tEPOCH\tMESSAGES\tCOMMITTED")
	best := 0
	for i, h := range r.Replicas {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", h.Node, h.Store, h.Epoch, h.End, h.Committed)
		if b := r.Replicas[best]; cmp.Or(cmp.Compare(h.Epoch, b.Epoch), cmp.Compare(h.End, b.End)) > 0 {
			best = i
		}
	}
	if r.Refused != "" {
		fmt.Fprintf(w, "\nnothing to do: %s\n", r.Refused)
		return
	}
	if r.Outdated {
		fmt.Fprintln(w, "\nthe metadata is older than these replicas, because a backup of it was restored: no replica can lead in a past epoch")
	}
	b := r.Replicas[best]
	most := fmt.Sprintf("%s has the most messages: 0 to %d. Everything acknowledged after that is lost", b.Node, b.End-1)
	if b.End == 0 {
		most = "no replica that answers has a message. Everything acknowledged is lost"
	}
	fmt.Fprintf(w, `
%s
if you continue with %s:

  nsqctl recover topic %s --partition %d --from %s --confirm %s/%d
`, most, b.Node, r.Topic, r.Partition, b.Node, r.Topic, r.Partition)
}
