package placement

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

// planned is what a command with a plan prints as JSON.
type planned struct {
	Plan   *api.Plan `json:"plan"`
	Result string    `json:"result"`
}

// showPlan prints the plan of a change, and asks on a terminal. goOn is false if the change is
// not to be made.
func (a Change) showPlan(cmd *cobra.Command, t *cli.Target) (p *api.Plan, goOn bool, err error) {
	dry, _ := cmd.Flags().GetBool("dry-run") // declared by PlanFlags
	yes, _ := cmd.Flags().GetBool("yes")
	p = new(api.Plan)
	if err := t.GetAny(cmd.Context(), a.Path, a.Query, p); err != nil {
		return nil, false, err
	}
	out := cmd.OutOrStdout()
	switch {
	case t.Output == "json" && dry:
		return p, false, cli.PrintJSON(out, p)
	case t.Output == "json":
	default:
		if err := printPlan(out, *p, t.Wide); err != nil {
			return nil, false, err
		}
	}
	if dry {
		return p, false, nil
	}
	if len(p.Steps) > 0 && !yes && t.Output != "json" && cli.IsTerminal(cmd.OutOrStdout()) && cli.IsTerminal(os.Stdin) {
		if err := cli.Confirm(out, cmd.InOrStdin()); err != nil {
			return nil, false, err
		}
	}
	return p, true, nil
}

func printPlan(out io.Writer, p api.Plan, wide bool) error {
	for _, b := range p.Blocked {
		fmt.Fprintf(out, "not possible: %s\n", b)
	}
	if len(p.Steps) == 0 {
		_, err := fmt.Fprintln(out, "plan: no partition changes")
		return err
	}
	copies, leaders := 0, 0
	for _, s := range p.Steps {
		for _, n := range s.ReplicasAfter {
			if !strings.Contains(","+cli.Names(s.Replicas)+",", ","+string(n)+",") {
				copies++
			}
		}
		if s.Leader != s.LeaderAfter {
			leaders++
		}
	}
	fmt.Fprintf(out, "plan: %d partitions change, %d replicas are copied, %d leaderships move\n\n", len(p.Steps), copies, leaders)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
	return w.Flush()
}
