package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

const (
	// metadataTimeout bounds one request to the metadata.
	metadataTimeout = 2 * time.Second
	// retryMetadataEvery is the pause between requests without an answer.
	retryMetadataEvery = 500 * time.Millisecond
)

type metadataStore struct {
	etcd   *etcd.Server    // the embedded member; nil with an external etcd
	config metadata.Config // of store, without the password
	store  *metadata.Etcd
}

// openMetadata connects to the external etcd, or starts the embedded member and waits until its cluster has a leader.
func (p *process) openMetadata(ctx context.Context) (err error) {
	c := metadata.Config{Endpoints: p.o.EtcdEndpoints, Username: p.o.EtcdUsername}
	if p.o.EmbedsEtcd() {
		if err = p.startEtcd(ctx); err != nil {
			return err
		}
		c.Endpoints = []string{p.meta.etcd.Local()}
	} else if c.TLS, err = externalTLS(p.o, p.log); err != nil {
		return err
	}
	p.meta.config = c
	p.clients.standby.step("connecting to the metadata")
	for {
		password, err := secret(p.o.EtcdPassword, p.o.EtcdPasswordFile) // read for each attempt: the file may be at fault
		if err != nil {
			return err
		}
		c.Password = string(password)
		if p.meta.store, err = metadata.DialEtcd(ctx, c); err == nil || !answered(err) || ctx.Err() != nil {
			return err
		}
		p.clients.standby.say(p.whyNoMetadata(ctx, err))
		concurrency.Sleep(ctx, retryMetadataEvery)
	}
}

// answered reports whether the etcd itself refused a login: a fault of the settings does not go away. Any other
// failure is one of the connection.
func answered(err error) bool {
	_, known := errors.AsType[rpctypes.EtcdError](err)
	_, remote := status.FromError(err)
	return known || remote || errors.Is(err, context.DeadlineExceeded)
}

func (p *process) awaitMetadata(ctx context.Context) error {
	for {
		err := p.askMetadata(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, metadata.ErrWentBack) {
			return err
		}
		p.clients.standby.say(p.whyNoMetadata(ctx, err))
		concurrency.Sleep(ctx, retryMetadataEvery)
	}
}

// askMetadata reads this broker's key in the metadata, which need not exist.
func (p *process) askMetadata(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	_, err := p.meta.store.Get(ask, metadata.Keys{Cluster: p.o.ClusterName}.Node(ident.Node(p.o.NodeName)))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	return err
}

// whyNoMetadata returns a sentence that says why the metadata store does not answer; err is the error of a request of
// this broker.
func (p *process) whyNoMetadata(ctx context.Context, err error) string {
	if p.meta.etcd != nil {
		return p.meta.etcd.Missing(ctx)
	}
	why := "waiting for the metadata: " + withoutOwnPorts(err)
	if path := p.meta.config.Explain(ctx); path != nil {
		why += "; " + withoutOwnPorts(path)
	}
	return why
}

// withoutOwnPorts returns an error as one line, without the local ports of connections, so that the same fault has the
// same text.
func withoutOwnPorts(err error) string {
	return ownPort.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", "; "), "")
}

var ownPort = regexp.MustCompile(`[0-9.]+:[0-9]+->|\[[0-9a-f:]+\]:[0-9]+->`)

const (
	// nameLinger is how much longer than its lease the registration of a dead broker may be visible.
	nameLinger = 2 * time.Second
	// nameTakenEvery is the pause between two reads of a registration that is about to end.
	nameTakenEvery = 100 * time.Millisecond
	// slowMetadata is the time of an answer from which on leases may have stood still.
	slowMetadata = time.Second
)

// startEtcd starts the embedded member according to the life cycle of members. It returns when its cluster has a leader
// and this member votes.
func (p *process) startEtcd(ctx context.Context) (err error) {
	standby := p.clients.standby
	standby.step("querying the other members of the metadata")
	if p.meta.etcd, err = etcd.Open(ctx, p.etcdOptions()); err != nil {
		return err
	}
	p.watch(p.meta.etcd.Err())
	p.countPeers()
	standby.step("waiting for a majority of the metadata's members")
	if err := p.meta.etcd.Wait(ctx); err != nil {
		return err
	}
	standby.step("waiting to be made a voting member of the metadata")
	if err := p.meta.etcd.Promote(ctx); err != nil {
		return err
	}
	if err := p.meta.etcd.PublishAddress(ctx); err != nil { // two members that swapped addresses wait for each other's
		p.log.WithError(err).Warn("the other members still have an old address of this broker's embedded etcd")
	}
	return nil
}

func (p *process) etcdOptions() etcd.Options {
	return etcd.Options{
		Name: p.o.NodeName, Dir: filepath.Join(p.data.dir, "etcd"),
		ClientAddress: p.o.EtcdClientAddress, PeerAddress: p.o.EtcdPeerAddress,
		AdvertiseClientAddress: reachable(p.o.EtcdClientAddress, p.o.BroadcastAddress),
		InitialCluster:         p.o.EtcdInitialCluster, ClusterToken: p.o.ClusterName,
		Node: p.data.node, Absent: p.o.EtcdFoundWithout, NameTaken: p.nameTaken, Waiting: p.clients.standby.sayIfLong,
		TLS:   etcd.TLS{Cert: p.o.RPCTLSCert, Key: p.o.RPCTLSKey, CA: p.o.RPCTLSCA},
		Names: p.peers.names, Connections: p.files.etcd,
		Heartbeat: p.o.EtcdHeartbeat(), Election: p.o.EtcdElectionTimeout, Log: p.log,
	}
}

// nameTaken refuses to join a cluster in which a live broker has this one's name. The registration of a dead broker
// ends with its lease.
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
		if !concurrency.Sleep(ctx, nameTakenEvery) {
			return ctx.Err()
		}
	}
}

// nameWait measures how long a registration has outlived its lease. Time under a new leader of the metadata, which
// restarts all leases, or under a stalled one, which ends none, does not count.
type nameWait struct {
	most  time.Duration
	term  uint64
	since time.Time
}

// over takes an answer with the registration, and reports whether its broker lives.
func (w *nameWait) over(asked, answered time.Time, term uint64) bool {
	if term != w.term || answered.Sub(asked) >= slowMetadata {
		w.term, w.since = term, answered
	}
	return answered.Sub(w.since) > w.most
}

// countPeers shows the connections at the ports of the embedded etcd as metrics.
func (p *process) countPeers() {
	for i, port := range []string{"client", "peer"} {
		counts := func() peertls.Counts {
			clients, peers := p.meta.etcd.Connections()
			return []peertls.Counts{clients, peers}[i]
		}
		p.metrics.Gauge("etcd_"+port+"_connections", func() float64 { return float64(counts().Admitted) })
		p.metrics.Gauge("etcd_"+port+"_handshakes", func() float64 { return float64(counts().Waiting) })
		p.metrics.Counter("etcd_"+port+"_refused_connections_total", func() float64 {
			c := counts()
			return float64(c.Displaced + c.Refused)
		})
	}
}
