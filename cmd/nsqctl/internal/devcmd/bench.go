package devcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/certcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
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
	users     bool // alternating with a cluster that has users
	encrypted bool // alternating with a cluster that is reached over TLS
	basePort  int
	brokers   []string // flags of the brokers that --cluster starts
	compare   []string // addresses of one other broker or cluster
	peerName  string
	peerPIDs  []int
}

func newBench(t *cli.Target) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench [-- flags for every nsqd that --cluster starts]",
		Short: "measure a Lockstep cluster, one broker, or a stock nsqd",
		Long: `bench runs bounded workloads over the NSQ protocol and prints the medians of the repeats. With --data-dir
it reads addresses, pids and disks of a dev cluster; --cluster starts a new cluster of three and stops it afterwards.

Each row has the durability, the in-sync replicas before and after, and the fdatasyncs per broker: a row whose ISR is
not full is void. "CPU s/M" is the CPU time of all servers in seconds per million messages. "steal %" is the part of the
processors' time that the host of a virtual machine took in the worst repeat: --max-steal 2 repeats such turns. The
machine's own constants (loopback, fdatasync, memory) are measured in the same run, in the directory of the brokers'
data.

--compare runs each workload in turn against another broker, such as a stock nsqd, and prints the ratios.

--cluster --users runs each workload in turn against a second new cluster, whose brokers check the rights of a user with
four grants: the ratio is the cost of the checks. --cluster --encrypted does so with a second cluster whose clients use
TLS.

--sweep measures one workload in several sizes, in about two minutes:` + strings.Join(bench.SweepNames(), ", ") + `; NAME=1,2,4 measures the given values. With
-o json the report has every repeat; make sweeps draws the curves.`,
		Example: `  nsqctl bench --cluster
  nsqctl bench --data-dir ./data --workloads pub-1,mpub-8x100 --repeat 5
  nsqctl bench --nsqd-tcp-address 127.0.0.1:4150 --pids 4711
  nsqctl bench --cluster --compare 127.0.0.1:4150 --compare-pids 4711
  nsqctl bench --cluster --users --workloads pub-64 --repeat 9 --max-steal 2
  nsqctl bench --cluster --encrypted --workloads pub-64,consume-4 --repeat 9
  nsqctl bench --cluster --sweep connections
  nsqctl bench --cluster -o json -- --durability=replicated`,
		Args: flagsBehindDashes,
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
	f.BoolVar(&o.users, "users", false, "with --cluster: alternate with a second cluster that has users and checks their rights")
	f.BoolVar(&o.encrypted, "encrypted", false, "with --cluster: alternate with a second cluster over TLS")
	f.IntVar(&o.basePort, "base-port", 14150, "first port of --cluster")
	f.StringSliceVar(&o.compare, "compare", nil, "TCP addresses of another broker or cluster to alternate with")
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

// choose returns the selected workloads, and limits the workloads of a sweep.
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

// cleanup undoes what a run has started, in reverse order.
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
	binary, err := findBroker("")
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
	*end = append(*end, func() { _ = c.StopAll(stopTimeout) })
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := c.StartAll(); err != nil {
		return err
	}
	return c.Ready(ctx)
}

const (
	peerPorts  = 500 // separates the ports of the two clusters of --users and --encrypted
	otherUsers = 9   // users besides the measured one, so that the policy is not a single entry
)

// startPeer starts a second cluster. With --encrypted the workloads reach it over TLS, while its brokers talk to each
// other in plain text, so the ratio is the cost of TLS for clients. With --users every command is checked against the
// rights of a user who is not an administrator.
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
		with.Security.TLSConfig = clients // for TCP connections only; HTTP requests stay in plain text
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

// closeCluster creates users, and lets the measured system's clients log in as one of them.
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

// subject is the measured system: a cluster, or another single broker; without HTTP addresses only the NSQ protocol is
// used.
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

// create creates topics. A broker that does not know partitions (stock nsqd) creates topics at the first put.
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

const idlePartitions = 100 // the number of partitions of one topic of the idle workload

// idle measures the CPU time and memory of partitions without traffic. A stock nsqd has no row.
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

// idleCPU returns the servers' CPU time in percent of one core, after a pause in which they settle.
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
		for line := range strings.Lines(string(body)) {
			if rest, ok := strings.CutPrefix(line, "lockstep_journal_syncs_total "); ok {
				n, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				total += int64(n)
			}
		}
	}
	return total
}
