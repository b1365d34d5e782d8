package clustercmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

const healthPoll = 500 * time.Millisecond // how often --wait polls

const placesShown = 5 // bounds the partitions that the text names for an alarm; JSON has all

func newClusterHealth(t *cli.Target) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "one line that says whether messages are safe, and an alarm for each fault",
		Long: `health prints one line of summary, and for each fault its places and the next step. The page at /ui shows
the same alarms.

Exit codes: 0 healthy; 1 degraded: messages are safe and served, one more fault may change that; 2 unsafe: messages are
refused or not delivered, or acknowledged messages are on fewer disks than they should be; 3 no broker answers.`,
		Example: `  nsqctl cluster health
  nsqctl cluster health --wait 2m     # until it is healthy, for scripts
  nsqctl cluster health -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := waitForHealth(cmd, t, wait)
			if err != nil {
				return err
			}
			err = cli.Print(cmd, t, r, func(w io.Writer) { printHealth(w, r) })
			return cli.EndUnless(r.State == health.Healthy, int(r.State), err)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to this time until the cluster is healthy")
	return cmd
}

// waitForHealth returns the last judgement: at once, when the cluster is healthy, or after wait.
func waitForHealth(cmd *cobra.Command, t *cli.Target, wait time.Duration) (health.Report, error) {
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	defer line.Clear()
	for deadline := time.Now().Add(wait); ; {
		r, err := askHealth(cmd.Context(), t)
		if err == nil && r.State == health.Healthy || !time.Now().Before(deadline) {
			return r, err
		}
		if err != nil {
			line.Show(err.Error())
		} else {
			line.Show(r.Summary)
		}
		if !concurrency.Sleep(cmd.Context(), min(healthPoll, time.Until(deadline))) {
			return r, cmd.Context().Err()
		}
	}
}

// askHealth judges the cluster as the first broker that answers sees it, with the brokers' reports
// on themselves, and asks each live broker for its readiness.
func askHealth(ctx context.Context, t *cli.Target) (health.Report, error) {
	v, err := t.Cluster(ctx)
	if err != nil {
		return health.Report{}, err
	}
	var silent []string
	for _, b := range v.Brokers {
		if !b.Alive {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, healthTimeout)
		if _, err := t.Call(asked, "GET", t.Address(b), "/readyz", nil); err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", b.Name, err))
		}
		cancel()
	}
	own, missing := askOwn(ctx, t, v)
	for _, m := range missing {
		if !slices.ContainsFunc(silent, func(s string) bool { return strings.HasPrefix(s, string(m.Broker)+": ") }) {
			silent = append(silent, fmt.Sprintf("%s: %s", m.Broker, m.Reason))
		}
	}
	return health.Assess(v, silent, own), nil
}

// askOwn asks the first broker that answers for the reports of all live brokers on themselves.
func askOwn(ctx context.Context, t *cli.Target, v api.ClusterView) (own map[ident.Node]health.Own, missing []console.Unreachable) {
	var all console.Brokers
	if err := t.GetAny(ctx, "/v1/console/brokers", nil, &all); err != nil {
		return nil, []console.Unreachable{{Broker: v.Self, Reason: err.Error()}}
	}
	own = map[ident.Node]health.Own{}
	for _, b := range all.Brokers {
		if b.Live != nil {
			own[b.Name] = b.Own
		}
	}
	return own, slices.DeleteFunc(all.Unreachable, func(u console.Unreachable) bool { return u.Reason == "dead" })
}

// healthTimeout bounds the request to one broker.
var healthTimeout = 2 * time.Second // longer in tests

// printHealth prints the state of an alarm only if it differs from the summary's.
func printHealth(w io.Writer, r health.Report) {
	fmt.Fprintln(w, r.Summary)
	for _, a := range r.Alarms {
		where, more := a.Where, ""
		if len(where) > placesShown {
			where, more = where[:placesShown], fmt.Sprintf(" and %d more", len(a.Where)-placesShown)
		}
		state := cli.Mark(a.State != r.State, a.State.String()+": ")
		fmt.Fprintf(w, "\n%s%s\n  where: %s%s\n  do:    %s\n  alarm: %s\n", state, a.Text, strings.Join(where, ", "), more, a.Do, a.Code)
	}
}

func newSafeToStop(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "safe-to-stop BROKER",
		Short: "may this broker be stopped now? exit code 0: yes, 1: no, with the reasons",
		Long: `safe-to-stop checks every partition with a replica on the broker: without it, would the partition refuse
puts, have no leader, or have its messages on one disk alone? The answer is valid for this moment: ask again before each
broker of a rolling restart.`,
		Example: `  nsqctl cluster safe-to-stop n2 && ssh n2 systemctl restart nsqd`,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := t.Cluster(cmd.Context())
			if err != nil {
				return err
			}
			reasons, err := health.SafeToStop(v, ident.Node(args[0]))
			if err != nil {
				return cli.ExitError{Code: cli.ExitNotFound, Err: err}
			}
			answer := map[string]any{"broker": args[0], "safe": len(reasons) == 0, "reasons": append([]string{}, reasons...)}
			err = cli.Print(cmd, t, answer, func(w io.Writer) {
				if len(reasons) == 0 {
					fmt.Fprintf(w, "%s may be stopped\n", args[0])
					return
				}
				fmt.Fprintf(w, "%s must not be stopped now:\n", args[0])
				for i, reason := range reasons {
					if i == placesShown {
						fmt.Fprintf(w, "  and %d more\n", len(reasons)-i)
						break
					}
					fmt.Fprintf(w, "  %s\n", reason)
				}
			})
			return cli.EndUnless(len(reasons) == 0, cli.ExitFailed, err)
		},
	}
}
