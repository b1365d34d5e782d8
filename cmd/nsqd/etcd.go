package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// nameLinger is how much longer than its lease the registration of a dead broker may be
// visible.
const nameLinger = 2 * time.Second

// startEtcd starts the embedded member according to the life cycle of members. It returns when
// its cluster has a leader and this member votes.
func (p *process) startEtcd(ctx context.Context) (err error) {
	p.standby.step("querying the other members of the metadata")
	if p.etcd, err = etcd.Open(ctx, p.etcdOptions()); err != nil {
		return err
	}
	p.watch(p.etcd.Err())
	p.countPeers()
	p.standby.step("waiting for a majority of the metadata's members")
	if err := p.etcd.Wait(ctx); err != nil {
		return err
	}
	p.standby.step("waiting to be made a voting member of the metadata")
	if err := p.etcd.Promote(ctx); err != nil {
		return err
	}
	if err := p.etcd.PublishAddress(ctx); err != nil { // two members that swapped addresses wait for each other's
		p.log.WithError(err).Warn("the other members still have an old address of this broker's embedded etcd")
	}
	return nil
}

func (p *process) etcdOptions() etcd.Options {
	return etcd.Options{
		Name: p.o.NodeName, Dir: filepath.Join(p.dir, "etcd"),
		ClientAddress: p.o.EtcdClientAddress, PeerAddress: p.o.EtcdPeerAddress,
		AdvertiseClientAddress: reachable(p.o.EtcdClientAddress, p.o.BroadcastAddress),
		InitialCluster:         p.o.EtcdInitialCluster, ClusterToken: p.o.ClusterName,
		Node: p.nodeFile, Absent: p.o.EtcdFoundWithout, NameTaken: p.nameTaken, Waiting: p.standby.sayIfLong,
		TLS:   etcd.TLS{Cert: p.o.RPCTLSCert, Key: p.o.RPCTLSKey, CA: p.o.RPCTLSCA},
		Names: p.names, Connections: p.files.etcd,
		Heartbeat: p.o.EtcdHeartbeat(), Election: p.o.EtcdElectionTimeout, Log: p.log,
	}
}

// nameTaken refuses to join a cluster in which a live broker has this one's name. The
// registration of a dead broker ends with its lease.
func (p *process) nameTaken(ctx context.Context, c *clientv3.Client) error {
	key := metadata.Keys{Cluster: p.o.ClusterName}.Live(ident.Node(p.o.NodeName))
	for wait := (nameWait{most: p.o.SessionTTL + nameLinger}); ; {
		asked := time.Now()
		r, err := c.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("check whether %s runs: %w", p.o.NodeName, err)
		}
		if len(r.Kvs) == 0 {
			return nil
		}
		if wait.over(asked, time.Now(), r.Header.RaftTerm) {
			return fmt.Errorf("%w: the cluster has a live broker %s: this broker needs a --node-name of its own", etcd.ErrOptions, p.o.NodeName)
		}
		if !concurrency.Sleep(ctx, nameTakenPoll) {
			return ctx.Err()
		}
	}
}

// nameWait measures for how long a registration has stayed although its lease ran. A new leader of the
// metadata begins all leases anew, and one that stands still ends none.
type nameWait struct {
	most  time.Duration
	term  uint64
	since time.Time
}

// slowMetadata is the time of an answer from which on leases may have stood still.
const slowMetadata = time.Second

// over takes an answer with the registration, and reports whether its broker lives.
func (w *nameWait) over(asked, answered time.Time, term uint64) bool {
	if term != w.term || answered.Sub(asked) >= slowMetadata {
		w.term, w.since = term, answered
	}
	return answered.Sub(w.since) > w.most
}

// nameTakenPoll is the pause between two reads of a registration that is about to end.
const nameTakenPoll = 100 * time.Millisecond

// reachable returns the address at which others reach a listener: the advertised host, if it
// listens on all interfaces.
func reachable(address, host string) string {
	h, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(h); h != "" && (ip == nil || !ip.IsUnspecified()) {
		return address
	}
	return net.JoinHostPort(host, port)
}
