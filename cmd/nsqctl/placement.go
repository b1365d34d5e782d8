package main

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// placementPoll is how often the cluster is polled while replicas move.
const placementPoll = 200 * time.Millisecond

// placementChange is a change of the replicas' placement. The request starts it, the cluster
// carries it out in the background, and --wait polls until it is done.
type placementChange struct {
	path  string
	query url.Values
	plan  bool                            // GET at the path shows the plan first
	left  func(edge.ClusterView) []string // the open steps
	never func(edge.ClusterView) error    // error if the change can never be done; nil: no such error
}

// waitFlag adds --wait to a command.
func waitFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("wait", 0, "wait up to this time until the change is done, and print the open steps")
}

// run requests the change and waits for it.
func (a placementChange) run(cmd *cobra.Command, t *cli.Target) error {
	answer := planned{Result: "started"}
	if a.plan {
		p, goOn, err := a.showPlan(cmd, t)
		if err != nil || !goOn {
			return err
		}
		answer.Plan = p
	}
	if _, err := t.CallAny(cmd.Context(), http.MethodPost, a.path, a.query); err != nil {
		return err
	}
	if wait, _ := cmd.Flags().GetDuration("wait"); wait > 0 { // declared by waitFlag, if the command has it
		if err := a.await(cmd, t, wait); err != nil {
			return err
		}
		answer.Result = "done"
	}
	if a.plan && t.Output == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), answer)
	}
	return nil
}

// await polls until the change is done. A terminal shows the open steps in one line.
func (a placementChange) await(cmd *cobra.Command, t *cli.Target, wait time.Duration) error {
	limit, said, brokers := time.After(wait), "", slices.Clone(t.Addresses)
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	defer line.Clear()
	most := 0
	for {
		var v edge.ClusterView
		now := ""
		if err := t.Get(cmd.Context(), brokers[0], "/v1/cluster", nil, &v); err != nil {
			now = err.Error()
			brokers = append(brokers[1:], brokers[0]) // the first broker may be restarting
		} else {
			if a.never != nil {
				if err := a.never(v); err != nil {
					return err
				}
			}
			left := a.left(v)
			if len(left) == 0 {
				return nil
			}
			most = max(most, len(left))
			now = fmt.Sprintf("%d of %d to go: %s", len(left), most, left[0])
			brokers = append(brokers[:1], t.Others(v, brokers[0])...)
		}
		if said = now; cli.IsTerminal(line.Out) {
			line.Show(now)
		}
		select {
		case <-time.After(placementPoll):
		case <-limit:
			return fmt.Errorf("not done within %s: %s; the change goes on in the background", wait, said)
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
}

// notLeaving returns an error if a broker is being decommissioned: no replica moves to it.
func notLeaving(broker string) func(edge.ClusterView) error {
	return func(v edge.ClusterView) error {
		for _, b := range v.Brokers {
			if b.Leaving && string(b.Name) == broker {
				return fmt.Errorf("%s is being decommissioned: it gets no replica", broker)
			}
		}
		return nil
	}
}

// unsettled lists the differences between the partitions and their targets; topic "" means all
// topics.
func unsettled(topic string) func(edge.ClusterView) []string {
	return func(v edge.ClusterView) (out []string) {
		for _, t := range v.Topics {
			if topic != "" && t.Topic != topic {
				continue
			}
			for _, p := range t.Partitions {
				if lack := lacks(t, p); lack != "" {
					out = append(out, fmt.Sprintf("%s/%d %s", t.Topic, p.Partition, lack))
				}
			}
		}
		return out
	}
}

func lacks(t edge.TopicView, p edge.PartitionView) string {
	for _, n := range p.Replicas {
		if !slices.Contains(p.ISR, n) {
			return fmt.Sprintf("waits for %s to be in sync", n)
		}
	}
	switch {
	case len(p.Target) > 0:
		return fmt.Sprintf("moves from %s to %s", cli.Names(p.Replicas), cli.Names(p.Target))
	case len(p.Replicas) != t.ReplicationFactor:
		return fmt.Sprintf("has %d replicas, its target is %d", len(p.Replicas), t.ReplicationFactor)
	case p.MinInSync != t.MinInSync:
		return fmt.Sprintf("has min_in_sync %d, its target is %d", p.MinInSync, t.MinInSync)
	}
	return ""
}

// replicasOn lists the partitions with a replica on a broker.
func replicasOn(broker string) func(edge.ClusterView) []string {
	n := ident.Node(broker)
	return func(v edge.ClusterView) (out []string) {
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				switch lack := lacks(t, p); {
				case !slices.Contains(p.Replicas, n) && !slices.Contains(p.ISR, n):
				case t.ReplicationFactor > staying(v):
					out = append(out, fmt.Sprintf("%s/%d cannot be moved to another broker: its replication factor is %d and %d brokers stay; "+
						"add a broker, or lower it with `nsqctl topic replication`", t.Topic, p.Partition, t.ReplicationFactor, staying(v)))
				case lack != "":
					out = append(out, fmt.Sprintf("%s/%d %s", t.Topic, p.Partition, lack))
				default:
					out = append(out, fmt.Sprintf("%s/%d is on %s", t.Topic, p.Partition, n))
				}
			}
		}
		return out
	}
}

// staying counts the brokers that are not being decommissioned.
func staying(v edge.ClusterView) (n int) {
	for _, b := range v.Brokers {
		if !b.Leaving {
			n++
		}
	}
	return n
}
