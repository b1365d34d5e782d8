package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// machine is one host: an address, a disk, and the process on it, if there is one.
type machine struct {
	w      *World
	name   string
	ip     net.IP
	disk   *disk
	boot   int // the machine's boots
	starts int
	p      *daemon // nil while no process serves
	wanted bool    // a supervisor starts it again
	// supervisor lets one goroutine at a time start the process.
	supervisor chan struct{}
	stores     []*store
}

func (m *machine) addr(port int) *net.TCPAddr { return &net.TCPAddr{IP: m.ip, Port: port} }

const (
	tcpPort, httpPort, rpcPort = 4150, 4151, 4152
	sessionTTL                 = 3 * time.Second
	putHold                    = 4 * time.Second
	leaderHold                 = 3 * time.Second
	startLimit                 = 60 * time.Second
)

// daemon is one process: the daemon's own parts behind the network, disk and metadata of the world. It leaves out what needs a
// kernel: sockets, TLS, seats, the embedded etcd, the command line.
type daemon struct {
	m         *machine
	store     *store
	mount     *mount
	broker    *coordinator.Broker
	users     *access.Registry // nil where rights are not enforced
	gate      *guard.Guard
	tcp       *tcp.Handler
	consumers *consume.Sessions
	web       *http.Server
	ports     [2]*listener
	cancel    context.CancelFunc
	serving   sync.WaitGroup
	once      sync.Once
	ended     chan struct{}
}

// start runs a broker on the machine. It returns when the broker serves.
func (m *machine) start() error {
	m.starts++
	w := m.w
	s := &store{session: w.meta.Session(), random: w.rng(fmt.Sprint("meta", m.name, m.starts))}
	m.stores = append(m.stores, s)
	p := &daemon{m: m, store: s, mount: &mount{d: m.disk, dead: make(chan struct{})}, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	starting, done := context.WithTimeout(ctx, startLimit)
	defer done()
	w.lock(func() { m.p = p })
	if p.users, p.gate = p.guard(); p.users != nil {
		p.serving.Go(func() { p.users.Watch(ctx, s) }) // ends with the process
	}
	var err error
	p.broker, err = coordinator.Start(starting, p.options())
	if err != nil {
		p.kill()
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	select {
	case <-p.mount.dead: // killed while it started
		p.broker.Close()
		close(p.ended)
		return errDead
	default:
	}
	if err := p.awaitUsers(starting); err != nil {
		p.kill()
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	p.serve(ctx)
	return nil
}

func (p *daemon) options() coordinator.Options {
	m, w := p.m, p.m.w
	o := coordinator.Options{
		Cluster:      cluster,
		Node:         metadata.NodeState{Name: ident.Node(m.name), BroadcastAddress: m.ip.String(), TCPPort: tcpPort, HTTPPort: httpPort, RPCAddress: m.addr(rpcPort).String(), Build: "0.1.0", Level: metadata.Level},
		SegmentBytes: w.shape.segmentBytes, JournalBytes: w.shape.journalBytes, SyncTogether: w.shape.syncTogether,
		FS: p.mount.fs(), Dir: "/data", BootID: fmt.Sprint(m.name, m.boot), Meta: p.store,
		Listen: w.net.listen(m.name, m.addr(rpcPort)), Dial: w.net.dialer(m.name, m.ip), SessionTTL: sessionTTL,
		Topics: admin.Defaults{AutoCreate: true,
			Partitions: 1, ReplicationFactor: w.shape.replicas, Durability: w.shape.durability, Hold: leaderHold, DeleteGrace: w.shape.deleteGrace,
		},
		Maintenance: maintenance.Settings{MinFreeBytes: minFree, TombstoneGrace: time.Second, TrashGrace: 20 * time.Second},
		NoSync:      w.shape.durability == metadata.DurabilityReplicated,
		Replica:     replica.Options{Check: true},
		Queue:       nsqd.Options{MsgTimeoutMS: msgTimeout.Milliseconds(), MaxMsgTimeoutMS: 60_000, MaxReqTimeoutMS: 600_000, EphemeralDepth: 100, Log: w.log.WithField("on", m.name)},
		Gateway:     gateway.Options{PutLimit: putHold, Hold: leaderHold, Log: w.log.WithField("on", m.name)},
		Log:         w.log.WithField("on", m.name),
	}
	if p.users != nil {
		o.Maintenance.MayPublish, o.NoteCreation = p.mayPublish, p.gate.Note
	}
	return o
}

const cluster = "world"

const (
	minFree    = 64 << 20
	msgTimeout = 3 * time.Second
)

// serve opens the ports for clients.
func (p *daemon) serve(ctx context.Context) {
	m, w := p.m, p.m.w
	log := w.log.WithField("on", m.name)
	to := tcp.DefaultOptions()
	to.MsgTimeout, to.MaxMsgTimeout = msgTimeout, time.Minute
	p.tcp = tcp.New(to, tcp.Backend{Publisher: p.broker.Gateway, Subscribers: p.broker.Gateway, Guard: p.gate, Log: log})
	p.consumers = consume.New(consume.Options{MaxSessions: 100, MaxPerClient: 100, RequeueOnDisconnect: true}, p.broker.Gateway, p.broker.Gateway)
	b := p.broker
	p.web = &http.Server{Handler: httpapi.NSQD(httpapi.Options{
		InfoReply: httpapi.InfoReply{NodeName: m.name, TCPPort: tcpPort, HTTPPort: httpPort}, StartTime: time.Now(), Messages: to.Messages, Connection: to.Connection,
	}, httpapi.Backend{
		Publisher: b.Gateway, Stats: b.Inspector, Directory: b.Directory, Inspector: b.Inspector,
		Admin: b.Admin, Planner: b.Admin, Channels: b.Admin, Recovery: b.Admin, Tracer: b.Admin,
		Producers: p.tcp.Producers, Consumers: p.consumers, Users: p.users, Guard: p.gate, Log: log,
	})}
	if p.gate != nil {
		p.serving.Go(func() { p.tcp.Recheck(ctx) }) // ends with the process
	}
	p.ports = [2]*listener{w.net.listen(m.name, m.addr(tcpPort)), w.net.listen(m.name, m.addr(httpPort))}
	p.serving.Go(func() { // ends with its port
		for {
			c, err := p.ports[0].Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.tcp.Serve(ctx, c) })
		}
	})
	p.serving.Go(func() { _ = p.web.Serve(p.ports[1]) }) // ends with its port
	p.serving.Go(func() {                                // a process that finds a fault ends itself
		select {
		case err := <-b.Failed():
			w.note("%s ends itself: %v", m.name, err)
			w.tasks.Go(func() { p.kill(); m.revive(time.Second) })
		case <-ctx.Done():
		}
	})
}

// kill ends the process as kill -9 does: what it has written stays in the page cache, its connections are reset, and its lease
// lives on for a while.
func (p *daemon) kill() { p.end(false) }

func (p *daemon) end(gentle bool) {
	p.once.Do(func() {
		m, w := p.m, p.m.w
		if gentle {
			p.stop()
		}
		p.mount.die()
		p.store.setCut(true)
		w.net.reset(m.name)
		p.cancel()
		if p.consumers != nil {
			p.consumers.Stop()
		}
		if p.web != nil {
			_ = p.web.Close()
		}
		if p.broker != nil {
			p.broker.Close()
			p.serving.Wait()
			close(p.ended)
		}
		w.tasks.Go(func() { // ends with the lease
			w.pause(sessionTTL)
			p.store.expire()
		})
		w.lock(func() {
			if m.p == p {
				m.p = nil
			}
		})
	})
}

// stop is the gentle end: leaderships are transferred first, then the clients' connections end.
func (p *daemon) stop() {
	if p.broker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.broker.TransferLeadership(ctx)
	p.consumers.Stop()
	_ = p.ports[0].Close()
	drain, done := context.WithTimeout(context.Background(), 2*time.Second)
	defer done()
	if err := p.web.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.m.w.note("%s: %v", p.m.name, err)
	}
	p.tcp.Stop(drain)
	p.broker.Stop(context.Background())
}
