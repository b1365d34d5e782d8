package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/devcluster"
)

type benchOptions struct {
	workloads []string
	repeat    int
	scale     float64
	timeout   time.Duration
	pids      []int
	dataDir   string
	cluster   bool
	basePort  int
	brokers   []string // flags of the brokers that --cluster starts
	compare   string
	peerPIDs  []int
	svg       string
}

func newBench(t *target) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [-- flags for every nsqd that --cluster starts]",
		Short: "measure a broker or a cluster: ours or a stock nsqd",
		Long: `bench runs bounded workloads over the NSQ protocol and prints medians of the
repeats. With --data-dir of a dev cluster it finds addresses, pids and disks by
itself; --cluster starts a fresh cluster of three and stops it afterwards.

Beside each row stand the durability, the in-sync replicas before and after and
the fdatasyncs per broker: a row whose ISR is not full is void. "CPU s/M" is
CPU seconds of all servers per million messages. The machine's own constants
(loopback, fdatasync, memory) are measured in the same run, in the directory of
the brokers' data.

--compare runs each workload in turn against another broker, such as a stock
nsqd, and prints the ratios.`,
		Example: `  nsqctl bench --cluster
  nsqctl bench --data-dir ./data --workloads pub-1,mpub-8x100 --repeat 5
  nsqctl bench --nsqd-tcp-address 127.0.0.1:4150 --pids 4711
  nsqctl bench --cluster --compare 127.0.0.1:4150 --compare-pids 4711
  nsqctl bench --cluster -o json --svg bench.svg -- --durability=replicated`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.brokers = args
			return runBench(cmd, t, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.workloads, "workloads", nil, "only these: "+strings.Join(workloadNames(), ", "))
	f.IntVar(&o.repeat, "repeat", 3, "repeats of each workload")
	f.Float64Var(&o.scale, "scale", 1, "multiplies the message counts")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "limit of one repeat")
	f.IntSliceVar(&o.pids, "pids", nil, "processes of the servers, for CPU and memory")
	f.StringVar(&o.dataDir, "data-dir", "", "of a dev cluster: addresses and pids are read there")
	f.BoolVar(&o.cluster, "cluster", false, "start a fresh cluster of three brokers for this run")
	f.IntVar(&o.basePort, "base-port", 14150, "first port of --cluster")
	f.StringVar(&o.compare, "compare", "", "TCP address of another broker to measure in turn")
	f.IntSliceVar(&o.peerPIDs, "compare-pids", nil, "its processes")
	f.StringVar(&o.svg, "svg", "", "draw the rates into this file")
	return cmd
}

func workloadNames() (names []string) {
	for _, w := range bench.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

func runBench(cmd *cobra.Command, t *target, o benchOptions) error {
	if o.repeat < 1 {
		return fmt.Errorf("--repeat %d: at least one", o.repeat)
	}
	for _, name := range o.workloads {
		if !slices.Contains(workloadNames(), name) {
			return fmt.Errorf("no workload %q: choose among %s", name, strings.Join(workloadNames(), ", "))
		}
	}
	if o.cluster {
		stop, err := o.startCluster(cmd.Context())
		if err != nil {
			return err
		}
		defer stop()
	}
	here, err := newSubject(t, o)
	if err != nil {
		return err
	}
	subjects := []*subject{here}
	if o.compare != "" {
		subjects = append(subjects, &subject{label: o.compare, tcp: []string{o.compare}, pids: o.peerPIDs})
	}
	report := benchReport{}
	if report.Machine, err = bench.Probe(here.probeDir()); err != nil {
		return err
	}
	for _, w := range bench.Workloads() {
		if err == nil && (len(o.workloads) == 0 || slices.Contains(o.workloads, w.Name)) {
			var rows []benchRow
			rows, err = benchAll(cmd.Context(), subjects, o, w)
			report.Rows = append(report.Rows, rows...)
		}
	}
	return errors.Join(err, report.write(cmd.OutOrStdout(), t.output, o.svg)) // what was measured is told anyway
}

// benchAll repeats one workload against all subjects in turn, so that what the
// machine does besides meets them alike.
func benchAll(ctx context.Context, subjects []*subject, o benchOptions, w bench.Workload) (rows []benchRow, err error) {
	bar := progressbar.NewOptions(100*o.repeat*len(subjects), progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(w.Name), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	defer bar.Finish()
	all := make([]benchRow, len(subjects))
	for i := range o.repeat {
		for k, s := range subjects {
			if all[k].Workload == "" {
				all[k] = benchRow{Workload: w.Name, size: w.Size, Subject: s.label, Durability: s.durability(ctx)}
			}
			progress := func(n int) { _ = bar.Set(100*(i*len(subjects)+k) + n) }
			if err := s.repeat(ctx, o, w, &all[k], progress); err != nil {
				return nil, err
			}
		}
	}
	for k := range all {
		if len(all[k].Runs) > 0 { // else the subject has nothing like it
			all[k].summarise()
			rows = append(rows, all[k])
		}
	}
	return rows, nil
}

// startCluster starts three brokers in a temporary directory.
func (o *benchOptions) startCluster(ctx context.Context) (stop func(), err error) {
	binary, err := findBroker("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nsqctl-bench-")
	if err != nil {
		return nil, err
	}
	c, err := devcluster.New(devcluster.Config{
		Nodes: 3, DataDir: filepath.Clean(dir), BasePort: o.basePort, NSQD: binary, Args: o.brokers, Tied: true,
	})
	if err != nil {
		return nil, err
	}
	stop = func() {
		_ = c.StopAll(stopTimeout)
		_ = os.RemoveAll(dir)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err = c.StartAll(); err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		stop()
		return nil, err
	}
	o.dataDir = dir
	return stop, nil
}
