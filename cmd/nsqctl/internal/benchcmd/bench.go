// Package benchcmd has the command of nsqctl that measures brokers: it takes the brokers of the command line, of a dev
// cluster, or starts a new cluster (with users, or with TLS), and measures them in turns.
//
// internal/test/bench has the workloads, the turns and the report. The package judges no figure.
//
// # Invariants
//
//  1. A measurement uses exactly the brokers that were given or started: none that another broker names.
//  2. A cluster that the command starts ends with it, and its directory is removed.
//  3. Rows that are finished are printed, also if a later workload fails.
package benchcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/certcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/devcmd"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/bench"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

type benchOptions struct {
	workloads []string
	repeat    int
	maxSteal  float64
	sweep     string
	bounds    bench.Bounds
	pids      []int
	dataDir   string
	cluster   bool
	users     bool // in turn with a cluster that has users
	encrypted bool // in turn with a cluster that is reached over TLS
	basePort  int
	brokers   []string // flags of the brokers that --cluster starts
	compare   []string // addresses of one other broker or cluster
	peerName  string
	peerPIDs  []int
}

// NewBench returns the command that measures a cluster.
func NewBench(t *cli.Target) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [-- flags for every nsqd that --cluster starts]",
		Short: "measure a Lockstep cluster, one broker, or a stock nsqd",
		Long: `bench runs bounded workloads over the NSQ protocol and prints the medians of
the repeats. With --data-dir it reads addresses, pids and disks of a dev cluster;
--cluster starts a new cluster of three and stops it afterwards.

Each row has the durability, the in-sync replicas before and after, and the
fdatasyncs per broker: a row whose ISR is not full is void. "CPU s/M" is the CPU
time of all servers in seconds per million messages. "steal %" is the part of the
processors' time that the host of a virtual machine took in the worst repeat:
--max-steal 2 repeats such turns. The machine's own constants (loopback,
fdatasync, memory) are measured in the same run, in the directory of the brokers'
data.

--compare runs each workload in turn against another broker, such as a stock
nsqd, and prints the ratios.

--cluster --users runs each workload in turn against a second new cluster, whose brokers
check the rights of a user with four grants: the ratio is the cost of the checks.
--cluster --encrypted does so with a second cluster whose clients use TLS.

--sweep measures one workload in several sizes, in about two minutes:
` + strings.Join(bench.SweepNames(), ", ") + `; NAME=1,2,4 measures the given values. With
-o json the report has every repeat; make sweeps draws the curves.`,
		Example: `  nsqctl bench --cluster
  nsqctl bench --data-dir ./data --workloads pub-1,mpub-8x100 --repeat 5
  nsqctl bench --nsqd-tcp-address 127.0.0.1:4150 --pids 4711
  nsqctl bench --cluster --compare 127.0.0.1:4150 --compare-pids 4711
  nsqctl bench --cluster --users --workloads pub-64 --repeat 9 --max-steal 2
  nsqctl bench --cluster --encrypted --workloads pub-64,consume-4 --repeat 9
  nsqctl bench --cluster --sweep connections
  nsqctl bench --cluster -o json -- --durability=replicated`,
		Args: devcmd.FlagsBehindDashes,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.brokers = args
			return runBench(cmd, t, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.workloads, "workloads", nil, "workloads to measure, default all:  "+strings.Join(bench.Names(), ", "))
	f.IntVar(&o.repeat, "repeat", 3, "repeats of each workload")
	f.Float64Var(&o.maxSteal, "max-steal", 0, "repeat a turn, up to five times, if the machine's host took more than this percentage of the processors' time; 0: never")
	f.StringVar(&o.sweep, "sweep", "", "measure a curve instead: NAME or NAME=1,2,4")
	f.Float64Var(&o.bounds.Scale, "scale", 1, "factor of the message counts")
	f.DurationVar(&o.bounds.Limit, "limit", 0, "end a repeat after this time and report the messages so far; 0: no limit, for a sweep 110s over all repeats")
	f.DurationVar(&o.bounds.Timeout, "timeout", time.Minute, "a repeat that takes longer fails")
	f.IntSliceVar(&o.pids, "pids", nil, "processes of the servers, for CPU and memory")
	f.StringVar(&o.dataDir, "data-dir", "", "directory of a dev cluster, to read addresses and pids")
	f.BoolVar(&o.cluster, "cluster", false, "start a fresh cluster of three brokers for this run")
	f.BoolVar(&o.users, "users", false, "with --cluster: measure in turn with a second cluster that has users and checks their rights")
	f.BoolVar(&o.encrypted, "encrypted", false, "with --cluster: measure in turn with a second cluster over TLS")
	f.IntVar(&o.basePort, "base-port", 14150, "first port of --cluster")
	f.StringSliceVar(&o.compare, "compare", nil, "TCP addresses of another broker or cluster to measure in turn")
	f.StringVar(&o.peerName, "compare-name", "", "name of the compared broker in the report; default: its addresses")
	f.IntSliceVar(&o.peerPIDs, "compare-pids", nil, "processes of the compared broker, for CPU and memory")
	cmd.MarkFlagsMutuallyExclusive("workloads", "sweep")
	cmd.MarkFlagsMutuallyExclusive("users", "encrypted", "compare")
	return cmd
}

func runBench(cmd *cobra.Command, t *cli.Target, o benchOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	workloads, err := o.choose()
	if err != nil {
		return err
	}
	var end cleanup
	defer func() { end.run() }()
	if o.cluster {
		if err := o.startCluster(cmd.Context(), &end); err != nil {
			return err
		}
	}
	here, err := newSubject(t, o)
	if err != nil {
		return err
	}
	turns := bench.Turns{Subjects: []bench.Subject{here}, Repeats: o.repeat, MaxSteal: o.maxSteal, Progress: io.Discard}
	if cli.IsTerminal(os.Stderr) {
		turns.Progress = os.Stderr
	}
	if len(o.compare) > 0 {
		peer := &subject{label: cmp.Or(o.peerName, strings.Join(o.compare, ",")), tcp: o.compare, pids: o.peerPIDs, bounds: o.bounds}
		turns.Subjects = append(turns.Subjects, peer)
	}
	if o.users || o.encrypted {
		peer, err := o.startPeer(cmd.Context(), t, &end)
		if err != nil {
			return err
		}
		turns.Subjects = append(turns.Subjects, peer)
	}
	name, _, _ := strings.Cut(o.sweep, "=")
	report := bench.Report{Sweep: name}
	// The disk of the brokers, if it is known, is measured.
	if report.Machine, err = bench.Probe(append(here.dirs, os.TempDir())[0]); err != nil {
		return err
	}
	for _, w := range workloads {
		var rows []bench.Row
		if rows, err = turns.Measure(cmd.Context(), w); err != nil {
			break
		}
		report.Rows = append(report.Rows, rows...)
	}
	write := report.Text
	if t.Output == "json" {
		write = report.JSON
	}
	return errors.Join(err, write(cmd.OutOrStdout())) // the finished rows are reported after an error too
}

func (o *benchOptions) check() error {
	switch {
	case o.repeat < 1:
		return fmt.Errorf("--repeat %d: at least one", o.repeat)
	case o.maxSteal < 0 || o.maxSteal > 100:
		return fmt.Errorf("--max-steal %v: a percentage", o.maxSteal)
	case o.bounds.Limit >= o.bounds.Timeout:
		return fmt.Errorf("--limit %s must be less than --timeout %s, after which a repeat fails", o.bounds.Limit, o.bounds.Timeout)
	case o.users && !o.cluster:
		return errors.New("--users needs --cluster: it creates users in a cluster of its own")
	case o.encrypted && !o.cluster:
		return errors.New("--encrypted needs --cluster: it makes a certificate for a cluster of its own")
	}
	return nil
}

// choose returns the selected workloads, and bounds those of a sweep.
func (o *benchOptions) choose() ([]bench.Workload, error) {
	if o.sweep != "" {
		sweep, err := bench.ParseSweep(o.sweep)
		if err != nil {
			return nil, err
		}
		if o.bounds.Limit == 0 {
			subjects := 1
			if len(o.compare) > 0 || o.users || o.encrypted {
				subjects = 2
			}
			o.bounds.Limit = sweep.Limit(o.repeat * subjects)
		}
		return sweep.Points, nil
	}
	return bench.Choose(o.workloads)
}

// cleanup ends what a run has started, the last first.
type cleanup []func()

func (c *cleanup) run() {
	for _, f := range slices.Backward(*c) {
		f()
	}
}

func (c *cleanup) tempDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		*c = append(*c, func() { _ = os.RemoveAll(dir) })
	}
	return dir, err
}

// startCluster starts three brokers in a temporary directory.
func (o *benchOptions) startCluster(ctx context.Context, end *cleanup) error {
	binary, err := devcmd.FindBroker("")
	if err != nil {
		return err
	}
	if o.dataDir, err = end.tempDir("nsqctl-bench-"); err != nil {
		return err
	}
	c, err := devcluster.New(devcluster.Config{Nodes: 3, DataDir: filepath.Clean(o.dataDir), BasePort: o.basePort, NSQD: binary, Args: o.brokers, Tied: true})
	if err != nil {
		return err
	}
	*end = append(*end, func() { _ = c.StopAll(devcmd.StopTimeout) })
	ctx, cancel := context.WithTimeout(ctx, devcmd.ReadyTimeout)
	defer cancel()
	if err := c.StartAll(); err != nil {
		return err
	}
	return c.Ready(ctx)
}

const (
	// peerPorts separates the ports of the two clusters of --users and --encrypted.
	peerPorts = 500
	// otherUsers are users beside the measured one, so that the policy is not a single entry.
	otherUsers = 9
)

// startPeer starts a second cluster. Either the workloads reach it over TLS: its brokers talk to each other in plain text, so
// that the ratio is the cost of the clients' TLS. Or every command is checked against the rights of a user that is not an
// administrator.
func (o benchOptions) startPeer(ctx context.Context, t *cli.Target, end *cleanup) (*subject, error) {
	o.basePort += peerPorts
	with := *t
	if o.encrypted {
		dir, err := end.tempDir("nsqctl-bench-tls-")
		if err != nil {
			return nil, err
		}
		clients, certFile, keyFile, err := certcmd.Loopback(dir)
		if err != nil {
			return nil, fmt.Errorf("certificate of the second cluster: %w", err)
		}
		o.brokers = append([]string{"--tls-cert=" + certFile, "--tls-key=" + keyFile}, o.brokers...)
		with.Security.TLSConfig = clients // of TCP connections; the HTTP port is asked in plain text
	}
	if err := o.startCluster(ctx, end); err != nil {
		return nil, err
	}
	s, err := newSubject(&with, o)
	if err != nil {
		return nil, err
	}
	if s.label = "cluster over TLS"; !o.encrypted {
		s.label = "cluster with users"
		if err := s.closeCluster(ctx); err != nil {
			return nil, fmt.Errorf("users of the second cluster: %w", err)
		}
	}
	return s, nil
}

// closeCluster creates users, and logs the subject in as one of them.
func (s *subject) closeCluster(ctx context.Context) error {
	root, err := s.createUser(ctx, "root", true)
	if err != nil {
		return err
	}
	s.logIn(root)
	for i := range otherUsers {
		name := fmt.Sprint("other-", i)
		if _, err := s.createUser(ctx, name, false); err != nil {
			return err
		}
		if err := s.grant(ctx, name, url.Values{"topic": {name + ".*"}, "rights": {"publish,consume"}}); err != nil {
			return err
		}
	}
	token, err := s.createUser(ctx, "bench", false)
	if err != nil {
		return err
	}
	for _, rights := range []url.Values{
		{"topic": {"orders.*"}, "rights": {"publish"}}, {"topic": {"*.archive"}, "rights": {"consume"}},
		{"topic": {"bench_*"}, "rights": {"publish,consume,administer"}}, {"cluster": {"observe"}},
	} {
		if err := s.grant(ctx, "bench", rights); err != nil {
			return err
		}
	}
	s.logIn(token)
	return nil
}

func (s *subject) logIn(token string) {
	s.from.Security.Token, s.from.Security.Secret = token, ""
	s.from.HTTP = s.from.Security.HTTPClient()
}

func (s *subject) createUser(ctx context.Context, name string, admin bool) (token string, err error) {
	body, err := s.from.CreateUser(ctx, s.http[0], url.Values{"name": {name}, "admin": {fmt.Sprint(admin)}})
	if err != nil {
		return "", err
	}
	var made httpapi.NewToken
	err = json.Unmarshal(body, &made)
	return made.Token, err
}

func (s *subject) grant(ctx context.Context, name string, rights url.Values) error {
	rights.Set("user", name)
	_, err := s.from.Call(ctx, http.MethodPost, s.http[0], "/v1/acl/grant", rights)
	return err
}
