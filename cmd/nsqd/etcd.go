package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// askOthersTimeout bounds the question whether this data path is an old copy. A
// running cluster answers at once; one that starts as a whole has no leader yet
// and cannot, and must not be waited for.
const askOthersTimeout = 500 * time.Millisecond

// startEtcd starts the embedded member and returns when its cluster has a leader
// and this member votes. A member that lost its directory, or has an old copy of
// it, comes back as a new one: it must not deny what it promised.
func (p *process) startEtcd(ctx context.Context) error {
	o := p.etcdOptions()
	if err := p.setOldMemberAside(ctx, o); err != nil {
		return err
	}
	joined, err := etcdserver.Rejoin(ctx, o)
	if err != nil {
		return err
	}
	if joined {
		p.log.Warn("the cluster runs without this broker's metadata directory: joining as a new member")
	}
	if p.etcd, err = etcdserver.Start(ctx, o); err != nil {
		return err
	}
	p.log.Info("waiting for a majority of the embedded etcd")
	if err := p.etcd.Wait(ctx); err != nil {
		return err
	}
	if err := p.etcd.Promote(ctx); err != nil {
		return err
	}
	if err := p.etcd.TellAddress(ctx); err != nil { // two that changed places wait for each other's
		p.log.WithError(err).Warn("the other members have an old address of this one's embedded etcd")
	}
	return nil
}

func (p *process) etcdOptions() etcdserver.Options {
	return etcdserver.Options{
		Name: p.o.NodeName, Dir: filepath.Join(p.dir, "etcd"),
		ClientAddress: p.o.EtcdClientAddress, PeerAddress: p.o.EtcdPeerAddress,
		AdvertiseClientAddress: reachable(p.o.EtcdClientAddress, p.o.BroadcastAddress),
		InitialCluster:         p.o.EtcdInitialCluster, ClusterToken: p.o.ClusterName,
		TLS:       etcdserver.TLS{Cert: p.o.RPCTLSCert, Key: p.o.RPCTLSKey, CA: p.o.RPCTLSCA},
		Heartbeat: p.o.EtcdHeartbeat, Election: p.o.EtcdElectionTimeout, Log: p.log,
	}
}

// setOldMemberAside moves the member's directory away if the others know of a
// higher boot counter of this broker than its data path does: it was restored from
// a copy, and a member with an old log breaks its cluster. What is not answered
// in time counts as "no": the broker's own check comes later and is strict.
func (p *process) setOldMemberAside(ctx context.Context, o etcdserver.Options) error {
	if !etcdserver.Exists(o.Dir) {
		return nil
	}
	node := ident.Node(p.o.NodeName)
	own, err := coordinator.Boots(vfs.OS{}, p.dir, p.o.ClusterName, node)
	if err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, askOthersTimeout)
	value, err := etcdserver.AskOthers(ask, o, meta.Keys{Cluster: p.o.ClusterName}.Node(node))
	cancel()
	if err != nil || value == nil {
		return nil
	}
	known, err := meta.DecodeNode(meta.Entry{Value: value})
	if err != nil || known.Boot <= own {
		return err
	}
	aside := fmt.Sprintf("%s.restored-%d", o.Dir, time.Now().Unix())
	p.log.Warnf("the boot counter of this data path is %d, the cluster's is %d: it is an old copy; its metadata directory goes to %s",
		own, known.Boot, aside)
	return os.Rename(o.Dir, aside)
}

// reachable is the address under which others find what listens at address: the
// host that is told to them, if it listens everywhere.
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
