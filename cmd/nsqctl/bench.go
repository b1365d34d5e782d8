package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// benchRow is one workload's figures: medians over the repeats.
type benchRow struct {
	Workload   string        `json:"workload"`
	Rate       float64       `json:"messages_per_second"`
	RateMin    float64       `json:"messages_per_second_min"`
	RateMax    float64       `json:"messages_per_second_max"`
	MBps       float64       `json:"megabytes_per_second"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	CPU        float64       `json:"server_cpu_seconds_per_million"`
	Durability string        `json:"durability"`
	ISRBefore  int           `json:"isr_before"`
	ISRAfter   int           `json:"isr_after"`
	Runs       []bench.Run   `json:"runs"`
}

type benchOptions struct {
	workloads []string
	repeat    int
	scale     float64
	timeout   time.Duration
	pids      []int
	dataDir   string
}

func newBench(t *target) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure a broker or a cluster: ours or a stock nsqd",
		Long: `bench runs bounded workloads over the NSQ protocol and prints medians of the
repeats. With --data-dir of a dev cluster it finds addresses and pids by itself.
Against a Lockstep cluster each row also tells the durability and the in-sync
replicas before and after: a row whose ISR shrank is marked void.`,
		Example: `  nsqctl bench --data-dir ./data
  nsqctl bench --nsqd-tcp-address 127.0.0.1:4150 --workloads pub-1,mpub-8x100 --repeat 5`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, t, o) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.workloads, "workloads", nil, "only these: "+strings.Join(workloadNames(), ", "))
	f.IntVar(&o.repeat, "repeat", 3, "repeats of each workload")
	f.Float64Var(&o.scale, "scale", 1, "multiplies the message counts")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "limit of one repeat")
	f.IntSliceVar(&o.pids, "pids", nil, "processes of the servers, for CPU and memory")
	f.StringVar(&o.dataDir, "data-dir", "", "of a dev cluster: addresses and pids are read there")
	return cmd
}

func workloadNames() (names []string) {
	for _, w := range bench.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

func runBench(cmd *cobra.Command, t *target, o benchOptions) error {
	if o.dataDir != "" {
		c, err := devcluster.Load(o.dataDir)
		if err != nil {
			return err
		}
		t.tcp, o.pids, t.http = nil, nil, c.Brokers[0].HTTP
		for _, b := range c.Brokers {
			t.tcp, o.pids = append(t.tcp, b.TCP), append(o.pids, b.PID)
		}
	}
	var rows []benchRow
	for _, w := range bench.Workloads() {
		if len(o.workloads) > 0 && !slices.Contains(o.workloads, w.Name) {
			continue
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s …\n", w.Name)
		row, err := benchOne(cmd.Context(), t, o, w)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if t.output == "json" {
		return printJSON(cmd.OutOrStdout(), rows)
	}
	return printBench(cmd.OutOrStdout(), rows, len(o.pids) > 0)
}

func benchOne(ctx context.Context, t *target, o benchOptions, w bench.Workload) (benchRow, error) {
	row := benchRow{Workload: w.Name, Durability: durability(ctx, t.http)}
	var cpu time.Duration
	messages := 0
	for range o.repeat {
		topic := fmt.Sprintf("bench_%s_%06d", w.Name, rand.IntN(1e6))
		_, _ = call(ctx, http.MethodPost, t.http, "/topic/create", url.Values{"topic": {topic}})
		row.ISRBefore = isr(ctx, t.http, topic)
		before := bench.CPU(o.pids)
		run, err := bench.Measure(ctx, w, bench.Config{Addresses: t.tcp, Topic: topic, Timeout: o.timeout, Scale: o.scale})
		if err != nil {
			return row, err
		}
		cpu += bench.CPU(o.pids) - before
		messages += run.Messages
		row.ISRAfter = isr(ctx, t.http, topic)
		row.Runs = append(row.Runs, run)
		_, _ = call(ctx, http.MethodPost, t.http, "/topic/delete", url.Values{"topic": {topic}})
	}
	byRate := slices.SortedFunc(slices.Values(row.Runs), func(a, b bench.Run) int { return int(a.Rate - b.Rate) })
	median := byRate[len(byRate)/2]
	row.Rate, row.RateMin, row.RateMax = median.Rate, byRate[0].Rate, byRate[len(byRate)-1].Rate
	row.MBps = median.Rate * float64(w.Size) / 1e6
	row.P50, row.P99 = median.P50, median.P99
	row.CPU = cpu.Seconds() / float64(messages) * 1e6
	return row, nil
}

func durability(ctx context.Context, address string) string {
	var v struct {
		Durability string `json:"durability"`
	}
	if get(ctx, address, "/info", nil, &v) != nil || v.Durability == "" {
		return "-"
	}
	return v.Durability
}

// isr is the smallest in-sync set of a topic's partitions; 0 if the broker does
// not say.
func isr(ctx context.Context, address, topic string) int {
	var v edge.ClusterView
	if get(ctx, address, "/v1/cluster", nil, &v) != nil {
		return 0
	}
	least := 0
	for _, x := range v.Topics {
		if x.Topic != topic {
			continue
		}
		for _, p := range x.Partitions {
			if least == 0 || len(p.ISR) < least {
				least = len(p.ISR)
			}
		}
	}
	return least
}

func printBench(out io.Writer, rows []benchRow, cpu bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "workload\tmessages/s\tmin\tmax\tMB/s\tp50\tp99\tCPU s/M\tdurability\tISR\t")
	for _, r := range rows {
		used := "-"
		if cpu {
			used = fmt.Sprintf("%.1f", r.CPU)
		}
		note := fmt.Sprintf("%d→%d", r.ISRBefore, r.ISRAfter)
		if r.ISRAfter < r.ISRBefore {
			note += " void"
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%s\t%s\t\n", r.Workload, r.Rate, r.RateMin, r.RateMax, r.MBps,
			r.P50.Round(time.Microsecond), r.P99.Round(time.Microsecond), used, r.Durability, note)
	}
	return w.Flush()
}
