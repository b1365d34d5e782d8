// Package bench measures a broker for clients of NSQ, a Lockstep cluster or a stock nsqd, with
// the same client and without Lockstep's extensions. It starts no broker and has no notion of
// clusters. Its caller, a Subject, adds the circumstances of a figure (durability, in-sync
// replicas). Clients of other protocols run their tasks in a Repeat too, so that their figures
// are counted, timed and reported alike.
//
// Every workload is bounded in count and time. A rate is the number of answered (or finished)
// messages divided by the wall-clock time until the last of them. Latencies are recorded in
// HDR histograms. Where each connection waits for its answer, a latency is that of the whole
// call. At a fixed rate it begins when a message is due, so that a stall counts for every
// message that it delays (no coordinated omission).
//
// Neither the time nor the CPU of filling a backlog is part of a figure.
package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Kind is the activity of a workload's connections.
type Kind uint8

// The kinds of workloads.
const (
	Publish Kind = iota // keep puts outstanding
	Consume             // consume a backlog, finish each message
	Mixed               // producers that wait for each answer, and consumers
	Flow                // puts at a fixed rate, and consumers
	Idle                // partitions without traffic; the caller creates them
)

// Workload is one row of the table.
type Workload struct {
	Name        string
	X           float64 // of a point of a sweep: the value of the changed parameter
	Kind        Kind
	Connections int // producers; of Consume: consumers of each channel
	Consumers   int // of Mixed: in total; of Flow: of each topic
	Outstanding int // puts in flight on each connection
	Batch       int // messages in one multi-put; 0 = PUB
	Size        int // bytes of one message
	Messages    int // in one repeat
	Channels    int // of Consume; 0 = 1
	Topics      int // of Publish and Flow; 0 = 1
	Rate        int // of Flow: messages per second in total
	Partitions  int // of Idle; of Publish: of the topic, 0 = the broker's default
}

// Workloads are the standard rows, in order.
func Workloads() []Workload {
	return []Workload{
		{Name: "pub-1", Connections: 1, Outstanding: 1, Size: 100, Messages: 5_000},
		{Name: "pub-8", Connections: 8, Outstanding: 1, Size: 100, Messages: 40_000},
		{Name: "pub-64", Connections: 64, Outstanding: 1, Size: 100, Messages: 200_000},
		{Name: "pipeline-8x100", Connections: 8, Outstanding: 100, Size: 100, Messages: 600_000},
		{Name: "mpub-8x100", Connections: 8, Outstanding: 2, Batch: 100, Size: 100, Messages: 2_000_000},
		{Name: "pub-16k", Connections: 8, Outstanding: 4, Size: 16 << 10, Messages: 30_000},
		{Name: "consume-1", Kind: Consume, Connections: 1, Size: 100, Messages: 1_000_000},
		{Name: "consume-4", Kind: Consume, Connections: 4, Size: 100, Messages: 1_000_000},
		{Name: "mixed-4x4", Kind: Mixed, Connections: 4, Consumers: 4, Size: 100, Messages: 30_000},
		{Name: "mixed-64x4", Kind: Mixed, Connections: 64, Consumers: 4, Size: 100, Messages: 150_000},
		{Name: "e2e-5000", Kind: Flow, Connections: 4, Consumers: 1, Size: 100, Rate: 5_000, Messages: 50_000},
		{Name: "channels-8", Kind: Consume, Connections: 1, Channels: 8, Size: 1 << 10, Messages: 100_000},
		{Name: "topics-200", Kind: Flow, Connections: 20, Consumers: 1, Topics: 200, Size: 100, Rate: 2_000, Messages: 60_000},
		{Name: "idle-10000", Kind: Idle, Partitions: 10_000},
	}
}

// Names lists the names of the standard rows.
func Names() (names []string) {
	for _, w := range Workloads() {
		names = append(names, w.Name)
	}
	return names
}

// Choose returns the standard rows with these names, all without names.
func Choose(names []string) (chosen []Workload, err error) {
	all := Workloads()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("bench: no workload %q: choose among %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Config says where and how long to measure.
type Config struct {
	Addresses []string // TCP; connections are spread over them
	Topic     string   // of workloads with several topics: prefix of their names
	Bounds
	TLS      *tls.Config // nil: plain text
	Secret   string      // for AUTH; "": no AUTH
	PIDs     []int       // of the servers, for their CPU time
	Progress func(n int) // receives the percentage done from time to time; may be nil

	open func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP
}

// Bounds keep a repeat short.
type Bounds struct {
	Scale   float64       // factor of the message counts
	Limit   time.Duration // a repeat ends after it with the messages so far; 0 = none
	Timeout time.Duration // a connection that takes longer fails
}

// Messages returns the number of messages of a repeat: at least one call per connection.
func (b Bounds) Messages(w Workload) int {
	return max(int(float64(w.Messages)*b.Scale), w.Connections*max(w.Batch, 1))
}

// Run holds the figures of one repeat.
type Run struct {
	Messages int           `json:"messages"`
	Took     time.Duration `json:"took_ns"`
	Rate     float64       `json:"messages_per_second"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	P999     time.Duration `json:"p999_ns"`
	Max      time.Duration `json:"max_ns"`
	CPU      time.Duration `json:"server_cpu_ns"`
	Steal    float64       `json:"host_steal_percent"` // of all processors' time, taken by the machine's host
}

// nsq is one repeat with clients of the NSQ protocol.
type nsq struct {
	*Repeat
	w   Workload
	cfg *Config
}

// Measure runs one repeat of a workload.
func Measure(ctx context.Context, w Workload, cfg *Config) (Run, error) {
	run, err := measure(ctx, w, cfg)
	if err != nil {
		return Run{}, fmt.Errorf("bench: %s: %w", w.Name, err)
	}
	return run, nil
}

func measure(ctx context.Context, w Workload, cfg *Config) (Run, error) {
	r := &nsq{Repeat: NewRepeat(cfg.Bounds, cfg.PIDs, cfg.Progress), w: w, cfg: cfg}
	var tasks []Task
	var err error
	n := cfg.Messages(w)
	switch w.Kind {
	case Publish:
		tasks, n = r.publishers(n)
	case Consume:
		tasks, n, err = r.backlog(ctx, n)
	case Mixed:
		tasks, n = r.mixed(n)
	case Flow:
		tasks, n = r.flow(n)
	default:
		err = errors.New("this workload has no traffic")
	}
	if err != nil {
		return Run{}, err
	}
	return r.Run(ctx, n, tasks)
}

// topics returns the names of the workload's topics.
func (r *nsq) topics() []string {
	if r.w.Topics == 0 {
		return []string{r.cfg.Topic}
	}
	names := make([]string, r.w.Topics)
	for i := range names {
		names[i] = fmt.Sprintf("%s_%d", r.cfg.Topic, i)
	}
	return names
}
