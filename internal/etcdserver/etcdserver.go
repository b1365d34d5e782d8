// Package etcdserver runs an etcd member inside the broker's process: the
// metadata store of a cluster whose operators have none of their own.
//
// It knows nothing of what Lockstep keeps there (coordinator/meta does) and
// gives no client. It starts the member it is told to be, and changes the
// membership only to bring a member back that lost its directory (Rejoin), or
// took it to another address (TellAddress).
//
// Invariants:
//
//  1. A directory that holds a member is restarted as that member; the initial
//     cluster in Options is then only remembered, never applied again.
//  2. Stop returns only when the member's files are closed.
//  3. After a fatal error the member is dead for good: Err says so once, and the
//     broker ends (a broker whose etcd died is a dead broker to the others).
//     etcd itself ends the process when its write-ahead log fails.
//  4. Only StartAlone, on an operator's word, makes a cluster of a minority.
//  5. Who has no directory founds a cluster only with others that have none (Rejoin):
//     under its old identity it would deny what it promised.
//  6. A member that joins runs only under the identity it was added with; it asks
//     a majority, and nobody else, which that is.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// privateDir: values may carry addresses and, with authentication on, hashes.
const privateDir = 0o700

// ErrStopped means that the member ended before it was ready.
var ErrStopped = errors.New("etcdserver: stopped")

// ErrRemoved means that the others do not know this member any more.
var ErrRemoved = errors.New("etcdserver: this member was taken out of its cluster (the broker was decommissioned, or came back " +
	"with another disk); if it is to join again, start it with an empty data path")

// ErrDamaged means that the member cannot read its own files.
var ErrDamaged = errors.New("its files are damaged; if other brokers run, move the directory away and start again " +
	"(the broker joins them anew), else restore the data path from a backup")

// Options say which member this is. Name, Dir, ClientAddress and PeerAddress
// are required.
type Options struct {
	Name          string // of the member: the broker's node name
	Dir           string // created if it is not there
	ClientAddress string // host:port to listen on; the host is an IP address or localhost
	PeerAddress   string // likewise, for the other members
	// AdvertiseClientAddress is what the other brokers are told; "" = ClientAddress.
	AdvertiseClientAddress string
	// InitialCluster lists all members, this one included: n1=http://host:port,….
	// "" = this one alone. What it says of this member is what it advertises.
	InitialCluster string
	ClusterToken   string // keeps clusters apart that reach each other by mistake
	TLS            TLS
	alone          bool          // forget the other members; by StartAlone
	Heartbeat      time.Duration // 0 = 30 ms
	Election       time.Duration // 0 = 300 ms; at least 5 × Heartbeat
	MaxTxnOps      uint          // of one transaction; 0 = 2048
	quota          int64         // bytes of the database; 0 = 512 MiB
	roomEvery      time.Duration // 0 = 5 s
	Log            logrus.FieldLogger
}

// TLS names the files for both ports; all empty means plain text. Members
// authenticate each other by CA; clients must show a certificate of it too.
type TLS struct{ Cert, Key, CA string }

// Server is a running member.
type Server struct {
	etcd     *embed.Etcd
	clients  *listeners
	endpoint string
	options  Options
	tls      TLS
	log      logrus.FieldLogger
	failed   chan error
	handOver sync.Once
	stop     sync.Once
	stopped  chan struct{} // closed when Stop has begun
	done     chan struct{} // closed when the watcher goroutine has ended
	roomDone chan struct{} // likewise, of keepRoom
}

// Exists says whether dir holds a member already. Without its log it is none: it does
// not know what it promised.
func Exists(dir string) bool { return wal.Exist(logDir(dir)) }

// Start starts the member and returns without waiting for the others: a cluster
// is ready when a majority runs (Wait).
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
		return nil, fmt.Errorf("etcdserver: create directory: %w", err)
	}
	clients := &listeners{}
	cfg.ServiceRegister = clients.add
	e, err := o.startMember(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcdserver: start member %q in %s: %w", o.Name, o.Dir, err)
	}
	s := &Server{
		etcd: e, clients: clients, endpoint: cfg.AdvertiseClientUrls[0].String(), options: o, tls: o.TLS, log: o.Log,
		failed: make(chan error, 1), stopped: make(chan struct{}), done: make(chan struct{}),
		roomDone: make(chan struct{}),
	}
	go s.watch()
	go s.keepRoom()
	return s, nil
}

// startMember starts the member. etcd panics on files that it cannot read; an
// operator needs a sentence.
func (o Options) startMember(cfg *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	if err := checkFiles(o.Dir); err != nil {
		return nil, err
	}
	if err := o.followTLS(); err != nil {
		return nil, err
	}
	return embed.StartEtcd(cfg)
}

// watch turns the end of the member into an error. Started by Start, ends with
// the member or Stop; owns failed.
func (s *Server) watch() {
	defer close(s.done)
	var err error
	select {
	case <-s.stopped:
		return
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		select {
		case <-s.stopped: // our own doing
			return
		default:
			err = s.whyStopped(context.Background())
		}
	}
	select {
	case <-s.stopped: // our own doing
	default:
		s.failed <- fmt.Errorf("etcdserver: member died: %w", err)
	}
}

// Ready is closed when the member has joined a cluster with a leader.
func (s *Server) Ready() <-chan struct{} { return s.etcd.Server.ReadyNotify() }

// Err gives the one fatal error after which the broker has to end.
func (s *Server) Err() <-chan error { return s.failed }

// Wait blocks until the member is ready and takes writes; it gives ErrStopped, or
// ErrRemoved, if the member ends before.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.Ready():
		s.awaitRoom(ctx)
		return nil
	case <-s.etcd.Server.StopNotify():
		return s.whyStopped(ctx)
	case <-ctx.Done():
		return fmt.Errorf("etcdserver: no majority of members yet: %w", ctx.Err())
	}
}

// Endpoints gives the URL of this member for clients.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// MemberID is this member's id, as membership requests want it.
func (s *Server) MemberID() uint64 { return uint64(s.etcd.Server.MemberID()) }

// Leads says whether this member is the leader of the metadata cluster.
func (s *Server) Leads() bool { return s.etcd.Server.Leader() == s.etcd.Server.MemberID() }

// HandOver gives the leadership of the metadata cluster to another member, if
// this one has it and there is another; it returns when that one leads, or after
// two election timeouts. It is tried once in a member's life. Requests that are under way at that
// moment may be lost: a broker that stops does this before it causes any.
func (s *Server) HandOver() error {
	select {
	case <-s.etcd.Server.StopNotify():
		return ErrStopped
	default:
	}
	var err error
	s.handOver.Do(func() { err = s.giveAway() })
	return err
}

// giveAway waits longer than raft, which gives up after one election timeout, and
// less than etcd, which waits 5 s for a member that stops at the same time.
func (s *Server) giveAway() error {
	answer := make(chan error, 1)
	go func() { answer <- s.etcd.Server.TryTransferLeadershipOnShutdown() }() // ends with the member at the latest
	err := errors.New("nobody takes it")
	select {
	case err = <-answer:
	case <-time.After(2 * s.options.Election):
	}
	if err != nil {
		return fmt.Errorf("etcdserver: hand the leadership over: %w", err)
	}
	return nil
}

// Stop hands the leadership over, ends the member and waits until its files are
// closed. A second call waits for the first.
func (s *Server) Stop() {
	s.stop.Do(func() {
		close(s.stopped)
		<-s.roomDone // before the database is closed
		if err := s.HandOver(); err != nil && !errors.Is(err, ErrStopped) {
			s.log.WithError(err).Info("the metadata cluster has to elect a leader")
		}
		s.etcd.Server.HardStop()
		s.clients.stop()
		s.etcd.Close()
		<-s.done
	})
}
