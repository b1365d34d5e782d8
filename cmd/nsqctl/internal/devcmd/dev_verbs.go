package devcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

const (
	// upTimeout bounds the wait until a started process answers at all.
	upTimeout = 15 * time.Second
	// sayAfter is how long brokers may take before the command prints which ones are not
	// ready.
	sayAfter = 2 * time.Second
	// checkEvery is the pause between queries to brokers that are not ready.
	checkEvery = 250 * time.Millisecond
)

// brokersOf returns the brokers for a command: the named ones, or all with --all.
func brokersOf(cfg *devcluster.Config, args []string, all bool) (c *devcluster.Cluster, names []string, err error) {
	if c, err = devcluster.Load(cfg.DataDir); err != nil {
		return nil, nil, err
	}
	if all {
		for _, b := range c.Brokers {
			names = append(names, b.Name)
		}
		return c, names, nil
	}
	for _, name := range args {
		if _, err := c.Broker(name); err != nil {
			return nil, nil, err
		}
	}
	return c, args, nil
}

// onBrokers completes a command that changes the named brokers, or all with --all.
func onBrokers(cfg *devcluster.Config, cmd *cobra.Command, run func(*cobra.Command, *devcluster.Cluster, []string) error) *cobra.Command {
	all := cmd.Flags().Bool("all", false, "all brokers of the cluster")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case *all && len(args) > 0:
			return errors.New("give names or --all, not both")
		case !*all && len(args) == 0:
			return errors.New("name one or more brokers, or give --all")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, names, err := brokersOf(cfg, args, *all)
		if err != nil {
			return err
		}
		return run(cmd, c, names)
	}
	return cmd
}

func newDevKill(cfg *devcluster.Config) *cobra.Command {
	return onBrokers(cfg, &cobra.Command{
		Use:     "kill NAME...",
		Short:   "kill -9 brokers of a dev cluster",
		Example: `  nsqctl dev kill n2 --data-dir ./data`,
	}, func(_ *cobra.Command, c *devcluster.Cluster, names []string) error {
		var errs []error
		for _, name := range names { // in parallel
			errs = append(errs, c.Signal(name, syscall.SIGKILL))
		}
		for i, name := range names {
			if errs[i] == nil {
				_ = c.Kill(name) // the process is already dying; this waits for its end
			}
		}
		return errors.Join(errs...)
	})
}

func newDevStop(cfg *devcluster.Config) *cobra.Command {
	return onBrokers(cfg, &cobra.Command{
		Use:     "stop NAME...",
		Short:   "stop brokers of a dev cluster as planned (SIGTERM)",
		Example: `  nsqctl dev stop n2 n3 --data-dir ./data`,
	}, func(_ *cobra.Command, c *devcluster.Cluster, names []string) error {
		return c.StopAll(StopTimeout, names...)
	})
}

func newDevStart(cfg *devcluster.Config) *cobra.Command {
	cmd := onBrokers(cfg, &cobra.Command{
		Use:   "start NAME...",
		Short: "start brokers of a dev cluster again",
		Long: `start starts brokers with their first command line, and ends when their
processes run. A broker may still wait for others then: start prints their names
and the number of missing members of the metadata. With --wait it ends when the
brokers are ready. --all starts the brokers that do not run.`,
		Example: `  nsqctl dev start n2 --data-dir ./data
  nsqctl dev start --all --wait`,
	}, func(cmd *cobra.Command, c *devcluster.Cluster, names []string) error {
		if all, _ := cmd.Flags().GetBool("all"); all {
			if names = c.Dead(); len(names) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "all brokers are running")
				return nil
			}
		}
		return startBrokers(cmd, c, names)
	})
	cmd.Flags().Duration("wait", 0, "wait until the brokers are ready, and fail after this time; without a time wait without limit")
	cmd.Flags().Lookup("wait").NoOptDefVal = "0s"
	return cmd
}

func newDevRestart(cfg *devcluster.Config) *cobra.Command {
	return onBrokers(cfg, &cobra.Command{
		Use:   "restart NAME...",
		Short: "stop and start brokers of a dev cluster, one after the other",
		Long: `restart stops a broker as planned, starts it again and waits until it is ready,
then continues with the next one, as in an upgrade.`,
		Example: `  nsqctl dev restart --all --data-dir ./data`,
	}, func(cmd *cobra.Command, c *devcluster.Cluster, names []string) error {
		for _, name := range names {
			if err := c.StopAll(StopTimeout, name); err != nil {
				return err
			}
			if err := c.Start(name); err != nil {
				return err
			}
			if err := awaitReady(cmd.Context(), cmd.ErrOrStderr(), c, name); err != nil {
				return err
			}
			b, err := c.Broker(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s ready, pid %d\n", name, b.PID)
		}
		return nil
	})
}

// startBrokers starts all brokers before it waits for one: they may need each other.
func startBrokers(cmd *cobra.Command, c *devcluster.Cluster, names []string) error {
	for _, name := range names {
		if err := c.Start(name); err != nil {
			return err
		}
	}
	up, cancel := context.WithTimeout(cmd.Context(), upTimeout)
	defer cancel()
	if err := c.Up(up, names...); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, b := range c.Brokers {
		if slices.Contains(names, b.Name) {
			fmt.Fprintf(out, "%s runs, pid %d\n", b.Name, b.PID)
		}
	}
	if cmd.Flags().Changed("wait") {
		ctx := cmd.Context()
		if limit, _ := cmd.Flags().GetDuration("wait"); limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		if err := awaitReady(ctx, cmd.ErrOrStderr(), c, names...); err != nil {
			return err
		}
		fmt.Fprintln(out, "ready")
		return nil
	}
	brief, cancel := context.WithTimeout(cmd.Context(), sayAfter)
	defer cancel()
	if c.Ready(brief, names...) == nil {
		fmt.Fprintln(out, "ready")
		return nil
	}
	for _, line := range missing(c, names) {
		fmt.Fprintln(out, line)
	}
	return nil
}

// missing returns the reasons of the brokers that are not ready.
func missing(c *devcluster.Cluster, names []string) (lines []string) {
	if hint := majorityHint(c.Metadata()); hint != "" {
		lines = append(lines, hint)
	}
	for _, b := range c.Brokers {
		if len(names) > 0 && !slices.Contains(names, b.Name) {
			continue
		}
		if s, err := c.State(b.Name); err == nil && !s.Ready {
			lines = append(lines, fmt.Sprintf("%s is %s", b.Name, s.Why))
		}
	}
	return lines
}

// majorityHint names the brokers to start if too few members of the metadata run. It returns
// "" if enough run, or if the metadata has no members here.
func majorityHint(members int, dead []string) string {
	running, needed := members-len(dead), members/2+1
	if members == 0 || running >= needed {
		return ""
	}
	start := strings.Join(dead, " and ")
	switch lack := needed - running; {
	case lack == 1 && len(dead) > 1:
		start = strings.Join(dead, " or ")
	case lack < len(dead):
		start = fmt.Sprintf("%d of %s", lack, strings.Join(dead, ", "))
	}
	return fmt.Sprintf("%d of %d members of the metadata run; start %s", running, members, start)
}

// awaitReady waits for brokers (all, without names). While it waits it prints which ones are not
// ready and why: recovering thousands of partitions takes long. It returns at
// once if a broker ends.
func awaitReady(ctx context.Context, out io.Writer, c *devcluster.Cluster, only ...string) error {
	line := &cli.StatusLine{Out: out}
	defer line.Clear()
	wait := sayAfter
	for {
		within, cancel := context.WithTimeout(ctx, wait)
		err := c.Ready(within, only...)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if lines := missing(c, only); len(lines) > 0 {
			line.Show(strings.Join(lines, "; "))
		}
		wait = checkEvery
	}
}

func newDevLogs(cfg *devcluster.Config) *cobra.Command {
	var follow bool
	var count int
	cmd := &cobra.Command{
		Use:   "logs [NAME...]",
		Short: "print the ends of the brokers' logs",
		Example: `  nsqctl dev logs n1 -n 50 --data-dir ./data
  nsqctl dev logs -f                              # of all brokers, until Ctrl-C`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, names, err := brokersOf(cfg, args, len(args) == 0)
			if err != nil {
				return err
			}
			return showLogs(cmd, c, names, count, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until Ctrl-C")
	cmd.Flags().IntVarP(&count, "lines", "n", 10, "lines of each log")
	return cmd
}

// logFile is one printed log; an incomplete line is printed when it ends.
type logFile struct {
	prefix string
	file   *os.File
	rest   string
}

func showLogs(cmd *cobra.Command, c *devcluster.Cluster, names []string, count int, follow bool) error {
	var logs []*logFile
	for _, name := range names {
		f, err := os.Open(c.LogFile(name))
		if err != nil {
			return err
		}
		defer f.Close()
		l := &logFile{file: f, prefix: cli.Mark(len(names) > 1, name+"| ")}
		logs = append(logs, l)
		if err := l.print(cmd.OutOrStdout(), count); err != nil {
			return err
		}
	}
	for follow && concurrency.Sleep(cmd.Context(), checkEvery) {
		for _, l := range logs {
			if err := l.print(cmd.OutOrStdout(), math.MaxInt); err != nil {
				return err
			}
		}
	}
	return nil
}

// print prints the new complete lines, at most the last count of them.
func (l *logFile) print(w io.Writer, count int) error {
	text, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(l.rest+string(text), "\n")
	last := len(lines) - 1
	l.rest = lines[last]
	for _, line := range lines[max(0, last-count):last] {
		fmt.Fprint(w, l.prefix, line)
	}
	return nil
}
