package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/observe/tracing"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

func (p *process) serverOptions() listen.Options {
	l := limitClients(p.files, p.o)
	return listen.Options{
		Addresses: [4]string{listen.TCP: p.o.TCPAddress, listen.HTTP: p.o.HTTPAddress, listen.HTTPS: p.o.HTTPSAddress, listen.Lookup: p.o.LookupdHTTPAddress},
		TLS:       p.clients.tls, MaxTCP: l.tcp, MaxHTTP: l.http,
		MaxTCPPerAddress: l.tcpPerAddress, MaxHTTPPerAddress: l.httpPerAddress, SpareHTTP: l.spare, Farewells: l.farewells,
		MaxTCPWaiting: l.tcpWaiting, MaxHTTPWaiting: l.httpWaiting,
		Ready: func() bool { return p.clients.guard.Ready() == nil },
		// A client that must show a certificate has not done so when it connects.
		Open:         func() bool { return p.clients.guard.Open() && p.o.TLSClientAuthPolicy == "" },
		LoginTimeout: p.o.LoginTimeout, Metrics: p.metrics, Log: p.log,
	}
}

func (p *process) brokerOptions() (coordinator.Options, error) {
	o := p.o
	size := o.ClusterSize()
	token, err := secret(o.ClusterToken, o.ClusterTokenFile)
	if err != nil {
		return coordinator.Options{}, err
	}
	var members metadata.Members // Lockstep must not change the members of an external etcd
	if p.meta.etcd != nil {
		members = p.meta.etcd
	}
	return coordinator.Options{
		Cluster: o.ClusterName, Node: p.nodeState(),
		NodeFile: p.data.node, Mark: func() (nodefile.Marks, error) { return nodefile.Mark(p.data.dir) }, OnlyMember: o.EmbedsEtcd() && size == 1,
		FS: vfs.OS, Dir: p.data.dir, BootID: bootID(), NoSync: o.Durability == string(metadata.DurabilityReplicated),
		Linger: o.Linger, CatchUpRate: o.CatchUpRate, SegmentBytes: o.MaxBytesPerFile, OpenFiles: p.files.store,
		Meta: p.meta.store, Members: members, Listen: p.peers.port, TLS: p.peers.tls(), Token: token, Connections: p.files.rpc,
		SessionTTL: o.SessionTTL,
		Topics: admin.Defaults{
			Partitions: o.Partitions, ReplicationFactor: o.Replicas(size), MinInSync: o.InSync(o.Replicas(size)),
			Durability: metadata.Durability(o.Durability), AutoCreate: o.AutoCreateTopics, Hold: o.LeaderHold,
			DeleteGrace: o.DeleteGrace, ByName: o.TopicDefaults(), KnownChannels: p.lookupdChannels,
			Options: o.TopicOptions(),
		},
		Maintenance: maintenance.Settings{
			MinFreeBytes: o.MinFreeDiskBytes, MaxDiskBytes: o.MaxDiskBytes, TrashGrace: o.TrashGrace, DeleteEarly: o.DeleteEarly,
			MayPublish: p.mayPublish,
		},
		Limits: quota.Limits{Topics: o.MaxTopics, Partitions: o.MaxPartitions, Channels: o.MaxChannels}, NoteCreation: p.clients.guard.Note,
		Replica: replica.Options{
			ISRMS: o.ReplicaTimeout.Milliseconds(), HoldMS: o.LeaderHold.Milliseconds(),
			WriteMS: o.WriteTimeout.Milliseconds(), GraceMS: o.RollbackGrace().Milliseconds(),
		},
		Queue: nsqd.Options{
			MsgTimeoutMS: o.MsgTimeout.Milliseconds(), MaxMsgTimeoutMS: o.MaxMsgTimeout.Milliseconds(),
			MaxReqTimeoutMS: o.MaxReqTimeout.Milliseconds(), EphemeralDepth: max(1, o.MemQueueSize),
			Percentiles: o.E2EPercentiles, PercentileWindowMS: o.E2EProcessingWindowTime.Milliseconds(), Log: p.log,
		},
		Gateway: gateway.Options{PutLimit: o.PutHold, Hold: o.LeaderHold, MaxConsumers: o.MaxChannelConsumers, Metrics: p.metrics, Log: p.log},
		Metrics: p.metrics, Events: p.events, Slow: o.LogSlow, Trace: p.stages(),
		RPC: rpc.Times{Heartbeat: o.PeerHeartbeat(), Silent: o.PeerTimeout, Dead: 2 * o.PeerTimeout},
		Log: p.log,
	}, nil
}

// trace begins to export traces if --otlp-endpoint is set.
func (p *process) trace() (err error) {
	if p.o.OTLPEndpoint == "" {
		return nil
	}
	address, plain, err := config.Collector(p.o.OTLPEndpoint)
	if err != nil {
		return err
	}
	p.traces, err = tracing.New(tracing.Options{
		Address: address, Plain: plain, Sample: p.o.TraceSample, Node: p.o.NodeName, Version: api.ReadBuild().Version, MsgTimeout: p.o.MsgTimeout,
		Count: p.metrics.Add, Log: p.log,
	})
	return err
}

// stages returns nil unless puts are traced.
func (p *process) stages() func(*queue.Draft) func(engine.Stages) {
	if p.traces == nil {
		return nil
	}
	return func(d *queue.Draft) func(engine.Stages) {
		stored := p.traces.Store(d)
		if stored == nil {
			return nil
		}
		return func(s engine.Stages) { stored(tracing.Stored(s)) }
	}
}

func (p *process) nodeState() metadata.NodeState {
	host, _ := os.Hostname() // "" is a valid value
	return metadata.NodeState{
		Name: ident.Node(p.o.NodeName), BroadcastAddress: p.o.BroadcastAddress, Hostname: host,
		TCPPort:    cmp.Or(p.o.BroadcastTCPPort, p.clients.sockets.Number(listen.TCP)),
		HTTPPort:   cmp.Or(p.o.BroadcastHTTPPort, p.clients.sockets.Number(listen.HTTP)),
		HTTPSPort:  max(0, p.clients.sockets.Number(listen.HTTPS)),
		RPCAddress: p.peerAddress(), Zone: p.o.TopologyZone, Region: p.o.TopologyRegion, Version: api.Version, Build: api.ReadBuild().Version, Level: metadata.Level,
	}
}

// peerAddress returns the address for other brokers: the listening one, or the broadcast address if it listens on all
// interfaces.
func (p *process) peerAddress() string {
	return reachable(p.peers.port.Addr().String(), p.o.BroadcastAddress)
}

// bootID identifies a boot of the machine; "" where it is unknown.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // missing: unknown
	return strings.TrimSpace(string(b))
}

func (p *process) consoleOptions() console.Options {
	c := &p.clients
	return console.Options{
		Cluster: p.broker.Console, Metrics: p.metrics, Events: p.events, Audit: c.guard.Audit, Started: time.Now(),
		Connections: c.sockets.Connections, Clients: c.count,
		Consumers: func(topic, channel string) []api.ConsumerStats {
			return append(c.tcp.Consumers(topic, channel), c.consumers.Consumers(topic, channel)...)
		},
		Own: p.ownFaults, File: filepath.Join(p.data.dir, console.HistoryFile), Log: p.log,
	}
}

// ownFaults reports the faults of this process's certificates, authorization service and embedded etcd, and its role in
// etcd.
func (p *process) ownFaults() (own health.Own, etcd string) {
	ends, faults := certificates(p.o)
	own.CertificateSeconds, own.CertificateFaults = map[string]float64{}, faults
	for use, end := range ends {
		own.CertificateSeconds[use] = time.Until(end).Seconds()
	}
	own.AuthUnansweredSeconds = p.clients.guard.Unanswered().Seconds()
	if p.meta.etcd == nil {
		return own, "none"
	}
	s := p.meta.etcd.Status()
	own.EtcdInUseBytes, own.EtcdQuotaBytes, own.EtcdRefuses = s.InUseBytes, s.QuotaBytes, s.Refuses
	if s.Leads {
		return own, "leader"
	}
	return own, "member"
}

func (p *process) lookupOptions() lookup.Options {
	return lookup.Options{
		Identity: lookup.Identity{
			Version: api.Version, TCPPort: p.node.TCPPort, HTTPPort: p.node.HTTPPort, Hostname: p.node.Hostname,
			BroadcastAddress: p.node.BroadcastAddress, TopologyZone: p.node.Zone, TopologyRegion: p.node.Region,
		},
		Topics:         func() []api.TopicStats { return p.broker.Inspector.Topics("", "", false) },
		ConnectTimeout: p.o.HTTPConnectTimeout, RequestTimeout: p.o.HTTPRequestTimeout, Log: p.log,
	}
}

func (p *process) lookupdChannels(ctx context.Context, topic string) []string {
	channels, err := p.lookup.Channels(ctx, topic)
	if err != nil {
		p.log.WithError(err).WithField("topic", topic).Warn("cannot query every nsqlookupd for the topic's channels")
	}
	return channels
}

// authorizer returns an untyped nil without auth services.
func (p *process) authorizer() guard.Querier {
	if len(p.o.AuthHTTPAddress) == 0 {
		return nil
	}
	return authd.New(p.o.AuthService, p.clients.authTLS)
}

func (p *process) protocolOptions() tcp.Options {
	o := tcp.DefaultOptions()
	o.Version, o.Messages, o.Connection, o.TLSRequired = api.Version, p.o.Messages, p.o.Connection, p.o.TLSRequired
	o.TopologyRegion, o.TopologyZone = p.o.TopologyRegion, p.o.TopologyZone
	o.MaxPerUser = limitClients(p.files, p.o).perUser
	if p.clients.tls != nil {
		o.TLS = p.clients.tls.Config()
	}
	return o
}

func (p *process) httpOptions() httpapi.Options {
	node, build := p.node, api.ReadBuild()
	return httpapi.Options{StartTime: time.Now(), Messages: p.o.Messages, Connection: p.o.Connection, InfoReply: httpapi.InfoReply{
		Version: api.Version, LockstepVersion: build.Version, Commit: build.Commit, FeatureLevel: metadata.Level, NodeName: p.o.NodeName, Durability: p.o.Durability,
		BroadcastAddress: node.BroadcastAddress, Hostname: node.Hostname, TCPPort: p.clients.sockets.Number(listen.TCP), HTTPPort: p.clients.sockets.Number(listen.HTTP),
		NodeID: p.o.NodeID, TopologyZone: p.o.TopologyZone, TopologyRegion: p.o.TopologyRegion,
	}}
}

// consumerOptions limits HTTP consumers as connections are limited, because a session costs about as much as a
// connection.
func (p *process) consumerOptions() consume.Options {
	l := limitClients(p.files, p.o)
	return consume.Options{
		MaxSessions: l.http, MaxPerClient: l.httpPerAddress, Memory: p.clients.memory,
		RequeueOnDisconnect: p.o.RequeueOnDisconnect, Metrics: p.metrics,
	}
}
