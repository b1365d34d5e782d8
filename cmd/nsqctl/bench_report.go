package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/wcharczuk/go-chart/v2"

	"github.com/lockstepmq/lockstep/internal/bench"
)

// benchReport is the result of one `nsqctl bench`.
type benchReport struct {
	Machine bench.Machine `json:"machine"`
	Rows    []benchRow    `json:"rows"`
}

// benchRow is one workload's figures: medians over the repeats.
type benchRow struct {
	Workload   string        `json:"workload"`
	Subject    string        `json:"subject"`
	Rate       float64       `json:"messages_per_second"`
	RateMin    float64       `json:"messages_per_second_min"`
	RateMax    float64       `json:"messages_per_second_max"`
	MBps       float64       `json:"megabytes_per_second"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	P999       time.Duration `json:"p999_ns"`
	CPU        float64       `json:"server_cpu_seconds_per_million"`
	Cores      float64       `json:"server_cpu_cores"`
	Memory     int64         `json:"server_peak_memory_bytes"`
	Disk       int64         `json:"disk_bytes"`
	DiskPer    float64       `json:"disk_bytes_per_message"`
	Durability string        `json:"durability"`
	ISRBefore  int           `json:"isr_before"`
	ISRAfter   int           `json:"isr_after"`
	Replicas   int           `json:"replicas"`
	Void       bool          `json:"void"` // the ISR was not full all the time
	Syncs      int64         `json:"fdatasyncs_of_all_brokers"`
	Note       string        `json:"note,omitempty"`
	Runs       []bench.Run   `json:"runs"`

	size int
	seen bool // an ISR was noted
}

// sawISR notes the in-sync set before or after a repeat.
func (r *benchRow) sawISR(least, replicas int) {
	if !r.seen {
		r.ISRBefore, r.seen = least, true
	}
	r.ISRAfter, r.Replicas = least, max(r.Replicas, replicas)
	r.Void = r.Void || least < r.Replicas
}

// summarise fills the medians.
func (r *benchRow) summarise() {
	messages, cpu, took := 0, time.Duration(0), time.Duration(0)
	for _, run := range r.Runs {
		messages, cpu, took = messages+run.Messages, cpu+run.CPU, took+run.Took
	}
	median := func(of func(bench.Run) float64) float64 {
		var all []float64
		for _, run := range r.Runs {
			all = append(all, of(run))
		}
		slices.Sort(all)
		r.RateMin, r.RateMax = all[0], all[len(all)-1] // the last call is of the rate
		return all[len(all)/2]
	}
	r.P50 = time.Duration(median(func(x bench.Run) float64 { return float64(x.P50) }))
	r.P99 = time.Duration(median(func(x bench.Run) float64 { return float64(x.P99) }))
	r.P999 = time.Duration(median(func(x bench.Run) float64 { return float64(x.P999) }))
	r.Rate = median(func(x bench.Run) float64 { return x.Rate })
	r.MBps = r.Rate * float64(r.size) / 1e6
	r.CPU = cpu.Seconds() / float64(messages) * 1e6
	r.Cores = cpu.Seconds() / took.Seconds()
	r.DiskPer = float64(r.Disk) / float64(messages)
}

// write gives the report as text or JSON, and as a drawing if that is wanted.
func (r *benchReport) write(out io.Writer, format, svg string) error {
	if svg != "" && len(r.Rows) > 0 {
		if err := r.draw(svg); err != nil {
			return err
		}
	}
	if format == "json" {
		return printJSON(out, r)
	}
	return r.print(out)
}

func (r *benchReport) print(out io.Writer) error {
	m := r.Machine
	fmt.Fprintf(out, "machine: loopback round trip %s (1 connection), %.0f/s (64); fdatasync %s alone, %s three at once; memcpy %.1f GB/s; crc32c %.1f GB/s\n",
		m.PingPong1.Round(time.Microsecond), m.PingPong64, m.Sync1.Round(time.Microsecond), m.Sync3.Round(time.Microsecond), m.Memcpy/1e9, m.CRC32C/1e9)
	fmt.Fprintf(out, "1.5 × (2 round trips + fdatasync of three) = %s\n\n", (3 * (2*m.PingPong1 + m.Sync3) / 2).Round(time.Microsecond))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "workload\tof\tmessages/s\tmin\tmax\tMB/s\tp50\tp99\tp99.9\tCPU s/M\tcores\tpeak MiB\tdisk B/msg\tfdatasyncs\tdurability\tISR\t")
	for i := range r.Rows {
		x := &r.Rows[i]
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%.1f\t%.2f\t%d\t%.0f\t%d\t%s\t%s\t\n", x.Workload, x.Subject, x.Rate, x.RateMin, x.RateMax,
			x.MBps, short(x.P50), short(x.P99), short(x.P999), x.CPU, x.Cores, x.Memory>>20, x.DiskPer, x.Syncs, x.Durability, x.isr())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Note != "" {
			fmt.Fprintf(out, "%s: %s\n", x.Workload, x.Note)
		}
	}
	r.printRatios(out)
	return nil
}

// printRatios compares the rows of one workload.
func (r *benchReport) printRatios(out io.Writer) {
	for i := range len(r.Rows) - 1 {
		a, b := &r.Rows[i], &r.Rows[i+1]
		if a.Workload == b.Workload && b.Rate > 0 {
			fmt.Fprintf(out, "%s: %s is %.2f × as fast as %s\n", a.Workload, a.Subject, a.Rate/b.Rate, b.Subject)
		}
	}
}

func (r *benchRow) isr() string {
	text := fmt.Sprintf("%d→%d", r.ISRBefore, r.ISRAfter)
	if r.Void {
		text += " void"
	}
	return text
}

func short(d time.Duration) string { return d.Round(time.Microsecond).String() }

// draw makes a bar chart of the rates, one bar a row, scaled to the greatest.
func (r *benchReport) draw(name string) error {
	c := chart.BarChart{Title: "messages per second", Width: 140 * max(len(r.Rows), 4), Height: 480, BarWidth: 60,
		Background: chart.Style{Padding: chart.Box{Top: 50, Bottom: 20}}}
	for i := range r.Rows {
		x := &r.Rows[i]
		c.Bars = append(c.Bars, chart.Value{Label: fmt.Sprintf("%s %s", x.Workload, x.Subject), Value: x.Rate})
	}
	if len(c.Bars) == 1 { // the library cannot scale a single one
		c.Bars = append(c.Bars, chart.Value{})
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.Render(chart.SVG, f); err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	return f.Close()
}
