// Package devcluster starts and stops broker processes on loopback: for `nsqctl dev`, and for
// the tests with real processes. It restarts no broker, forwards no traffic and uses no client
// protocol.
//
// Broker i (from 0) listens at base port P: TCP P+100·i, HTTP +1, HTTPS (with --tls-cert) +2,
// RPC +3, etcd client +4, etcd peer +5. DIR/cluster.json lists the brokers; DIR/<name> is a
// broker's data path and DIR/<name>.log its log.
package devcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
)

// Broker is one process of the cluster, as in cluster.json.
type Broker struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	TCP     string `json:"tcp"`
	HTTP    string `json:"http"`
	HTTPS   string `json:"https"`
	RPC     string `json:"rpc"`
	Etcd    string `json:"etcd"`
	DataDir string `json:"data_dir"`
}

// Config describes the cluster to start.
type Config struct {
	Nodes         int
	DataDir       string
	BasePort      int
	NSQD          string   // the broker's binary
	EtcdEndpoints string   // external etcd; "" = embedded
	Args          []string // additional flags for every broker
	Tied          bool     // the kernel kills the brokers when this process dies (Linux)
}

// Cluster is the brokers of one data directory.
type Cluster struct {
	Brokers []Broker `json:"brokers"`
	cfg     Config
	running map[string]*exec.Cmd
	seen    map[string]int // pids at the last Look; 0 = it did not run
}

// saved is the command line of a broker, for `dev start`.
type saved struct {
	NSQD string   `json:"nsqd"`
	Args []string `json:"args"`
}

// New writes the files of a cluster. It starts no broker.
func New(cfg Config) (*Cluster, error) {
	if cfg.Nodes < 1 || cfg.Nodes > 9 {
		return nil, fmt.Errorf("devcluster: %d brokers: choose 1 to 9", cfg.Nodes)
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("devcluster: %w", err)
	}
	if err := refuseRunning(cfg.DataDir); err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, running: map[string]*exec.Cmd{}}
	addr := func(i, plus int) string { return fmt.Sprintf("127.0.0.1:%d", cfg.BasePort+100*i+plus) }
	scheme := "http"
	if slices.ContainsFunc(cfg.Args, func(a string) bool { return strings.HasPrefix(a, "--rpc-tls-cert=") }) {
		scheme = "https" // the embedded etcds use these files too
	}
	var members []string
	for i := range cfg.Nodes {
		name := fmt.Sprintf("n%d", i+1)
		c.Brokers = append(c.Brokers, Broker{
			Name: name, TCP: addr(i, 0), HTTP: addr(i, 1), HTTPS: addr(i, 2), RPC: addr(i, 3), Etcd: addr(i, 4),
			DataDir: filepath.Join(cfg.DataDir, name),
		})
		members = append(members, fmt.Sprintf("%s=%s://%s", name, scheme, addr(i, 5)))
	}
	for i, b := range c.Brokers {
		args := []string{
			"--node-name=" + b.Name, "--data-path=" + b.DataDir, "--tcp-address=" + b.TCP, "--http-address=" + b.HTTP,
			"--https-address=" + b.HTTPS, "--rpc-address=" + b.RPC, "--broadcast-address=127.0.0.1",
		}
		if cfg.EtcdEndpoints != "" {
			args = append(args, "--etcd-endpoints="+cfg.EtcdEndpoints, fmt.Sprintf("--replication-factor=%d", min(cfg.Nodes, 3)))
		} else {
			args = append(args, "--etcd-client-address="+b.Etcd, "--etcd-peer-address="+addr(i, 5),
				"--etcd-initial-cluster="+strings.Join(members, ","))
		}
		if err := os.MkdirAll(b.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("devcluster: %w", err)
		}
		if err := writeJSON(c.commandFile(b.Name), saved{NSQD: cfg.NSQD, Args: append(args, cfg.Args...)}); err != nil {
			return nil, err
		}
	}
	return c, c.save()
}

// refuseRunning protects the cluster.json of running brokers: without their pids no command
// could stop them. A running broker holds the lock of its data path. Its pid alone proves
// nothing, because the system reuses pids.
func refuseRunning(dataDir string) error {
	c, err := Load(dataDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range c.Brokers {
		lock, err := nodefile.Lock(b.DataDir)
		if errors.Is(err, nodefile.ErrInUse) {
			return fmt.Errorf("devcluster: %s runs already on %s: stop it first", b.Name, b.DataDir)
		}
		if err == nil { // without the directory there is no lock
			_ = lock.Close()
		}
	}
	return nil
}

// Load reads the cluster.json of a data directory.
func Load(dataDir string) (*Cluster, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, "cluster.json"))
	if err != nil {
		return nil, fmt.Errorf("devcluster: no cluster in %s: %w", dataDir, err)
	}
	c := &Cluster{cfg: Config{DataDir: dataDir}, running: map[string]*exec.Cmd{}}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("devcluster: %s is damaged: %w", filepath.Join(dataDir, "cluster.json"), err)
	}
	return c, nil
}

// refresh reads the pids of brokers that other processes have started.
func (c *Cluster) refresh() error {
	fresh, err := Load(c.cfg.DataDir)
	if err != nil {
		return err
	}
	for i := range fresh.Brokers {
		c.Brokers[i].PID = fresh.Brokers[i].PID
	}
	return nil
}

// Broker returns the broker with a name.
func (c *Cluster) Broker(name string) (*Broker, error) {
	for i := range c.Brokers {
		if c.Brokers[i].Name == name {
			return &c.Brokers[i], nil
		}
	}
	return nil, fmt.Errorf("devcluster: no broker %q in %s", name, c.cfg.DataDir)
}

// StartAll starts every broker.
func (c *Cluster) StartAll() error {
	for _, b := range c.Brokers {
		if err := c.Start(b.Name); err != nil {
			return err
		}
	}
	return nil
}

// Start starts one broker with its first command line. The broker outlives this process unless
// Stop is called or the cluster is tied to it. Several processes may start brokers of one
// cluster at the same time.
func (c *Cluster) Start(name string) error {
	lock := flock.New(filepath.Join(c.cfg.DataDir, "cluster.lock"))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // the end of the process releases it too
	if err := c.refresh(); err != nil {
		return err
	}
	b, err := c.Broker(name)
	if err != nil {
		return err
	}
	if b.PID != 0 && alive(b.PID) {
		return fmt.Errorf("devcluster: %s runs already (pid %d)", name, b.PID)
	}
	if err := unused(b.HTTP); err != nil {
		return fmt.Errorf("devcluster: %s cannot start: %w", name, err)
	}
	how, err := c.command(name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.cfg.DataDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(how.NSQD, how.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processGroup(c.cfg.Tied)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	b.PID = cmd.Process.Pid
	c.running[name] = cmd
	return c.save()
}

// command reads the first command line of a broker.
func (c *Cluster) command(name string) (how saved, err error) {
	raw, err := os.ReadFile(c.commandFile(name))
	if err == nil {
		err = json.Unmarshal(raw, &how)
	}
	if err != nil {
		return how, fmt.Errorf("devcluster: read the command line of %s: %w", name, err)
	}
	return how, nil
}

// Args returns the flags of a broker.
func (c *Cluster) Args(name string) ([]string, error) {
	how, err := c.command(name)
	return how.Args, err
}

// unused refuses an address at which another process listens: its answer to /readyz would be
// taken for the broker's.
func unused(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// Signal sends a signal to one broker.
func (c *Cluster) Signal(name string, sig syscall.Signal) error {
	b, err := c.Broker(name)
	if err != nil {
		return err
	}
	if b.PID == 0 { // kill(0) signals this process's own group
		return fmt.Errorf("devcluster: %s was never started", name)
	}
	err = syscall.Kill(b.PID, sig)
	if errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("devcluster: %s is not running", name)
	}
	return err
}

// Kill ends one broker with SIGKILL and waits until it is gone.
func (c *Cluster) Kill(name string) error {
	if err := c.Signal(name, syscall.SIGKILL); err != nil {
		return err
	}
	return c.wait(name, 10*time.Second)
}

// Stop ends one broker with SIGTERM and waits. After the timeout it kills the broker and
// returns an error.
func (c *Cluster) Stop(name string, timeout time.Duration) error {
	if err := c.Signal(name, syscall.SIGTERM); err != nil {
		return err
	}
	if err := c.wait(name, timeout); err != nil {
		return errors.Join(err, c.Kill(name))
	}
	return nil
}

// StopAll ends every running broker, or the named ones, in parallel.
func (c *Cluster) StopAll(timeout time.Duration, only ...string) error {
	var errs []error
	if err := c.refresh(); err != nil { // `dev start` may have restarted a broker
		errs = append(errs, err)
	}
	for _, b := range c.Brokers {
		if among(only, b.Name) && b.PID != 0 && alive(b.PID) {
			errs = append(errs, c.Signal(b.Name, syscall.SIGTERM))
		}
	}
	for _, b := range c.Brokers {
		if !among(only, b.Name) || b.PID == 0 || !alive(b.PID) {
			continue
		}
		if err := c.wait(b.Name, timeout); err != nil {
			errs = append(errs, err, c.Kill(b.Name))
		}
	}
	return errors.Join(errs...)
}

// wait reaps the process, or polls it if another process started it.
func (c *Cluster) wait(name string, timeout time.Duration) error {
	b, err := c.Broker(name)
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	if cmd := c.running[name]; cmd != nil && cmd.Process.Pid == b.PID {
		delete(c.running, name)
		go func() { _ = cmd.Wait(); close(gone) }() // ends with the process
	} else {
		pid := b.PID
		go func() { // ends with the process or shortly after the timeout
			for end := time.Now().Add(timeout + time.Second); alive(pid) && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			close(gone)
		}()
	}
	select {
	case <-gone:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("devcluster: %s did not stop within %s", name, timeout)
	}
}

// Ended is a broker whose process has ended.
type Ended struct {
	Name  string
	PID   int
	State string // such as "signal: killed" or "exit status 1"; "": another process started the broker
}

// Look reads the pids again, reaps the brokers of this process that have ended, and returns the
// brokers whose process has ended, or is another one, since the last call. The first call
// returns those that do not run.
func (c *Cluster) Look() (ended []Ended, started []Broker, err error) {
	states := map[int]string{}
	c.reap(states)
	if err := c.refresh(); err != nil {
		return nil, nil, err
	}
	if c.seen == nil {
		c.seen = map[string]int{}
		for _, b := range c.Brokers {
			c.seen[b.Name] = b.PID
		}
	}
	for _, b := range c.Brokers {
		was, now := c.seen[b.Name], b.PID
		if !alive(now) {
			now = 0
			c.reap(states) // it may have ended since the first time
		}
		if was != 0 && was != now {
			ended = append(ended, Ended{Name: b.Name, PID: was, State: states[was]})
		}
		if now != 0 && was != now {
			started = append(started, b)
		}
		c.seen[b.Name] = now
	}
	return ended, started, nil
}

// reap records, by pid, how the brokers that this process started have ended.
func (c *Cluster) reap(states map[int]string) {
	for name, cmd := range c.running {
		if pid := cmd.Process.Pid; !alive(pid) {
			_ = cmd.Wait() // its state says how it ended
			delete(c.running, name)
			states[pid] = cmd.ProcessState.String()
		}
	}
}

// Dir returns the cluster's directory.
func (c *Cluster) Dir() string { return c.cfg.DataDir }

// Dead returns the brokers that do not run: of the named ones, or of all.
func (c *Cluster) Dead(only ...string) (names []string) {
	for _, b := range c.Brokers {
		if among(only, b.Name) && (b.PID == 0 || !alive(b.PID)) {
			names = append(names, b.Name)
		}
	}
	return names
}

// among reports whether names contains name or is empty.
func among(names []string, name string) bool {
	return len(names) == 0 || slices.Contains(names, name)
}

func (c *Cluster) commandFile(name string) string {
	return filepath.Join(c.cfg.DataDir, name+".command.json")
}

func (c *Cluster) save() error { return writeJSON(filepath.Join(c.cfg.DataDir, "cluster.json"), c) }

// writeJSON replaces a file atomically: readers never see a part of it.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	if err := os.WriteFile(path+".tmp", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	return nil
}

// alive reports that the process exists and is no zombie. A broker that restarts itself (exec)
// from another thread has a zombie as its first thread for a moment.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // not Linux: only the signal counts
	}
	const threads = 17 // field behind the state; see proc_pid_stat(5)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return len(fields) <= threads || fields[0] != "Z" || fields[threads] != "1"
}
