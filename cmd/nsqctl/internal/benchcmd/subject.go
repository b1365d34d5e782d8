package benchcmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/bench"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// subject is the measured system: the brokers of a cluster, or one other broker. Without HTTP
// addresses only the NSQ protocol is used.
type subject struct {
	from   *cli.Target // Security settings; nil: plain text
	label  string
	tcp    []string
	http   []string
	dirs   []string
	pids   []int
	bounds bench.Bounds
}

func newSubject(t *cli.Target, o benchOptions) (*subject, error) {
	s := &subject{from: t, label: strings.Join(t.TCP, ","), tcp: t.TCP, http: t.Addresses, pids: o.pids, bounds: o.bounds}
	if o.dataDir == "" {
		return s, nil
	}
	c, err := devcluster.Load(o.dataDir)
	if err != nil {
		return nil, err
	}
	s = &subject{from: t, label: "cluster", bounds: o.bounds}
	for _, b := range c.Brokers {
		s.tcp = append(s.tcp, b.TCP)
		s.http = append(s.http, t.Address(api.BrokerView{HTTPAddress: b.HTTP, HTTPSAddress: b.HTTPS}))
		s.dirs, s.pids = append(s.dirs, b.DataDir), append(s.pids, b.PID)
	}
	return s, nil
}

func (s *subject) Label() string { return s.label }

// Repeat runs a workload once with new topics.
func (s *subject) Repeat(ctx context.Context, w bench.Workload, row *bench.Row, progress func(int)) error {
	if w.Kind == bench.Idle {
		return s.idle(ctx, w, row, progress)
	}
	topic := fmt.Sprintf("bench_%s_%06d", strings.ReplaceAll(w.Name, "=", "_"), rand.IntN(1e6))
	topics := []string{topic}
	for i := range w.Topics {
		topics = append(topics, fmt.Sprintf("%s_%d", topic, i))
	}
	if err := s.create(ctx, topics, w.Partitions); err != nil {
		return err
	}
	disk, syncs := bench.DiskUsage(s.dirs), s.syncs(ctx)
	row.SawISR(s.isr(ctx, topic))
	bench.ResetPeakMemory(s.pids)
	cfg := &bench.Config{Addresses: s.tcp, Topic: topic, Bounds: s.bounds, PIDs: s.pids, Progress: progress}
	if s.from != nil {
		cfg.TLS, cfg.Secret = s.from.Security.TLSConfig, s.from.Security.AuthSecret()
	}
	run, err := bench.Measure(ctx, w, cfg)
	if err != nil {
		return err
	}
	row.Runs = append(row.Runs, run)
	row.SawISR(s.isr(ctx, topic))
	row.Syncs += s.syncs(ctx) - syncs
	row.Disk += bench.DiskUsage(s.dirs) - disk
	row.Memory = max(row.Memory, bench.PeakMemory(s.pids))
	s.remove(ctx, topics)
	return nil
}

func (s *subject) remove(ctx context.Context, topics []string) {
	for _, name := range topics {
		s.post(ctx, "/topic/delete", url.Values{"topic": {name}, "now": {"true"}})
	}
}

// create creates topics. A broker without partitions creates them at the first put.
func (s *subject) create(ctx context.Context, topics []string, partitions int) error {
	for _, name := range topics {
		query := url.Values{"topic": {name}}
		if partitions == 0 {
			s.post(ctx, "/topic/create", query)
			continue
		}
		if err := s.isLockstep(ctx); err != nil {
			return fmt.Errorf("%s has no partitions: %w", s.label, err)
		}
		query.Set("partitions", strconv.Itoa(partitions))
		if _, err := s.from.Call(ctx, http.MethodPost, s.http[0], "/topic/create", query); err != nil {
			return err
		}
	}
	return nil
}

// idlePartitions is the number of partitions of one topic of the idle workload.
const idlePartitions = 100

// idle creates partitions and measures their CPU time and memory without traffic. A broker
// without partitions has no row.
func (s *subject) idle(ctx context.Context, w bench.Workload, row *bench.Row, progress func(int)) error {
	if s.isLockstep(ctx) != nil || len(row.Runs) > 0 {
		return nil
	}
	const watched = 5 * time.Second
	before, err := s.idleCPU(ctx, watched)
	if err != nil {
		return err
	}
	n, start := int(float64(w.Partitions)*s.bounds.Scale), time.Now()
	n = max(n, idlePartitions) / idlePartitions * idlePartitions
	var topics []string
	for i := range n / idlePartitions {
		name := fmt.Sprintf("bench_idle_%06d_%d", rand.IntN(1e6), i)
		topics = append(topics, name)
		if err := s.create(ctx, []string{name}, idlePartitions); err != nil {
			return err
		}
		progress(100 * (i + 1) * idlePartitions / n)
	}
	took := time.Since(start)
	row.SawISR(s.isr(ctx, topics[0]))
	after, err := s.idleCPU(ctx, watched)
	if err != nil {
		return err
	}
	row.SawISR(s.isr(ctx, topics[0]))
	row.Runs = append(row.Runs, bench.Run{Messages: n, Took: took, Rate: float64(n) / took.Seconds()})
	row.Note = fmt.Sprintf("partitions created; idle CPU %.1f → %.1f %% of a core", before, after)
	row.Memory = bench.Memory(s.pids)
	s.remove(ctx, topics)
	return nil
}

// idleCPU returns the servers' CPU time in percent of one core, after a pause in which they
// settle.
func (s *subject) idleCPU(ctx context.Context, watched time.Duration) (float64, error) {
	used := time.Duration(0)
	for range 2 {
		used = bench.CPU(s.pids)
		if !concurrency.Sleep(ctx, watched) {
			return 0, ctx.Err()
		}
		used = bench.CPU(s.pids) - used
	}
	return 100 * used.Seconds() / watched.Seconds(), nil
}

// get reads an answer of the first broker.
func (s *subject) get(ctx context.Context, path string, v any) error {
	if len(s.http) == 0 {
		return errors.New("a stock nsqd has no such address")
	}
	return s.from.Get(ctx, s.http[0], path, nil, v)
}

func (s *subject) isLockstep(ctx context.Context) error {
	return s.get(ctx, "/v1/cluster", new(api.ClusterView))
}

// post sends a request whose failure does not matter: the broker may not support it.
func (s *subject) post(ctx context.Context, path string, query url.Values) {
	if len(s.http) > 0 {
		_, _ = s.from.Call(ctx, http.MethodPost, s.http[0], path, query)
	}
}

// Durability returns the durability of new topics.
func (s *subject) Durability(ctx context.Context) string {
	var v struct {
		Durability string `json:"durability"`
	}
	_ = s.get(ctx, "/info", &v) // "" without an answer
	return v.Durability
}

// isr returns the size of the smallest in-sync set of a topic's partitions and the number of
// their replicas; zeroes if the broker does not report them.
func (s *subject) isr(ctx context.Context, topic string) (least, replicas int) {
	var v api.ClusterView
	_ = s.get(ctx, "/v1/cluster", &v) // without an answer it has no topic
	return v.InSync(topic)
}

// syncs returns the sum of the journals' fdatasyncs over the brokers.
func (s *subject) syncs(ctx context.Context) (total int64) {
	for _, address := range s.http {
		body, err := s.from.Call(ctx, http.MethodGet, address, "/metrics", nil)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(body))
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "lockstep_journal_syncs_total "); ok {
				n, _ := strconv.ParseFloat(rest, 64)
				total += int64(n)
			}
		}
	}
	return total
}
