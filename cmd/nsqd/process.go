package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
	"github.com/lockstepmq/lockstep/internal/observe/tracing"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// process has all running parts, in the order of their start.
type process struct {
	o    config.Options
	args []string // the command line, read again at SIGHUP
	log  *logrus.Logger

	files files
	dir   string
	// nodeFile distinguishes the data path from an older copy of it.
	nodeFile *nodefile.File
	lock     *flock.Flock
	holding  nodefile.Holding
	tls      *listen.TLS // nil without certificates
	authTLS  *tls.Config // for auth services
	users    *access.Registry
	guard    *guard.Guard
	memory   *limits.Budget // for what clients make the broker hold
	// auditFile is nil without --audit-file.
	auditFile *guard.AuditFile
	identity  *peertls.Identity // towards other brokers; nil without TLS
	names     *peertls.Names
	admission *admission.Registry
	sockets   *listen.Server
	peers     *net.TCPListener // port for other brokers
	node      metadata.NodeState
	etcd      *etcd.Server // nil with an external one
	meta      *metadata.Etcd
	// metaConfig is the configuration of meta without the password.
	metaConfig metadata.Config
	metrics    *metrics.Recorder
	events     *events.Recorder
	traces     *tracing.Tracer // nil without --otlp-endpoint
	console    *console.Console
	broker     *coordinator.Broker
	tcp        *tcp.Handler
	consumers  *consume.Sessions // by HTTP; nil until serve
	lookup     *lookup.Registrar // external nsqlookupds
	reports    sync.WaitGroup    // goroutines of report
	quiet      context.CancelFunc
	standby    *standby
	ended      *fault
	watches    sync.WaitGroup // goroutines of watch
	quit       chan struct{}  // closed by stop; the watches end with it
}

// start is the numbered list of a start's steps. It waits for other brokers and for the
// metadata without a limit; a supervisor sees a healthy process that is not ready. If it
// fails, stop ends the started parts.
func (p *process) start(ctx context.Context, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.quit = make(chan struct{})
	p.ended = newFault()
	p.watches.Go(func() { // ends with the start, or with the process
		select {
		case <-p.ended.done():
			cancel()
		case <-ctx.Done():
		}
	})
	err := p.startAll(ctx, reload)
	if cause := p.ended.cause(); cause != nil {
		return cause
	}
	return err
}

func (p *process) startAll(ctx context.Context, reload <-chan os.Signal) error {
	// 1. The lock of the data path.
	if err := p.lockDataPath(); err != nil {
		return err
	}
	if err := p.openUsers(); err != nil {
		return err
	}
	p.metrics, p.events = metrics.New(p.o.MetricsMaxSeries), events.New()
	p.metrics.LimitPartitions(p.o.MetricsMaxPartitions)
	p.memory = newMemory(p.o)
	p.metrics.Source([]string{"client_memory_bytes"}, func(emit metrics.Emit) {
		for _, u := range limits.Uses() {
			emit("client_memory_bytes", float64(p.memory.Held(u)), u.String())
		}
	})
	if p.o.AuditFile != "" {
		if err := p.openAudit(); err != nil {
			return err
		}
	}
	var err error
	if p.identity, p.names, err = loadPeerIdentity(p.o, p.log); err != nil {
		return err
	}
	p.openAdmission()
	// 2. Sockets before anything changes, so that a port in use is found early. From here on
	// clients connect, and wait until the broker serves.
	if err := p.listen(); err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(p.peerAddress()); err == nil {
		p.warnOfCertificate(p.o.RPCTLSCert, host)
	}
	p.answer()
	p.watch(p.sockets.Failed())
	p.watches.Go(func() { p.reloads(reload) })
	// 3. Metadata: the embedded member or the external cluster.
	if err := p.openNodeFile(); err != nil {
		return err
	}
	if err := p.openMeta(ctx); err != nil {
		return err
	}
	p.watchUsers()
	p.watchAdmission()
	// 4. The broker: store, registration, replicas.
	if err := p.startBroker(ctx); err != nil {
		return err
	}
	p.joined(ctx)
	if err := p.hold(); err != nil {
		return err
	}
	if err := p.awaitUsers(ctx); err != nil {
		return err
	}
	// 5. Clients, and the services that receive this broker's state.
	p.serve()
	p.report()
	p.watch(p.broker.Failed())
	p.log.WithFields(logrus.Fields{
		"node": p.broker.Self(), "incarnation": p.broker.Incarnation(), "rpc": p.peerAddress(), "etcd": strings.Join(p.etcdAddresses(), ","),
		"tcp": addr(p.sockets.TCPAddr()), "http": addr(p.sockets.HTTPAddr()), "https": addr(p.sockets.HTTPSAddr()), "lookup": addr(p.sockets.LookupAddr()),
	}).Info("ready to serve clients")
	return nil
}

// etcdAddresses returns where the metadata is, for the log: the embedded member's ports, or the
// external addresses.
func (p *process) etcdAddresses() []string {
	if p.etcd == nil {
		return []string{redact.Addresses(p.o.EtcdEndpoints)}
	}
	return []string{p.o.EtcdClientAddress, p.o.EtcdPeerAddress}
}

// wait returns when the process is asked to stop, or must stop because of a fault.
func (p *process) wait(ctx context.Context) error {
	look := time.NewTicker(holdingEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := p.checkDataPath(); err != nil {
				return err
			}
		case <-p.ended.done():
			// A part that fails because the data path is gone often fails before the next check.
			if err := p.checkDataPath(); err != nil {
				return errors.Join(err, p.ended.cause())
			}
			return p.ended.cause()
		}
	}
}

// checkDataPath logs and returns an error if the data path was removed.
func (p *process) checkDataPath() error {
	err := p.holding.Check()
	if err != nil {
		p.log.WithError(err).Error("data path removed, stopping so that no acknowledged message is lost")
	}
	return err
}

// watch ends the process at the first error of a part, during the start too.
func (p *process) watch(failed <-chan error) {
	p.watches.Go(func() { // ends with the first error, or the process
		select {
		case err := <-failed:
			p.ended.set(err)
		case <-p.quit:
		}
	})
}

// fault is the first error after which the process has to end.
type fault struct {
	mu     sync.Mutex
	err    error
	closed chan struct{}
}

func newFault() *fault { return &fault{closed: make(chan struct{})} }

func (f *fault) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.closed)
	}
}

// done returns a channel that closes at the first fault.
func (f *fault) done() <-chan struct{} { return f.closed }

// cause returns the fault, nil if there is none.
func (f *fault) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// reloads handles SIGHUP until the process stops.
func (p *process) reloads(asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
			p.reload()
		case <-p.quit:
			return
		}
	}
}

// reload (SIGHUP) reads the certificates for clients, the log level and --rpc-tls-allow again,
// the latter two from the file if there is one.
func (p *process) reload() {
	if o, _, err := settings(p.args); err != nil {
		p.log.WithError(err).Error("cannot reload the settings, the old ones remain in effect")
	} else {
		p.names.SetNodes(knownBrokers(o))
		if level, err := parseLevel(o.LogLevel); err == nil {
			p.log.SetLevel(level)
			p.log.WithField("level", o.LogLevel).Info("log level reloaded")
		}
	}
	if p.tls == nil {
		return
	}
	if err := p.tls.Reload(); err != nil {
		p.log.WithError(err).Error("cannot reload the certificates, the old ones remain in effect")
		return
	}
	p.log.Info("certificates reloaded")
}

// stop ends the started parts in reverse order: first leaderships are transferred, while
// clients are still served, then the clients end, then the registration. The leadership of
// etcd is transferred before all others: transferring partitions writes to etcd, and a write
// during a change of etcd's leader is lost until it is retried.
func (p *process) stop() {
	close(p.quit)
	if p.standby != nil {
		p.standby.end()
	}
	p.watches.Wait()
	if p.etcd != nil {
		if err := p.etcd.TransferLeadership(); err != nil && !errors.Is(err, etcd.ErrStopped) {
			p.log.WithError(err).Warn("cannot transfer the leadership of the metadata, its writes pause when this broker stops")
		}
	}
	if p.broker != nil {
		hand, cancel := context.WithTimeout(context.Background(), transferTimeout)
		p.broker.TransferLeadership(hand)
		cancel()
	}
	if p.quiet != nil {
		p.quiet()
		p.reports.Wait()
		p.lookup.Close()
	}
	if p.consumers != nil {
		p.consumers.Stop() // otherwise their polls would be waited for
	}
	if p.sockets != nil {
		drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
		p.sockets.Stop(drain)
		cancel()
	}
	if p.broker != nil {
		p.broker.Stop(context.Background())
	}
	p.traces.Close()
	if p.peers != nil {
		_ = p.peers.Close()
	}
	if p.meta != nil {
		_ = p.meta.Close()
	}
	if p.etcd != nil {
		p.leaveEtcd()
		p.etcd.Stop()
	}
	if p.auditFile != nil {
		_ = p.auditFile.Close() // every line was written
	}
	if p.lock != nil {
		_ = p.lock.Unlock()
	}
}

func (p *process) openAudit() (err error) {
	p.auditFile, err = guard.OpenAuditFile(p.o.AuditFile)
	return err
}

// leaveEtcd removes the member of a decommissioned broker.
func (p *process) leaveEtcd() {
	if p.broker == nil || !p.broker.Left() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := p.etcd.Leave(ctx); err != nil {
		p.log.WithError(err).Warn("cannot remove this broker's member of the embedded etcd, leaving it to the controller")
	}
}

// lockDataPath creates the directory, refuses one of a stock nsqd, and locks it.
func (p *process) lockDataPath() error {
	p.dir = p.o.DataPath
	if p.dir == "" {
		p.dir = "."
	}
	if err := vfs.MakeDir(vfs.OS{}, filepath.ToSlash(p.dir)); err != nil {
		return fmt.Errorf("data path: %w", err)
	}
	if err := stockData(p.dir); err != nil {
		return err
	}
	var err error
	if p.lock, err = nodefile.Lock(p.dir); err != nil {
		return fmt.Errorf("lock data path %s: %w", p.dir, err)
	}
	return p.tightenDataPath()
}

// stockData refuses the data path of a stock nsqd.
func stockData(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "nsqd.dat")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("data path %s holds the queues of a stock nsqd (nsqd.dat): choose another --data-path; to bring the "+
		"messages over, start the broker there and run `nsqctl import-nsqd %s`", dir, dir)
}

// openNodeFile reads the broker's record in the data path, and checks whether the data path is
// a copy.
func (p *process) openNodeFile() (err error) {
	p.nodeFile, err = nodefile.Open(vfs.OS{}, filepath.ToSlash(p.dir), p.o.ClusterName, ident.Node(p.o.NodeName))
	if err != nil {
		return err
	}
	doubt, err := nodefile.CheckMarks(p.dir, p.nodeFile.Record(), etcd.Exists(filepath.Join(p.dir, "etcd")))
	if err != nil || doubt != lifecycle.DoubtCopied || p.nodeFile.Record().Doubted {
		return err
	}
	p.log.Warn("data path is a copy, fetching missing data from the other brokers")
	return p.nodeFile.Update(func(r *nodefile.Record) { r.Doubted = true })
}

// hold opens the data path, to notice its removal.
func (p *process) hold() (err error) {
	names := []string{"journal", "topics"}
	if p.etcd != nil {
		names = append(names, "etcd")
	}
	p.holding, err = nodefile.Hold(p.lock, names...)
	return err
}

func addr(a net.Addr) string {
	if a == nil {
		return "none"
	}
	return a.String()
}
