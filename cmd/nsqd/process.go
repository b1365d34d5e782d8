package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
	"github.com/lockstepmq/lockstep/internal/observe/tracing"
)

const (
	// leaveTimeout bounds the removal of a decommissioned broker's member, to which the other members of the embedded
	// etcd have to agree.
	leaveTimeout = 8 * time.Second
	// transferTimeout and drainTimeout bound a planned stop.
	transferTimeout = 5 * time.Second
	drainTimeout    = 5 * time.Second
	// seriesPerPartition divides --metrics-max-series: a partition has several series.
	seriesPerPartition = 10
	// checkDataPathEvery is how often the process checks that its data path still exists.
	checkDataPathEvery = time.Second
)

// process is one broker with all its parts, in the order in which start makes them.
type process struct {
	o     config.Options
	args  []string // the command line, read again at SIGHUP
	log   *logrus.Logger
	files files

	metrics *metrics.Recorder
	events  *events.Recorder
	data    dataPath
	clients clients
	peers   peers
	meta    metadataStore
	traces  *tracing.Tracer // nil without --otlp-endpoint
	node    metadata.NodeState
	lookup  *lookup.Registrar // external nsqlookupds
	broker  *coordinator.Broker

	fail       context.CancelCauseFunc // ends the process with the fault of a part
	running    context.Context         // ends when stop begins
	endRunning context.CancelFunc
	background sync.WaitGroup // goroutines that end with running
	endReports context.CancelFunc
	reporters  sync.WaitGroup // goroutines that end with endReports: while leaderships are transferred, they still report
}

func newProcess(o config.Options, args []string, log *logrus.Logger, fail context.CancelCauseFunc) *process {
	p := &process{o: o, args: args, log: log, files: divideFiles(fileLimit()), fail: fail}
	p.running, p.endRunning = context.WithCancel(context.Background())
	return p
}

// start makes the parts of the broker. It waits for other brokers and for the metadata without a limit; a supervisor
// sees a healthy process that is not ready. If it fails, stop ends the parts that were made.
func (p *process) start(ctx context.Context, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.metrics, p.events = metrics.New(p.o.MetricsMaxSeries), events.New()
	p.metrics.LimitPartitions(p.o.MetricsMaxSeries / seriesPerPartition)
	// 1. The data path, and the files in the settings.
	if err := p.data.lock(p.o.DataPath); err != nil {
		return err
	}
	if err := p.readSecrets(); err != nil {
		return err
	}
	// 2. Sockets before anything changes, so that a port in use is found early. From here on
	// clients connect, and wait until the broker serves.
	if err := p.listen(); err != nil {
		return err
	}
	p.answer()
	p.watch(p.clients.sockets.Failed())
	p.background.Go(func() { p.reloads(reload) })
	// 3. Metadata: the embedded member or the external cluster.
	if err := p.data.identify(p.o.ClusterName, p.o.NodeName, p.log); err != nil {
		return err
	}
	if err := p.openMetadata(ctx); err != nil {
		return err
	}
	p.background.Go(func() { p.clients.users.Watch(p.running, p.meta.store) })
	p.background.Go(func() { p.clients.tcp.Recheck(p.running) })
	p.background.Go(func() { p.peers.admission.Watch(p.running, p.meta.store) })
	// 4. The broker: store, registration, replicas.
	if err := p.startBroker(ctx); err != nil {
		return err
	}
	p.watch(p.broker.Failed())
	p.useInvitation(ctx)
	if err := p.data.hold(p.meta.etcd != nil); err != nil {
		return err
	}
	// 5. Clients, and the services that receive this broker's state.
	if err := p.awaitUsers(ctx); err != nil {
		return err
	}
	p.serve()
	p.report()
	p.logReady()
	return nil
}

// readSecrets reads the certificate for other brokers and the token of the first administrator, and opens the audit file.
func (p *process) readSecrets() (err error) {
	if p.clients.users, err = openUsers(p.o, p.data.dir, p.log); err != nil {
		return err
	}
	p.clients.memory = newMemory(p.o)
	p.metrics.Source([]string{"client_memory_bytes"}, func(emit metrics.Emit) {
		for _, u := range limits.Uses() {
			emit("client_memory_bytes", float64(p.clients.memory.Held(u)), u.String())
		}
	})
	if p.o.AuditFile != "" {
		if p.clients.audit, err = guard.OpenAuditFile(p.o.AuditFile); err != nil {
			return err
		}
	}
	return p.peers.load(p.o, p.log)
}

func (p *process) logReady() {
	etcd := redact.Addresses(p.o.EtcdEndpoints)
	if p.meta.etcd != nil {
		etcd = p.o.EtcdClientAddress + "," + p.o.EtcdPeerAddress
	}
	text := func(a net.Addr) string {
		if a == nil {
			return "none"
		}
		return a.String()
	}
	s := p.clients.sockets
	p.log.WithFields(logrus.Fields{
		"node": p.broker.Self(), "incarnation": p.broker.Incarnation(), "rpc": p.peerAddress(), "etcd": etcd,
		"tcp": text(s.Addr(listen.TCP)), "http": text(s.Addr(listen.HTTP)), "https": text(s.Addr(listen.HTTPS)), "lookup": text(s.Addr(listen.Lookup)),
	}).Info("ready to serve clients")
}

// wait serves until the process is asked to stop (nil), or must stop because of a fault.
func (p *process) wait(ctx context.Context) error {
	check := time.NewTicker(checkDataPathEvery)
	defer check.Stop()
	for {
		select {
		case <-check.C:
			if err := p.data.check(p.log); err != nil {
				return err
			}
		case <-ctx.Done():
			err := faultOf(ctx)
			if err == nil {
				return nil
			}
			// A part that fails because the data path is gone often fails before the next check.
			return errors.Join(p.data.check(p.log), err)
		}
	}
}

// fault is the cause of a context that ended because a part failed.
type fault struct{ error }

// faultOf returns the error of the part that ended ctx; nil if a signal did.
func faultOf(ctx context.Context) error {
	if f, ok := context.Cause(ctx).(fault); ok {
		return f.error
	}
	return nil
}

// watch ends the process at the first error of a part, during the start too.
func (p *process) watch(failed <-chan error) {
	p.background.Go(func() {
		select {
		case err := <-failed:
			p.fail(fault{err})
		case <-p.running.Done():
		}
	})
}

func (p *process) reloads(asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
			p.reload()
		case <-p.running.Done():
			return
		}
	}
}

// reload (SIGHUP) reads the certificates for clients, the log level and --rpc-tls-allow again, the latter two from the
// file if there is one.
func (p *process) reload() {
	if o, _, err := config.Load(source(p.args)); err != nil {
		p.log.WithError(err).Error("cannot reload the settings, the old ones remain in effect")
	} else {
		p.peers.names.SetNodes(knownBrokers(o))
		if level, err := parseLevel(o.LogLevel); err == nil {
			p.log.SetLevel(level)
			p.log.WithField("level", o.LogLevel).Info("log level reloaded")
		}
	}
	if p.clients.tls == nil {
		return
	}
	if err := p.clients.tls.Reload(); err != nil {
		p.log.WithError(err).Error("cannot reload the certificates, the old ones remain in effect")
		return
	}
	p.log.Info("certificates reloaded")
}

// stop ends the parts that start has made, in reverse order, with one exception: leaderships are transferred first,
// while clients are still served.
func (p *process) stop() {
	// 5. No request waits for the start any longer.
	p.endRunning()
	if p.clients.standby != nil {
		p.clients.standby.end()
	}
	p.background.Wait()
	p.transferLeaderships()
	if p.endReports != nil {
		p.endReports()
		p.reporters.Wait()
		p.lookup.Close()
	}
	p.clients.drain()
	// 4. The broker and its registration.
	if p.broker != nil {
		p.broker.Stop(context.Background())
	}
	p.traces.Close()
	if p.peers.port != nil {
		_ = p.peers.port.Close()
	}
	// 3. Metadata.
	if p.meta.store != nil {
		_ = p.meta.store.Close()
	}
	if p.meta.etcd != nil {
		p.leaveEtcd()
		p.meta.etcd.Stop()
	}
	// 2. and 1. The sockets are closed already; the files are last.
	if p.clients.audit != nil {
		_ = p.clients.audit.Close() // every line was written
	}
	p.data.unlock()
}

// transferLeaderships gives the leaderships of this broker to others. Leadership of etcd comes first: transferring
// partitions writes to etcd, and a write during a change of etcd's leader is lost until it is retried.
func (p *process) transferLeaderships() {
	if p.meta.etcd != nil {
		if err := p.meta.etcd.TransferLeadership(); err != nil && !errors.Is(err, etcd.ErrStopped) {
			p.log.WithError(err).Warn("cannot transfer the leadership of the metadata, its writes pause when this broker stops")
		}
	}
	if p.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
		defer cancel()
		p.broker.TransferLeadership(ctx)
	}
}

func (p *process) leaveEtcd() {
	if p.broker == nil || !p.broker.Decommissioned() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := p.meta.etcd.Leave(ctx); err != nil {
		p.log.WithError(err).Warn("cannot remove this broker's member of the embedded etcd, leaving it to the controller")
	}
}
