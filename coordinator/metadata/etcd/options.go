package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

const (
	defaultHeartbeat   = 30 * time.Millisecond
	defaultElection    = 300 * time.Millisecond
	maxTxnOps          = 2048      // coordinator/metadata's EmbeddedMaxTxn: one transaction changes the leaders of many partitions
	defaultConnections = 64        // per port; a member has about eight connections to another member
	quotaBytes         = 512 << 20 // size limit of the database, which the disk reserve has to cover; 10,000 partitions take about 10 MB
	historyKept        = "10m"     // how long history is kept, so that a slow watch can catch up without reading all keys again
	// entriesKept is the number of transactions after which etcd's log is compacted; half as many remain for a slow
	// member. All of them are in memory, and a transaction that moves 125 partitions takes 50 kB.
	entriesKept = 2000
	// bcryptCost is the lowest possible: only members for development and tests require passwords (RequireLogin), and every
	// reconnection logs in.
	bcryptCost = 4
	// minPing is the least interval at which brokers may ping; etcd would close their connections below 5 s.
	minPing = 500 * time.Millisecond
)

// ErrOptions means that the options contradict each other or name no address.
var ErrOptions = errors.New("etcd: bad options")

func (o Options) embedConfig() (*embed.Config, error) {
	o.setDefaults()
	client, peer, err := o.urls()
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = o.Name, o.Dir
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{client.listen}, []url.URL{peer.listen}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{client.advertise}, []url.URL{peer.advertise}
	c.InitialCluster, c.InitialClusterToken = o.InitialCluster, o.ClusterToken
	if o.InitialCluster == "" {
		c.InitialCluster = o.Name + "=" + peer.advertise.String()
	}
	c.ForceNewCluster = o.forceNew
	c.TickMs, c.ElectionMs = uint(o.Heartbeat.Milliseconds()), uint(o.Election.Milliseconds())
	c.MaxTxnOps, c.QuotaBackendBytes = o.MaxTxnOps, o.quota
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, historyKept
	c.SnapshotCount, c.SnapshotCatchUpEntries = entriesKept, entriesKept/2
	c.GRPCKeepAliveMinTime = minPing
	c.BcryptCost = bcryptCost
	c.EnableGRPCGateway = false // no client uses JSON; saves start-up time
	c.ClientTLSInfo, c.PeerTLSInfo = o.TLS.transport(), o.TLS.transport()
	return c, nil
}

func (o *Options) setDefaults() {
	o.Heartbeat, o.Election = cmp.Or(max(o.Heartbeat, 0), defaultHeartbeat), cmp.Or(max(o.Election, 0), defaultElection)
	o.MaxTxnOps, o.quota, o.quotaEvery = cmp.Or(o.MaxTxnOps, maxTxnOps), cmp.Or(o.quota, quotaBytes), cmp.Or(o.quotaEvery, quotaEvery)
	o.answerTimeout, o.promptAnswer = cmp.Or(o.answerTimeout, askTimeout), cmp.Or(o.promptAnswer, promptAnswer)
	o.Connections = cmp.Or(o.Connections, peertls.Limits{Admitted: defaultConnections, Waiting: defaultConnections})
	o.ClusterToken = cmp.Or(o.ClusterToken, "lockstep")
	o.Log = cmp.Or[logrus.FieldLogger](o.Log, logrus.StandardLogger())
}

// endpoint is one port: its listening address and its advertised one.
type endpoint struct{ listen, advertise url.URL }

func (o Options) urls() (client, peer endpoint, err error) {
	if o.Name == "" || o.Dir == "" {
		return client, peer, fmt.Errorf("%w: name and directory are required", ErrOptions)
	}
	if client.listen, err = o.url("client address", o.ClientAddress); err != nil {
		return client, peer, err
	}
	if peer.listen, err = o.url("peer address", o.PeerAddress); err != nil {
		return client, peer, err
	}
	client.advertise, peer.advertise = client.listen, peer.listen
	if o.AdvertiseClientAddress != "" {
		if client.advertise, err = o.url("advertised client address", o.AdvertiseClientAddress); err != nil {
			return client, peer, err
		}
	}
	if o.InitialCluster != "" {
		peer.advertise, err = memberURL(parseMembers(o.InitialCluster), o.Name)
	}
	return client, peer, err
}

func (o Options) url(what, address string) (url.URL, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return url.URL{}, fmt.Errorf("%w: %s %q: %v", ErrOptions, what, address, err)
	}
	return url.URL{Scheme: o.TLS.scheme(), Host: address}, nil
}

// parseMembers reads n1=http://host:port,n2=….
func parseMembers(cluster string) lifecycle.Members {
	members := lifecycle.Members{}
	for item := range strings.SplitSeq(cluster, ",") {
		if name, address, ok := strings.Cut(strings.TrimSpace(item), "="); ok {
			members[name] = address
		}
	}
	return members
}

// memberURL returns one member's address.
func memberURL(members lifecycle.Members, name string) (url.URL, error) {
	address, ok := members[name]
	if !ok {
		return url.URL{}, fmt.Errorf("%w: initial cluster %q does not name member %q", ErrOptions, members, name)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return url.URL{}, fmt.Errorf("%w: initial cluster: %q is not a URL", ErrOptions, address)
	}
	return *u, nil
}

func (t TLS) transport() transport.TLSInfo {
	if t == (TLS{}) {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.CA != ""}
}
