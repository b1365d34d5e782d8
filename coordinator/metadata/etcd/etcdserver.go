// Package etcd runs an etcd member inside the broker's process: the metadata store of a cluster without an external etcd.
//
// It does not interpret the stored keys (coordinator/metadata does) and is not a client. Package lifecycle decides how
// a member starts, from the content of its disk and the reports of the other members (Open). It changes the membership
// only for a member that must not vote with its disk's content, or whose disk has moved to another address
// (PublishAddress).
//
// # Invariants
//
//  1. A directory with a member is restarted as that member. The initial cluster in Options then only lists the other members.
//  2. Stop returns only when the member's files are closed.
//  3. A fatal error ends the member: Err returns it once, and the broker ends (for the others, a broker without its etcd is
//     dead). If the log or the database fails, the process ends at once, with an explanation in the log (giveUp).
//  4. Only ForceNewCluster, at an operator's request, makes a cluster of a minority.
//  5. A cluster is founded once, by all its members together. A member never votes with a disk that may be older than its
//     promises (lifecycle).
//  6. A member that joins runs only under the identity with which it was added. It requests that identity from a
//     majority.
//  7. The peer port is open while Open or its server runs. etcd itself listens on Unix sockets behind the peer port (front)
//     and the client port (clientFront), which check the certificates and limit the connections.
//  8. This broker reaches its own member through the socket (Local), independently of floods at the ports and of certificates.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// privateDir is the mode of the directory: values may contain addresses and, with authentication, hashes.
const privateDir = 0o700

// ErrStopped means that the member ended before it was ready.
var ErrStopped = errors.New("etcd: stopped")

// ErrRemoved means that the cluster has removed this member.
var ErrRemoved = errors.New("etcd: this member was taken out of its cluster (the broker was decommissioned, or came back " +
	"with another disk); if it is to join again, start it with an empty data path")

// ErrDamaged means that the member cannot read its own files.
var ErrDamaged = errors.New("its files are damaged; if other brokers run, move the directory away and start again " +
	"(the broker joins them as a new member), else restore the data path from a backup")

// Options describe this member. Name, Dir, ClientAddress and PeerAddress are required.
type Options struct {
	Name          string // of the member: the broker's node name
	Dir           string // created if missing
	ClientAddress string // host:port to listen on; the host is an IP address or localhost
	PeerAddress   string // likewise, for the other members
	// AdvertiseClientAddress is the client address for other brokers; "" = ClientAddress.
	AdvertiseClientAddress string
	// InitialCluster lists all members, including this one: n1=http://host:port,…. "": only this one. This member advertises
	// its own entry.
	InitialCluster string
	ClusterToken   string // separates clusters that reach each other by mistake
	TLS            TLS
	Names          *peertls.Names // in the certificates of brokers; nil: every certificate of the authority is accepted
	Connections    peertls.Limits // of each port; 64 of brokers and 64 others
	Node           *nodefile.File // the broker's node file, next to Dir; required by Open
	Absent         []string       // members without which an operator allows a new cluster to be founded
	// NameTaken returns ErrOptions if another live broker of the running cluster has this name; nil: no check. c is a client
	// of the cluster.
	NameTaken func(ctx context.Context, c *clientv3.Client) error
	// Waiting receives the reasons why Open or Wait waits, repeatedly, from one goroutine at a time. nil: those of Open are
	// logged.
	Waiting   func(why string)
	Heartbeat time.Duration // 30 ms
	Election  time.Duration // 300 ms; at least 5 × Heartbeat
	MaxTxnOps uint          // of one transaction; 2048
	Log       logrus.FieldLogger

	identity      *peertls.Identity // nil for plain text
	front         *front            // the peer port, by Open
	cluster       string            // the cluster's name in members' reports, by Open
	forceNew      bool              // discard the other members; set by ForceNewCluster
	quota         int64             // bytes of the database; 512 MiB
	quotaEvery    time.Duration     // 5 s
	answerTimeout time.Duration     // timeout of one query to one member; 2 s
	promptAnswer  time.Duration     // likewise, for a member whose disk allows it to vote; 500 ms
}

// TLS names the files for both ports; all empty: plain text. Members and clients must present a certificate of CA.
type TLS struct{ Cert, Key, CA string }

// Server is a running member.
type Server struct {
	etcd        *embed.Etcd
	clients     *listeners
	port        *clientFront // nil if Open was not used: then etcd itself listens
	endpoint    string
	options     Options
	log         logrus.FieldLogger
	failed      chan error
	transferred sync.Once
	stop        sync.Once
	stopped     chan struct{}      // closed when Stop begins
	done        chan struct{}      // closed when the watcher goroutine ends
	stopQuota   context.CancelFunc // ends watchQuota
	quotaDone   chan struct{}      // closed when watchQuota ends
}

// Exists reports whether dir holds a member. A directory without the log does not: the member's promises are lost.
func Exists(dir string) bool { return wal.Exist(logDir(dir)) }

// Start starts the member and returns without waiting for the others: a cluster is ready when a majority runs (Wait).
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.setDefaults()
	cfg, err := o.embedConfig()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, privateDir); err != nil {
		return nil, fmt.Errorf("etcd: create directory: %w", err)
	}
	if err := o.loadIdentity(); err != nil {
		return nil, err
	}
	var port *clientFront
	if o.front != nil {
		if port, err = o.listenClients(); err != nil {
			return nil, err
		}
		cfg.ListenPeerUrls, cfg.ListenClientUrls = []url.URL{o.front.listenURL()}, []url.URL{port.listenURL()}
		cfg.ClientTLSInfo = transport.TLSInfo{} // the front ends TLS
	}
	clients := &listeners{}
	cfg.ServiceRegister = clients.add
	e, err := o.startMember(cfg)
	if err != nil {
		port.close()
		return nil, fmt.Errorf("etcd: start member %q in %s: %w", o.Name, o.Dir, err)
	}
	s := &Server{
		etcd: e, clients: clients, port: port, endpoint: cfg.AdvertiseClientUrls[0].String(), options: o, log: o.Log,
		failed: make(chan error, 1), stopped: make(chan struct{}), done: make(chan struct{}), quotaDone: make(chan struct{}),
	}
	quota, stop := context.WithCancel(context.Background())
	s.stopQuota = stop
	go s.watch()
	go s.watchQuota(quota)
	return s, nil
}

// startMember starts the member. For unreadable files etcd panics or ends the process; startMember returns an error that an
// operator understands.
func (o Options) startMember(cfg *embed.Config) (e *embed.Etcd, err error) {
	g := &giveUp{log: o.Log}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(g.logger())
	err = g.guard(func() (err error) {
		if err := checkFiles(o.Dir); err != nil {
			return err
		}
		if err := o.followTLS(g.logger()); err != nil {
			return err
		}
		e, err = embed.StartEtcd(cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := o.followFiles(e.Server); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// watch turns the end of the member into an error. Started by Start, ends with the member or Stop; owns failed.
func (s *Server) watch() {
	defer close(s.done)
	var err error
	select {
	case <-s.stopped:
		return
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
	}
	s.stopQuota()
	if isClosed(s.etcd.Server.StoppingNotify()) { // its listeners also fail, without a useful reason
		<-s.etcd.Server.StopNotify()
		if isClosed(s.stopped) {
			return
		}
		err = s.whyStopped(context.Background())
	}
	if !isClosed(s.stopped) {
		s.failed <- fmt.Errorf("etcd: member died: %w", err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Ready is closed when the member has joined a cluster with a leader.
func (s *Server) Ready() <-chan struct{} { return s.etcd.Server.ReadyNotify() }

// Err returns the channel of the one fatal error after which the broker has to end.
func (s *Server) Err() <-chan error { return s.failed }

// Wait waits until the member is ready and accepts writes; Options.Waiting receives the reasons. It returns ErrStopped or
// ErrRemoved if the member ends before.
func (s *Server) Wait(ctx context.Context) error {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.options.Waiting != nil {
		jobs.Go(func() { s.notifyMissing(until) })
	}
	jobs.Go(func() { s.requestEntries(until) })
	select {
	case <-s.Ready():
		s.awaitSpace(ctx)
		return nil
	case <-s.etcd.Server.StopNotify():
		return s.whyStopped(ctx)
	case <-ctx.Done():
		return fmt.Errorf("etcd: no majority of members yet: %w", ctx.Err())
	}
}

// Endpoints returns the client URL of this member.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Local returns the URL at which this process reaches its own member, without TLS.
func (s *Server) Local() string {
	if s.port == nil {
		return s.endpoint
	}
	return "unix://" + s.port.socket
}

// Connections returns the numbers of connections at the client and peer ports of a member that Open has started.
func (s *Server) Connections() (clients, peers peertls.Counts) {
	if s.port == nil {
		return clients, peers
	}
	return s.port.gate.Counts(), s.options.front.gate.Counts()
}

// memberID returns this member's id for membership requests.
func (s *Server) memberID() uint64 { return uint64(s.etcd.Server.MemberID()) }

// Leads reports whether this member is the leader of the metadata cluster.
func (s *Server) Leads() bool { return s.etcd.Server.Leader() == s.etcd.Server.MemberID() }

// Status is the state of this member and its database.
type Status struct {
	Leads, HasLeader          bool
	DatabaseBytes, InUseBytes int64
	QuotaBytes                int64 // at this size the database refuses all writes
	Refuses                   bool  // the database of a member is full: all members refuse writes
}

// Status queries only this member.
func (s *Server) Status() Status {
	e := s.etcd.Server
	st := Status{Leads: s.Leads(), HasLeader: e.Leader() != 0, QuotaBytes: s.options.quota, Refuses: len(s.full()) > 0}
	if b := e.Backend(); b != nil {
		st.DatabaseBytes, st.InUseBytes = b.Size(), b.SizeInUse()
	}
	return st
}

// TransferLeadership transfers the leadership of the metadata cluster to another member, if this one is the leader. It returns
// when the other member leads, or after two election timeouts. Only the first call has an effect. Requests in progress may be
// lost: a stopping broker calls it before it sends any.
func (s *Server) TransferLeadership() error {
	if isClosed(s.etcd.Server.StopNotify()) {
		return ErrStopped
	}
	var err error
	s.transferred.Do(func() { err = s.transfer() })
	return err
}

// transfer transfers etcd's leadership to another member. It waits longer than raft, which gives up after one election
// timeout, but less long than etcd, which waits 5 s for a member that stops at the same time.
func (s *Server) transfer() error {
	answer := make(chan error, 1)
	go func() { answer <- s.etcd.Server.TryTransferLeadershipOnShutdown() }() // ends with the member at the latest
	err := errors.New("no member accepts it")
	select {
	case err = <-answer:
	case <-time.After(2 * s.options.Election):
	}
	if err != nil {
		return fmt.Errorf("etcd: transfer the leadership: %w", err)
	}
	return nil
}

// Stop transfers the leadership, ends the member and waits until its files are closed. A second call waits for the first.
func (s *Server) Stop() {
	s.stop.Do(func() {
		close(s.stopped)
		s.stopQuota()
		<-s.quotaDone // before the database closes
		if err := s.TransferLeadership(); err != nil && !errors.Is(err, ErrStopped) {
			s.log.WithError(err).Info("cannot transfer the leadership of the metadata: its members elect a leader")
		}
		s.etcd.Server.HardStop()
		// The ports first: gRPC's stop would wait for connections.
		if s.options.front != nil {
			s.options.front.close()
		}
		s.port.close()
		s.clients.stop()
		s.closeEtcd()
		<-s.done
	})
}

// closeTimeout bounds the wait for etcd's goroutines for connections; the member's files are closed before.
const closeTimeout = 5 * time.Second

// closeEtcd ends what is left of etcd after its server has stopped.
func (s *Server) closeEtcd() {
	closed := make(chan struct{})
	go func() { s.etcd.Close(); close(closed) }() // ends with etcd's connections
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		s.log.Warn("connections of the embedded etcd did not end, stopping without waiting for them")
	}
}
