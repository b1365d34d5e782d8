package clustercmd

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const pollEvery = 200 * time.Millisecond // how often the cluster is polled while replicas move

type openSteps = func(api.ClusterView) []string

// Change is a change of the replicas' placement: the plan of the cluster, a confirmation on a terminal, the request, and a
// wait until the cluster has carried it out in the background. The controller computes the plan (coordinator/admin).
type Change struct {
	Path  string
	Query url.Values
	Plan  bool                        // GET at the path shows the plan first
	Left  openSteps                   // nil: the partitions of the plan
	Never func(api.ClusterView) error // error if the change can never be done; nil: no such error
}

// WaitFlag adds --wait to a command.
func WaitFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("wait", 0, "wait up to this time until the change is done, and print the open steps")
}

// planned is the JSON of a command with a plan.
type planned struct {
	Plan   *api.Plan `json:"plan"`
	Result string    `json:"result"`
}

// Run requests the change and waits for it.
func (a Change) Run(cmd *cobra.Command, t *cli.Target) error {
	answer := planned{Result: "started"}
	if a.Plan {
		answer.Plan = new(api.Plan)
		if dry, err := a.showPlan(cmd, t, answer.Plan); err != nil || dry {
			return err
		}
		if a.Left == nil {
			a.Left = unsettled(func(topic string, partition int) bool {
				return slices.ContainsFunc(answer.Plan.Steps, func(s api.PlanStep) bool { return s.Topic == topic && s.Partition == partition })
			})
		}
	}
	if err := t.PostAny(cmd.Context(), a.Path, a.Query, nil); err != nil {
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

func (a Change) showPlan(cmd *cobra.Command, t *cli.Target, p *api.Plan) (dry bool, err error) {
	if err := t.GetAny(cmd.Context(), a.Path, a.Query, p); err != nil {
		return false, err
	}
	dry, ask := cli.Planning(cmd, t)
	if dry || t.Output != "json" {
		err = cli.Print(cmd, t, p, func(w io.Writer) { printPlan(w, *p, t.Wide) })
	}
	if err == nil && ask && len(p.Steps) > 0 {
		err = cli.Confirm(cmd.OutOrStdout(), cmd.InOrStdin())
	}
	return dry, err
}

func printPlan(w io.Writer, p api.Plan, wide bool) {
	for _, b := range p.Blocked {
		fmt.Fprintf(w, "not possible: %s\n", b)
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, "plan: no partition changes")
		return
	}
	copies, leaders := 0, 0
	for _, s := range p.Steps {
		for _, n := range s.ReplicasAfter {
			if !slices.Contains(s.Replicas, n) {
				copies++
			}
		}
		if s.Leader != s.LeaderAfter {
			leaders++
		}
	}
	fmt.Fprintf(w, "plan: changes %s, copies %s, moves %s\n\n", api.Count(len(p.Steps), "partition"), api.Count(copies, "replica"), api.Count(leaders, "leadership"))
	fmt.Fprintln(w, "BROKER\tREPLICAS\tAFTER\tLEADS\tAFTER")
	for _, b := range p.Brokers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", b.Broker, b.Replicas, b.ReplicasAfter, b.Leads, b.LeadsAfter)
	}
	fmt.Fprintln(w, "\nTOPIC\tPARTITION\tREPLICAS\tAFTER\tLEADER\tAFTER")
	for i, s := range p.Steps {
		if i == cli.StepsShown && !wide {
			fmt.Fprintf(w, "and %d more: -o wide\n", len(p.Steps)-i)
			break
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", s.Topic, s.Partition, cli.Names(s.Replicas), cli.Names(s.ReplicasAfter), s.Leader, s.LeaderAfter)
	}
	fmt.Fprintln(w)
}

// await polls until the change is done. A terminal shows the open steps in one line.
func (a Change) await(cmd *cobra.Command, t *cli.Target, wait time.Duration) error {
	end, last, brokers := time.Now().Add(wait), "", slices.Clone(t.Addresses)
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	defer line.Clear()
	for p := (progress{}); ; {
		var v api.ClusterView
		if err := t.Get(cmd.Context(), brokers[0], "/v1/cluster", nil, &v); err != nil {
			last = err.Error()
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
			last, brokers = p.text(time.Now(), left), brokers[:1]
			for _, b := range v.Brokers {
				if at := t.Address(b); b.Alive && at != "" && at != brokers[0] {
					brokers = append(brokers, at)
				}
			}
		}
		if cli.IsTerminal(line.Out) {
			line.Show(last)
		}
		if !concurrency.Sleep(cmd.Context(), min(pollEvery, time.Until(end))) {
			return cmd.Context().Err()
		}
		if !time.Now().Before(end) {
			return fmt.Errorf("not done within %s: %s; the change continues in the background", wait, last)
		}
	}
}

// progress estimates when the open steps of a wait are done.
type progress struct {
	most  int       // largest number of open steps so far
	since time.Time // when that number last changed
}

// text describes the open steps and, after a second in which some were done, the time that the remaining ones take at
// that rate.
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
		if slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool { return b.Leaving && string(b.Name) == broker }) {
			return fmt.Errorf("%s is being decommissioned: it gets no replica", broker)
		}
		return nil
	}
}

// Unsettled lists the differences between the partitions of a topic and their targets; of all its partitions if none is
// given.
func Unsettled(topic string, partitions ...int) openSteps {
	return unsettled(func(of string, partition int) bool {
		return of == topic && (len(partitions) == 0 || slices.Contains(partitions, partition))
	})
}

func unsettled(which func(topic string, partition int) bool) openSteps {
	return func(v api.ClusterView) []string {
		return partitions(v, func(t api.TopicView, p api.PartitionView) string {
			return cli.Mark(which(t.Topic, p.Partition), lacks(t, p))
		})
	}
}

// partitions lists the partitions for which step returns a text.
func partitions(v api.ClusterView, step func(api.TopicView, api.PartitionView) string) (out []string) {
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if text := step(t, p); text != "" {
				out = append(out, fmt.Sprintf("%s/%d %s", t.Topic, p.Partition, text))
			}
		}
	}
	return out
}

// lacks returns the difference between a partition and its target; "" means none.
func lacks(t api.TopicView, p api.PartitionView) string {
	for _, n := range p.Replicas {
		if !slices.Contains(p.ISR, n) {
			return fmt.Sprintf("waits for %s to be in sync", n)
		}
	}
	switch {
	case len(p.Target) > 0:
		return fmt.Sprintf("moves from %s to %s", cli.Names(p.Replicas), cli.Names(p.Target))
	case len(p.Replicas) != t.ReplicationFactor:
		return fmt.Sprintf("has %s, its target is %d", api.Count(len(p.Replicas), "replica"), t.ReplicationFactor)
	case p.MinInSync != t.MinInSync:
		return fmt.Sprintf("has min_in_sync %d, its target is %d", p.MinInSync, t.MinInSync)
	}
	return ""
}

func replicasOn(broker string) openSteps {
	n := ident.Node(broker)
	return func(v api.ClusterView) []string {
		staying := 0
		for _, b := range v.Brokers {
			if !b.Leaving {
				staying++
			}
		}
		return partitions(v, func(t api.TopicView, p api.PartitionView) string {
			switch {
			case !slices.Contains(p.Replicas, n) && !slices.Contains(p.ISR, n):
				return ""
			case t.ReplicationFactor > staying:
				return fmt.Sprintf("cannot be moved to another broker: its replication factor is %d, and only %s would remain; "+
					"add a broker, or lower it with `nsqctl topic replication`", t.ReplicationFactor, api.Count(staying, "broker"))
			}
			return cmp.Or(lacks(t, p), "is on "+broker)
		})
	}
}
