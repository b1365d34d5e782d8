// Package devcmd contains the commands of nsqctl that run processes on this machine for development and measurements:
// dev with its verbs runs the brokers of a cluster on loopback, etcd runs a member of a plain etcd. bench measures the
// brokers of the command line, of a dev cluster, or of a new cluster (with users, or with TLS), alternating between
// systems. internal/test/bench contains the workloads, the schedule and the report, and judges no figure.
//
// It starts and stops brokers through internal/test/devcluster, and restarts none by itself: a broker that ended stays
// down until "dev start".
//
// # Invariants
//
//  1. A verb without a name and without --all changes no broker.
//  2. An unknown verb starts no cluster: the only arguments of dev are flags for the brokers, after "--".
//  3. A wait for brokers names the brokers that are not ready, and the reasons.
//  4. A measurement uses exactly the brokers that were given or started, and none that a broker names.
//  5. A cluster that bench starts ends with it, and its directory is removed.
//  6. Rows that are finished are printed, also if a later workload fails.
package devcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// Time limits for the start and the stop of a new cluster.
const (
	readyTimeout = 30 * time.Second // for brokers with nothing to recover
	stopTimeout  = 15 * time.Second
)

// Commands are dev, etcd and bench.
func Commands(t *cli.Target) []*cobra.Command {
	return []*cobra.Command{newDev(), newEtcd(), newBench(t)}
}

func newDev() *cobra.Command {
	var cfg devcluster.Config
	cmd := &cobra.Command{
		Use:   "dev [-- flags for every nsqd]",
		Short: "run a cluster on loopback until Ctrl-C",
		Long: `dev starts N broker processes on loopback, writes DIR/cluster.json and prints "ready" when puts are
accepted. It does not restart brokers, but reports when one ends or is started again: to test a failure, use "dev kill"
and "dev start". Ctrl-C stops all brokers.

Broker i (from 0) listens at base port P: TCP P+100·i, HTTP +1, HTTPS (with --tls-cert) +2, RPC +3, etcd client +4, etcd
peer +5.`,
		Example: `  nsqctl dev --nodes 3 --data-dir ./data
  nsqctl dev --nodes 1 --data-dir /tmp/one --base-port 14150 -- --log-level=debug
  nsqctl dev kill n2 --data-dir ./data            # kill -9
  nsqctl dev start n2 --data-dir ./data           # start it again`,
		Args: flagsBehindDashes,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Args = args
			return runDev(cmd, cfg)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Nodes, "nodes", 3, "number of brokers")
	f.IntVar(&cfg.BasePort, "base-port", 4150, "first port")
	f.StringVar(&cfg.EtcdEndpoints, "etcd-endpoints", "", "use this etcd instead of embedding one in every broker")
	f.StringVar(&cfg.NSQD, "nsqd", "", "the broker's binary (default: next to nsqctl, otherwise in PATH)")
	cmd.PersistentFlags().StringVar(&cfg.DataDir, "data-dir", cli.DevDirectory, "directory of the brokers' data, logs and cluster.json")
	cmd.AddCommand(newDevKill(&cfg), newDevStart(&cfg), newDevStop(&cfg), newDevRestart(&cfg), newDevLogs(&cfg))
	return cmd
}

// flagsBehindDashes accepts arguments only after "--": an argument before it is an unknown verb.
func flagsBehindDashes(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return fmt.Errorf("unknown command %q for %q; flags for the brokers come after --", args[0], cmd.CommandPath())
	}
	return nil
}

func runDev(cmd *cobra.Command, cfg devcluster.Config) error {
	var err error
	if cfg.NSQD, err = findBroker(cfg.NSQD); err != nil {
		return err
	}
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return err
	}
	c, err := devcluster.New(cfg)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if err = c.StartAll(); err == nil {
		for _, b := range c.Brokers {
			fmt.Fprintf(out, "%s  pid %-7d tcp %s  http %s  log %s\n", b.Name, b.PID, b.TCP, b.HTTP, c.LogFile(b.Name))
		}
		err = awaitReady(cmd.Context(), cmd.ErrOrStderr(), c)
	}
	if err != nil {
		_ = c.StopAll(stopTimeout)
		return err
	}
	fmt.Fprintln(out, "ready")
	watchBrokers(cmd.Context(), out, c)
	fmt.Fprintln(out, "stopping")
	return c.StopAll(stopTimeout)
}

// watchBrokers prints when a broker ends or is started again, until ctx ends. It reaps ended processes.
func watchBrokers(ctx context.Context, out io.Writer, c *devcluster.Cluster) {
	for {
		ended, started, err := c.Look()
		if err != nil {
			fmt.Fprintln(out, err)
			return
		}
		for _, e := range ended {
			how := cli.Mark(e.State != "", ": "+e.State)
			fmt.Fprintf(out, "%s (pid %d) has ended%s; its log: %s; to start it: nsqctl dev start %s --data-dir %s\n",
				e.Name, e.PID, how, c.LogFile(e.Name), e.Name, c.Dir())
		}
		for _, b := range started {
			fmt.Fprintf(out, "%s runs again, pid %d\n", b.Name, b.PID)
		}
		if !concurrency.Sleep(ctx, checkEvery) {
			return
		}
	}
}

// findBroker looks for nsqd next to this binary, then in PATH.
func findBroker(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "nsqd")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("nsqd")
	if err != nil {
		return "", fmt.Errorf("no nsqd next to nsqctl or in PATH: build it with `make build`, or name it with --nsqd")
	}
	return path, nil
}

const stockTxnOps = 128 // the largest number of operations of a stock etcd's transaction

// login is the user that the etcd requires; an empty name means no login.
type login struct{ user, passwordFile string }

func newEtcd() *cobra.Command {
	o := etcd.Options{MaxTxnOps: stockTxnOps}
	var l login
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "run a plain etcd until Ctrl-C, for brokers with --etcd-endpoints",
		Long: `etcd runs one member of the etcd release that the brokers embed, with the limits of a stock etcd, for
development and tests. It prints "ready" when it has a leader; until then it waits for the other members and prints
their names. For production use an etcd cluster, or the etcd that the brokers embed.`,
		Example: `  nsqctl etcd --data-dir /tmp/etcd &
  nsqctl dev --nodes 4 --etcd-endpoints http://127.0.0.1:2379
  nsqctl etcd --tls-cert etcd.pem --tls-key etcd.key --tls-ca ca.pem --username lockstep --password-file secret`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := runEtcd(cmd, o, l); cmd.Context().Err() == nil {
				return err
			}
			return nil // Ctrl-C is the way to stop it
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "default", "name of the member")
	f.StringVar(&o.Dir, "data-dir", "./etcd", "directory of its data")
	f.StringVar(&o.ClientAddress, "client-address", "127.0.0.1:2379", "address for brokers")
	f.StringVar(&o.PeerAddress, "peer-address", "127.0.0.1:2380", "address for other members")
	f.StringVar(&o.InitialCluster, "initial-cluster", "", "all members, n1=http://host:port,…; empty: only this one")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "certificate of both ports")
	f.StringVar(&o.TLS.Key, "tls-key", "", "private key of --tls-cert")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "certificate authority of brokers and members; both must present a certificate")
	f.StringVar(&l.user, "username", "", "user name of the brokers' logins; empty: no login required")
	f.StringVar(&l.passwordFile, "password-file", "", "file with the user's password")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsRequiredTogether("username", "password-file")
	f.DurationVar(&o.Heartbeat, "heartbeat", 100*time.Millisecond, "heartbeat interval; the default is etcd's")
	f.DurationVar(&o.Election, "election-timeout", time.Second, "election timeout; the default is etcd's")
	return cmd
}

func runEtcd(cmd *cobra.Command, o etcd.Options, l login) error {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	o.Log = log
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	o.Waiting = line.Show
	s, err := etcd.Start(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer s.Stop()
	err = s.Wait(cmd.Context())
	line.Clear()
	if err != nil {
		return err
	}
	if l.user != "" {
		secret, err := os.ReadFile(l.passwordFile)
		if err != nil {
			return err
		}
		if err := s.RequireLogin(cmd.Context(), l.user, strings.TrimSpace(string(secret))); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ready, %s\n", s.Endpoints()[0])
	select {
	case <-cmd.Context().Done():
		return nil
	case err := <-s.Err():
		return err
	}
}

const (
	upTimeout = 15 * time.Second // bounds the wait until a started process answers at all
	// sayAfter is how long brokers may take before the command prints which ones are not ready.
	sayAfter   = 2 * time.Second
	checkEvery = 250 * time.Millisecond // the pause between queries to brokers that are not ready
)

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
		return c.StopAll(stopTimeout, names...)
	})
}

func newDevStart(cfg *devcluster.Config) *cobra.Command {
	cmd := onBrokers(cfg, &cobra.Command{
		Use:   "start NAME...",
		Short: "start brokers of a dev cluster again",
		Long: `start starts brokers with their first command line, and ends when their processes run. A broker may still
wait for others then: start prints their names and the number of missing members of the metadata. With --wait it ends
when the brokers are ready. --all starts the brokers that do not run.`,
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
		Long: `restart stops a broker as planned, starts it again and waits until it is ready, then continues with the
next one, as in an upgrade.`,
		Example: `  nsqctl dev restart --all --data-dir ./data`,
	}, func(cmd *cobra.Command, c *devcluster.Cluster, names []string) error {
		for _, name := range names {
			if err := c.StopAll(stopTimeout, name); err != nil {
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
		limit, _ := cmd.Flags().GetDuration("wait") // 0: no limit
		ctx, cancel := context.WithTimeout(cmd.Context(), cmp.Or(limit, math.MaxInt64))
		defer cancel()
		if err := awaitReady(ctx, cmd.ErrOrStderr(), c, names...); err != nil {
			return err
		}
	} else {
		brief, cancel := context.WithTimeout(cmd.Context(), sayAfter)
		defer cancel()
		if c.Ready(brief, names...) != nil {
			for _, line := range missing(c, names) {
				fmt.Fprintln(out, line)
			}
			return nil
		}
	}
	fmt.Fprintln(out, "ready")
	return nil
}

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

// awaitReady waits for brokers (all, if none is named). While it waits it prints which ones are not ready and why:
// recovering thousands of partitions takes a long time. It returns at once if a broker ends.
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
