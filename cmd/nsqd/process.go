package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/datapath"
	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/lookup"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/server"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// process is everything that runs, in the order in which it was started.
type process struct {
	o    config.Options
	args []string // the command line, to be read again at SIGHUP
	log  *logrus.Logger

	files   files
	dir     string
	lock    *flock.Flock
	holding datapath.Holding
	tls     *server.TLS // nil without certificates
	authTLS *tls.Config // towards auth services
	sockets *server.Server
	peers   net.Listener
	node    meta.NodeState
	etcd    *etcdserver.Server // nil with an external one
	meta    *meta.Etcd
	metrics *metrics.Recorder
	broker  *coordinator.Broker
	tcp     *protocol.Handler
	lookup  *lookup.Registrar // external nsqlookupds
	reports sync.WaitGroup    // goroutines of report
	quiet   context.CancelFunc
}

// start is the numbered story of a start. What was begun when it fails is ended
// by stop.
func (p *process) start(ctx context.Context) error {
	// 1. The data path is this process's alone.
	if err := p.lockDataPath(); err != nil {
		return err
	}
	// 2. Sockets first: a port that is taken is found before anything moves.
	if err := p.listen(); err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(p.peerAddress()); err == nil {
		p.warnOfCertificate(p.o.RPCTLSCert, host)
	}
	// 3. Metadata: the embedded member or the external cluster.
	if err := p.openMeta(ctx); err != nil {
		return err
	}
	// 4. The broker: store, registration, replicas.
	p.metrics = metrics.New(p.o.MetricsMaxSeries)
	options, err := p.brokerOptions()
	if err != nil {
		return err
	}
	p.node = options.Node
	p.lookup = lookup.New(p.lookupOptions(), nil) // of nobody yet: nothing is served
	options.KnownChannels = p.knownChannels
	if p.broker, err = coordinator.Start(ctx, options); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	p.peers = nil // the broker's now
	if err := p.hold(); err != nil {
		return err
	}
	// 5. Clients, and those who are told about this broker.
	p.serve()
	p.report()
	p.log.WithFields(logrus.Fields{"node": p.broker.Self(), "incarnation": p.broker.Incarnation()}).
		Infof("READY, TCP on %s, HTTP on %s", addr(p.sockets.TCPAddr()), addr(p.sockets.HTTPAddr()))
	return nil
}

// wait returns when the process is told to stop, or has to.
func (p *process) wait(ctx context.Context, reload <-chan os.Signal) error {
	var died <-chan error
	if p.etcd != nil {
		died = p.etcd.Err()
	}
	look := time.NewTicker(holdingEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := p.holding.Check(); err != nil {
				p.log.WithError(err).Error("STORE gone, stopping: what is answered from now on would be lost")
				return err
			}
		case err := <-died:
			return err
		case err := <-p.broker.Failed():
			return err
		case err := <-p.sockets.Failed():
			return err
		case <-reload:
			p.reload()
		}
	}
}

// reload (SIGHUP) reads the certificates and the log level again, the latter
// from the file if there is one.
func (p *process) reload() {
	if o, _, err := settings(p.args); err != nil {
		p.log.WithError(err).Error("settings were not reloaded, the old ones stay")
	} else if level, err := parseLevel(o.LogLevel); err == nil {
		p.log.SetLevel(level)
		p.log.WithField("level", o.LogLevel).Info("log level reloaded")
	}
	if p.tls == nil {
		return
	}
	if err := p.tls.Reload(); err != nil {
		p.log.WithError(err).Error("certificates were not reloaded, the old ones stay")
		return
	}
	p.log.Info("certificates reloaded")
}

// stop ends what start began, in reverse: leaderships go first, while clients
// are still served, then the clients, then the registration. That of etcd goes
// before all others: giving up partitions takes writes to etcd, and a write that
// meets a change of its leader is lost until it is retried.
func (p *process) stop() {
	if p.etcd != nil {
		if err := p.etcd.HandOver(); err != nil && !errors.Is(err, etcdserver.ErrStopped) {
			p.log.WithError(err).Warn("metadata is still led from here; its writes pause when this broker is gone")
		}
	}
	if p.broker != nil {
		hand, cancel := context.WithTimeout(context.Background(), handOverTimeout)
		p.broker.HandOver(hand)
		cancel()
	}
	if p.quiet != nil {
		p.quiet()
		p.reports.Wait()
		p.lookup.Close()
	}
	if p.sockets != nil {
		drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
		p.sockets.Stop(drain)
		cancel()
	}
	if p.broker != nil {
		p.broker.Stop(context.Background())
	}
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
	if p.lock != nil {
		_ = p.lock.Unlock()
	}
}

// leaveEtcd takes the member of a broker that has been decommissioned along.
func (p *process) leaveEtcd() {
	if p.broker == nil || !p.broker.Left() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := p.etcd.Leave(ctx); err != nil {
		p.log.WithError(err).Warn("this broker's member of the embedded etcd stays, until the controller takes it out")
	}
}

// lockDataPath makes the directory, refuses one of a stock nsqd, and locks it.
func (p *process) lockDataPath() error {
	p.dir = p.o.DataPath
	if p.dir == "" {
		p.dir = "."
	}
	if err := vfs.MakeDir(vfs.OS{}, filepath.ToSlash(p.dir)); err != nil {
		return fmt.Errorf("data path: %w", err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "nsqd.dat")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data path %s holds the queues of a stock nsqd (nsqd.dat): choose another --data-path; to bring the "+
			"messages over, let that nsqd run and drain it with nsq_to_nsq or `nsqctl tail | nsqctl pub`", p.dir)
	}
	var err error
	if p.lock, err = datapath.Lock(p.dir); err != nil {
		return fmt.Errorf("lock data path %s: %w", p.dir, err)
	}
	return nil
}

// hold notes what this process has open at its data path.
func (p *process) hold() (err error) {
	names := []string{"journal", "topics"}
	if p.etcd != nil {
		names = append(names, "etcd")
	}
	p.holding, err = datapath.Hold(p.lock, names...)
	return err
}

func addr(a net.Addr) string {
	if a == nil {
		return "none"
	}
	return a.String()
}
