package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// Report is the result of a whole measurement.
type Report struct {
	Sweep   string  `json:"sweep,omitempty"` // the changed parameter
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
}

// Row holds one workload's figures with one subject: medians over the repeats. Zero disk bytes
// and fdatasyncs mean that the subject does not report them.
type Row struct {
	Workload   string        `json:"workload"`
	X          float64       `json:"x,omitempty"` // of a sweep: the value of the changed parameter
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
	Disk       int64         `json:"disk_bytes,omitempty"`
	DiskPer    float64       `json:"disk_bytes_per_message,omitempty"`
	Steal      float64       `json:"host_steal_percent"` // of the worst repeat
	Durability string        `json:"durability"`
	ISRBefore  int           `json:"isr_before"`
	ISRAfter   int           `json:"isr_after"`
	Replicas   int           `json:"replicas"`
	Void       bool          `json:"void"` // the ISR was not full all the time
	Syncs      int64         `json:"fdatasyncs_of_all_brokers,omitempty"`
	Note       string        `json:"note,omitempty"`
	Runs       []Run         `json:"runs"`

	size int
	seen bool // an ISR was recorded
}

// SawISR records the smallest in-sync set before or after a repeat. A row in which it was
// smaller than the set of replicas is void.
func (r *Row) SawISR(least, replicas int) {
	if !r.seen {
		r.ISRBefore, r.seen = least, true
	}
	r.ISRAfter, r.Replicas = least, max(r.Replicas, replicas)
	r.Void = r.Void || least < r.Replicas
}

// summarise computes the medians.
func (r *Row) summarise() {
	messages, cpu, took := 0, time.Duration(0), time.Duration(0)
	for _, run := range r.Runs {
		messages, cpu, took = messages+run.Messages, cpu+run.CPU, took+run.Took
		r.Steal = max(r.Steal, run.Steal)
	}
	median := func(of func(Run) float64) float64 {
		var all []float64
		for _, run := range r.Runs {
			all = append(all, of(run))
		}
		slices.Sort(all)
		r.RateMin, r.RateMax = all[0], all[len(all)-1] // the last call of median was for the rate
		return all[len(all)/2]
	}
	r.P50 = time.Duration(median(func(x Run) float64 { return float64(x.P50) }))
	r.P99 = time.Duration(median(func(x Run) float64 { return float64(x.P99) }))
	r.P999 = time.Duration(median(func(x Run) float64 { return float64(x.P999) }))
	r.Rate = median(func(x Run) float64 { return x.Rate })
	r.MBps = r.Rate * float64(r.size) / 1e6
	r.CPU = cpu.Seconds() / float64(messages) * 1e6
	r.Cores = cpu.Seconds() / took.Seconds()
	r.DiskPer = float64(r.Disk) / float64(messages)
}

// JSON writes the report as JSON.
func (r *Report) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes the report as a table, with the ratios between the subjects.
func (r *Report) Text(out io.Writer) error {
	m := r.Machine
	fmt.Fprintf(out, "machine: loopback round trip %s (1 connection), %.0f/s (64); fdatasync %s alone, %s three at once; memcpy %.1f GB/s; crc32c %.1f GB/s\n",
		m.PingPong1.Round(time.Microsecond), m.PingPong64, m.Sync1.Round(time.Microsecond), m.Sync3.Round(time.Microsecond), m.Memcpy/1e9, m.CRC32C/1e9)
	fmt.Fprintf(out, "1.5 × (2 round trips + fdatasync of three) = %s\n\n", (3 * (2*m.PingPong1 + m.Sync3) / 2).Round(time.Microsecond))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "workload\tof\tmessages/s\tmin\tmax\tMB/s\tp50\tp99\tp99.9\tCPU s/M\tcores\tpeak MiB\tdisk B/msg\tfdatasyncs\tsteal %\tdurability\tISR\t")
	for i := range r.Rows {
		x := &r.Rows[i]
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%.1f\t%.2f\t%d\t%s\t%s\t%.1f\t%s\t%s\t\n", x.Workload, x.Subject, x.Rate, x.RateMin, x.RateMax,
			x.MBps, short(x.P50), short(x.P99), short(x.P999), x.CPU, x.Cores, x.Memory>>20, known(x.DiskPer), known(x.Syncs), x.Steal, cmp.Or(x.Durability, "-"), x.isr())
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

// printRatios compares neighbouring rows of the same workload with the same durability, as far
// as the durability is known.
func (r *Report) printRatios(out io.Writer) {
	for i := range len(r.Rows) - 1 {
		a, b := &r.Rows[i], &r.Rows[i+1]
		same := a.Durability == b.Durability || b.Durability == ""
		if a.Workload != b.Workload || !same || b.Rate == 0 {
			continue
		}
		fmt.Fprintf(out, "%s: %s is %.2f × as fast as %s", a.Workload, a.Subject, a.Rate/b.Rate, b.Subject)
		if b.P50 > 0 {
			fmt.Fprintf(out, ", p50 %.2f ×", a.P50.Seconds()/b.P50.Seconds())
		}
		if b.CPU > 0 {
			fmt.Fprintf(out, ", server CPU a message %.2f ×", a.CPU/b.CPU)
		}
		fmt.Fprintln(out)
	}
}

// known formats a figure that some subjects do not report.
func known[T int64 | float64](n T) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(n), 'f', 0, 64)
}

func (r *Row) isr() string {
	if r.Replicas == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d→%d", r.ISRBefore, r.ISRAfter)
	if r.Void {
		text += " void"
	}
	return text
}

// short formats a latency; consumers have none.
func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Microsecond).String()
}
