package placement

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// pollEvery is how often the cluster is polled while replicas move.
const pollEvery = 200 * time.Millisecond

// Change is a change of the replicas' placement. The request starts it, the cluster
// carries it out in the background, and --wait polls until it is done.
type Change struct {
	Path  string
	Query url.Values
	Plan  bool                           // GET at the path shows the plan first
	Left  func(api.ClusterView) []string // the open steps
	Never func(api.ClusterView) error    // error if the change can never be done; nil: no such error
}

// WaitFlag adds --wait to a command.
func WaitFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("wait", 0, "wait up to this time until the change is done, and print the open steps")
}

// Run requests the change and waits for it.
func (a Change) Run(cmd *cobra.Command, t *cli.Target) error {
	answer := planned{Result: "started"}
	if a.Plan {
		p, goOn, err := a.showPlan(cmd, t)
		if err != nil || !goOn {
			return err
		}
		answer.Plan = p
	}
	if _, err := t.CallAny(cmd.Context(), http.MethodPost, a.Path, a.Query); err != nil {
		return err
	}
	if wait, _ := cmd.Flags().GetDuration("wait"); wait > 0 { // declared by WaitFlag, if the command has it
		if err := a.await(cmd, t, wait); err != nil {
			return err
		}
		answer.Result = "done"
	}
	if a.Plan && t.Output == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), answer)
	}
	return nil
}

// await polls until the change is done. A terminal shows the open steps in one line.
func (a Change) await(cmd *cobra.Command, t *cli.Target, wait time.Duration) error {
	limit, said, brokers := time.After(wait), "", slices.Clone(t.Addresses)
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	defer line.Clear()
	var p progress
	for {
		var v api.ClusterView
		now := ""
		if err := t.Get(cmd.Context(), brokers[0], "/v1/cluster", nil, &v); err != nil {
			now = err.Error()
			brokers = append(brokers[1:], brokers[0]) // the first broker may be restarting
		} else {
			if a.Never != nil {
				if err := a.Never(v); err != nil {
					return err
				}
			}
			left := a.Left(v)
			if len(left) == 0 {
				return nil
			}
			now = p.text(time.Now(), left)
			brokers = append(brokers[:1], t.Others(v, brokers[0])...)
		}
		if said = now; cli.IsTerminal(line.Out) {
			line.Show(now)
		}
		select {
		case <-time.After(pollEvery):
		case <-limit:
			return fmt.Errorf("not done within %s: %s; the change continues in the background", wait, said)
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
}

// progress estimates when the open steps of a wait are done.
type progress struct {
	most  int       // open steps, at most so far
	since time.Time // when there were so many last
}

// text describes the open steps and, after a second in which some were done, the time that the others take at that rate.
func (p *progress) text(now time.Time, left []string) string {
	if len(left) >= p.most {
		p.most, p.since = len(left), now
	}
	estimate := ""
	if took := now.Sub(p.since); took >= time.Second {
		rest := took * time.Duration(len(left)) / time.Duration(p.most-len(left))
		estimate = fmt.Sprintf(", about %s", max(time.Second, rest.Round(time.Second)))
	}
	return fmt.Sprintf("%d of %d to go%s: %s", len(left), p.most, estimate, left[0])
}

// NotLeaving returns an error if a broker is being decommissioned: no replica moves to it.
func NotLeaving(broker string) func(api.ClusterView) error {
	return func(v api.ClusterView) error {
		for _, b := range v.Brokers {
			if b.Leaving && string(b.Name) == broker {
				return fmt.Errorf("%s is being decommissioned: it gets no replica", broker)
			}
		}
		return nil
	}
}

// Unsettled lists the differences between the partitions and their targets; topic "" means all
// topics, no partitions all of the topic.
func Unsettled(topic string, partitions ...int) func(api.ClusterView) []string {
	return func(v api.ClusterView) (out []string) {
		for _, t := range v.Topics {
			if topic != "" && t.Topic != topic {
				continue
			}
			for _, p := range t.Partitions {
				if len(partitions) > 0 && !slices.Contains(partitions, p.Partition) {
					continue
				}
				if lack := Lacks(t, p); lack != "" {
					out = append(out, fmt.Sprintf("%s/%d %s", t.Topic, p.Partition, lack))
				}
			}
		}
		return out
	}
}

// Lacks returns the difference between a partition and its target; "" means none.
func Lacks(t api.TopicView, p api.PartitionView) string {
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

// ReplicasOn lists the partitions with a replica on a broker.
func ReplicasOn(broker string) func(api.ClusterView) []string {
	n := ident.Node(broker)
	return func(v api.ClusterView) (out []string) {
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				switch lack := Lacks(t, p); {
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
func staying(v api.ClusterView) (n int) {
	for _, b := range v.Brokers {
		if !b.Leaving {
			n++
		}
	}
	return n
}
