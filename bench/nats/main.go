// Command nats measures NATS JetStream with three replicas as `nsqctl bench` measures a
// Lockstep cluster: with the same sizes, counts, connections, bounds and columns. It starts
// the servers itself, each in its own process, once with the durability of the page cache
// (NATS' default) and once with a sync of every write, and measures both in turn. With an nsqd
// it also measures new Lockstep clusters of the same two durabilities in the same turns.
//
// A topic is a file stream with one subject and three replicas, a channel a durable pull
// consumer with explicit acknowledgements. A put waits for the stream's acknowledgement. A
// multi-put has no counterpart: its messages are published one by one, with as many
// outstanding. Rows at a fixed rate are omitted. The client is NATS' own Go client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/test/bench"
)

func main() {
	child.Serve(serverCommand, serve)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-nats-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report := bench.Report{}
	if report.Machine, err = bench.Probe(dir); err != nil {
		return err
	}
	turns := bench.Turns{Repeats: o.repeats, MaxSteal: o.maxSteal, Progress: os.Stderr}
	for i, s := range o.syncs {
		if o.nsqd != "" {
			durability := map[string]string{"default": "replicated", "always": "sync"}[s]
			ours, err := startOurs(ctx, o.nsqd, durability, fmt.Sprintf("%s/ours-%d", dir, i), o.basePort+200+400*i)
			if err != nil {
				return err
			}
			defer func() { _ = ours.Stop() }()
			ours.bounds = o.bounds
			turns.Subjects = append(turns.Subjects, ours)
		}
		c, err := start(ctx, clusterConfig{dir: fmt.Sprintf("%s/%d", dir, i), basePort: o.basePort + 100*i, syncAlways: s == "always"})
		if err != nil {
			return err
		}
		defer c.stop()
		turns.Subjects = append(turns.Subjects, &subject{cluster: c, bounds: o.bounds})
	}
	for _, w := range o.workloads {
		rows, measured := turns.Measure(ctx, w)
		if err = measured; err != nil {
			break
		}
		report.Rows = append(report.Rows, rows...)
	}
	if o.json {
		return errors.Join(err, report.JSON(os.Stdout)) // the finished rows are reported after an error too
	}
	return errors.Join(err, report.Text(os.Stdout))
}

type options struct {
	workloads []bench.Workload
	syncs     []string // default, always
	nsqd      string   // "" = without a Lockstep cluster
	repeats   int
	maxSteal  float64
	basePort  int
	bounds    bench.Bounds
	json      bool
}

// measurable reports whether a row has a counterpart here.
func measurable(w bench.Workload) bool {
	return w.Kind == bench.Publish || w.Kind == bench.Consume || w.Kind == bench.Mixed
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("nats", flag.ContinueOnError)
	names := f.String("workloads", "", "rows to measure, separated by commas; default: all but those at a fixed rate")
	syncs := f.String("sync", "default,always", "sync mode of the servers: default, always, or both in turn")
	f.StringVar(&o.nsqd, "nsqd", "", "binary of a Lockstep broker to measure in the same turns")
	output := f.String("o", "text", "text or json")
	f.IntVar(&o.repeats, "repeat", 3, "repeats of each workload")
	f.IntVar(&o.basePort, "base-port", 16150, "first port of the servers")
	f.Float64Var(&o.maxSteal, "max-steal", 0, "repeat a turn, up to five times, if the machine's host took more than this percentage of the processors' time; 0: never")
	f.Float64Var(&o.bounds.Scale, "scale", 1, "factor of the message counts")
	f.DurationVar(&o.bounds.Limit, "limit", 10*time.Second, "end a repeat after this time and report the messages so far")
	f.DurationVar(&o.bounds.Timeout, "timeout", time.Minute, "a repeat that takes longer fails")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.json, o.syncs = *output == "json", strings.Split(*syncs, ",")
	for _, s := range o.syncs {
		if s != "default" && s != "always" {
			return o, fmt.Errorf("-sync %q: default or always", s)
		}
	}
	if o.repeats < 1 || o.bounds.Limit <= 0 || f.NArg() > 0 {
		return o, errors.New("-repeat and -limit must be positive, and there are no arguments")
	}
	var chosen []string
	if *names != "" {
		chosen = strings.Split(*names, ",")
	}
	all, err := bench.Choose(chosen)
	o.workloads = slices.DeleteFunc(all, func(w bench.Workload) bool { return !measurable(w) })
	return o, err
}
