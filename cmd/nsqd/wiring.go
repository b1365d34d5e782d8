package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
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
	"github.com/lockstepmq/lockstep/internal/frontend/webui"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/tracing"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// versionLines names the build, and the supported release of NSQ in the form of a stock nsqd.
func versionLines() string {
	return fmt.Sprintf("%s\nnsqd v%s (the release of NSQ whose protocol and HTTP API it implements)",
		api.ReadBuild().Describe(metadata.Level), api.Version)
}

// startLine is the first line of the log.
func startLine(o config.Options) string {
	return fmt.Sprintf("%s, speaks NSQ %s, durability %s", api.ReadBuild().Describe(metadata.Level), api.Version, o.Durability)
}

// listen binds the sockets for clients and for other brokers.
func (p *process) listen() (err error) {
	o := clientTLS(p.o)
	if p.authTLS, err = o.Client(); err != nil {
		return err
	}
	if p.o.TLSCert != "" {
		if p.tls, err = listen.LoadTLS(o); err != nil {
			return err
		}
	}
	p.sockets, err = listen.Listen(p.serverOptions())
	if err != nil {
		return err
	}
	peers, err := net.Listen("tcp", p.o.RPCAddress)
	if err == nil {
		p.peers = peers.(*net.TCPListener)
	}
	return err
}

func clientTLS(o config.Options) listen.TLSOptions {
	return listen.TLSOptions{
		CertFile: o.TLSCert, KeyFile: o.TLSKey, RootCAFile: o.TLSRootCAFile,
		ClientAuthPolicy: o.TLSClientAuthPolicy, MinVersion: o.TLSMinVersion,
	}
}

func (p *process) serverOptions() listen.Options {
	l := limitClients(p.files, p.o)
	return listen.Options{
		TCPAddress: p.o.TCPAddress, HTTPAddress: p.o.HTTPAddress, HTTPSAddress: p.o.HTTPSAddress,
		LookupHTTPAddress: p.o.LookupdHTTPAddress, TLS: p.tls, MaxTCP: l.tcp, MaxHTTP: l.http,
		MaxTCPPerAddress: l.tcpPerAddress, MaxHTTPPerAddress: l.httpPerAddress, SpareHTTP: l.spare, Farewells: l.farewells,
		MaxTCPWaiting: l.tcpWaiting, MaxHTTPWaiting: l.httpWaiting,
		Ready: func() bool { return p.guard.Ready() == nil },
		// A client that must show a certificate has not done so when it connects.
		Open:         func() bool { return p.guard.Open() && p.o.TLSClientAuthPolicy == "" },
		LoginTimeout: p.o.LoginTimeout, Metrics: p.metrics, Log: p.log,
	}
}

// brokerOptions converts the settings into the coordinator's.
func (p *process) brokerOptions() (coordinator.Options, error) {
	o := p.o
	size := o.ClusterSize()
	token, err := secret(o.ClusterToken, o.ClusterTokenFile)
	if err != nil {
		return coordinator.Options{}, err
	}
	return coordinator.Options{
		Cluster: o.ClusterName, Node: p.nodeState(),
		NodeFile: p.nodeFile, Mark: func() (nodefile.Marks, error) { return nodefile.Mark(p.dir) }, OnlyMember: o.EmbedsEtcd() && size == 1,
		FS: vfs.OS{}, Dir: p.dir, BootID: bootID(), NoSync: o.Durability == string(metadata.DurabilityReplicated),
		Linger:      o.Linger,
		CatchUpRate: o.CatchUpRate,
		TrashGrace:  o.TrashGrace, DeleteGrace: o.DeleteGrace, DeleteEarly: o.DeleteEarly, TopicDefaults: o.TopicDefaults(),
		SegmentBytes: o.MaxBytesPerFile, OpenFiles: p.files.store, MinFreeBytes: o.MinFreeDiskBytes, MaxDiskBytes: o.MaxDiskBytes,
		Meta: p.meta, Members: p.members(), Listen: p.peers, TLS: p.peerTLS(), Token: token, Connections: p.files.rpc,
		SessionTTL: o.SessionTTL, Partitions: o.Partitions,
		ReplicationFactor: o.Replicas(size), MinInSync: o.InSync(o.Replicas(size)),
		TopicOptions: metadata.TopicOptions{
			RetentionMS: o.TopicRetention.Milliseconds(), RetentionBytes: o.TopicRetentionBytes, MaxBytes: o.TopicMaxBytes,
			MaxPutRate: o.TopicMaxPutRate, MaxPutBytesRate: o.TopicMaxPutBytes, IdleMS: o.TopicIdleAfter.Milliseconds(),
			ChannelIdleMS: o.ChannelIdleAfter.Milliseconds(),
		},
		Durability: metadata.Durability(o.Durability), NoAutoCreate: !o.AutoCreateTopics,
		Limits: quota.Limits{Topics: o.MaxTopics, Partitions: o.MaxPartitions, Channels: o.MaxChannels}, NoteCreation: p.guard.Note, MayPublish: p.mayPublish,
		Hold: o.LeaderHold,
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

// nodeState returns this broker's entry in the metadata.
func (p *process) nodeState() metadata.NodeState {
	host, _ := os.Hostname() // "" is a valid value
	return metadata.NodeState{
		Name: ident.Node(p.o.NodeName), BroadcastAddress: p.o.BroadcastAddress, Hostname: host,
		TCPPort:    portOr(p.o.BroadcastTCPPort, p.sockets.TCPAddr()),
		HTTPPort:   portOr(p.o.BroadcastHTTPPort, p.sockets.HTTPAddr()),
		HTTPSPort:  max(0, listen.Port(p.sockets.HTTPSAddr())),
		RPCAddress: p.peerAddress(), Zone: p.o.TopologyZone, Region: p.o.TopologyRegion, Version: api.Version, Build: api.ReadBuild().Version, Level: metadata.Level,
	}
}

// peerAddress returns the address for other brokers: the listening one, or the broadcast
// address if it listens on all interfaces.
func (p *process) peerAddress() string {
	return reachable(p.peers.Addr().String(), p.o.BroadcastAddress)
}

func portOr(told int, a net.Addr) int {
	if told != 0 {
		return told
	}
	return listen.Port(a)
}

// bootID identifies a boot of the machine; "" where it is unknown.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // missing: unknown
	return strings.TrimSpace(string(b))
}

// answer opens the ports for clients. Until serve is called, requests wait, and are answered
// with the reason why the broker does not serve yet when they have waited for too long.
func (p *process) answer() {
	p.standby = newStandby(p.log, p.metrics, p.o.PutHold)
	p.standby.step("reading the data path")
	p.guard = guard.New(guard.Options{Users: p.users, External: p.authorizer(), NotReady: p.standby.why, Answered: p.metrics.Answered, AuditFile: p.auditFile, Log: p.log})
	p.tcp = tcp.New(p.protocolOptions(), tcp.Backend{
		Publisher: p.standby, Subscribers: p.standby, Await: p.standby.await, Guard: p.guard, Metrics: p.metrics, Memory: p.memory, Log: p.log,
	})
	api := p.standby.port(func(b *backends) http.Handler { return b.api })
	h := listen.Handlers{
		TCP: p.tcp, HTTP: api, HTTPS: api,
		Lookup: p.standby.port(func(b *backends) http.Handler { return b.lookup }),
	}
	if p.o.TLSRequired == config.TLSRequiredAll {
		h.HTTP = httpapi.RequireTLS(h.HTTP, listen.Port(p.sockets.HTTPSAddr()))
		h.Lookup = httpapi.RequireTLS(h.Lookup, listen.Port(p.sockets.HTTPSAddr()))
	}
	p.sockets.Start(h)
}

// serve makes the ports for clients use the broker.
func (p *process) serve() {
	if err := lookup.Validate(p.o.LookupdTCPAddress); err != nil {
		p.log.WithError(err).Error("not registering with any nsqlookupd: correct --lookupd-tcp-address")
	} else {
		p.lookup.SetAddresses(p.o.LookupdTCPAddress)
	}
	publisher, subscribers := p.traces.Publisher(p.broker.Publisher()), p.traces.Subscribers(p.broker.Subscribers())
	p.consumers = consume.New(p.consumerOptions(), subscribers, p.broker)
	p.console = console.New(p.consoleOptions())
	p.broker.AnswerConsole(p.console.Answer)
	backend := httpapi.Backend{
		Publisher: publisher, Stats: p.broker.Stats(), Admin: p.broker, Planner: p.broker, Channels: p.broker, Directory: p.broker, Inspector: p.broker, Recovery: p.broker,
		Producers: p.tcp.Producers, Config: &liveConfig{o: p.o, log: p.log, lookup: p.lookup}, Metrics: p.metrics.Handler(), Log: p.log,
		Users: p.users, Admission: p.admission, Guard: p.guard, Browsers: p.browsers(), Console: p.console, Memory: p.memory, Recorder: p.metrics, Consumers: p.consumers, Tracer: p.broker,
	}
	for _, f := range webui.Files() {
		backend.Routes = append(backend.Routes, httpapi.Route{Method: http.MethodGet, Path: f.Path, Handler: f})
	}
	options := p.httpOptions()
	p.standby.serve(backends{
		publisher: publisher, subscribers: subscribers,
		api: p.traces.HTTP(httpapi.NSQD(options, backend)), lookup: httpapi.Lookup(options, backend),
	})
}

// clients counts the clients of this broker by what they do. A session over HTTP is a consumer.
func (p *process) clients() (consumers, producers, idle int) {
	consumers, producers, idle = p.tcp.Clients()
	return consumers + p.consumers.Count(), producers, idle
}

func (p *process) consoleOptions() console.Options {
	o := console.Options{
		Cluster: p.broker, Metrics: p.metrics, Events: p.events, Audit: p.guard.Audit, Started: time.Now(),
		Connections: p.sockets.Connections, Clients: p.clients,
		Consumers: func(topic, channel string) []api.ConsumerStats {
			return append(p.tcp.Consumers(topic, channel), p.consumers.Consumers(topic, channel)...)
		},
		Certificates: p.certificates, AuthUnanswered: p.guard.Unanswered,
		File: filepath.Join(p.dir, console.HistoryFile), Log: p.log,
	}
	if p.etcd != nil {
		o.Etcd = func() console.Etcd {
			s := p.etcd.Status()
			e := console.Etcd{Role: "member", InUseBytes: s.InUseBytes, QuotaBytes: s.QuotaBytes, Refuses: s.Refuses}
			if s.Leads {
				e.Role = "leader"
			}
			return e
		}
	}
	return o
}

func (p *process) lookupOptions() lookup.Options {
	return lookup.Options{
		Identity: lookup.Identity{
			Version: api.Version, TCPPort: p.node.TCPPort, HTTPPort: p.node.HTTPPort, Hostname: p.node.Hostname,
			BroadcastAddress: p.node.BroadcastAddress, TopologyZone: p.node.Zone, TopologyRegion: p.node.Region,
		},
		Source:         func() map[string][]string { return lookup.FromStats(p.broker.Stats())() },
		ConnectTimeout: p.o.HTTPConnectTimeout, RequestTimeout: p.o.HTTPRequestTimeout, Log: p.log,
	}
}

// lookupdChannels returns the channels of a topic at the external nsqlookupds.
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
	return authd.New(p.authOptions())
}

func (p *process) authOptions() authd.Options {
	return authd.Options{
		Addresses: p.o.AuthHTTPAddress, Method: p.o.AuthHTTPMethod,
		ConnectTimeout: p.o.HTTPConnectTimeout, RequestTimeout: p.o.HTTPRequestTimeout,
		TLS: p.authTLS,
	}
}

func (p *process) protocolOptions() tcp.Options {
	o, src := tcp.DefaultOptions(), p.o
	o.Version = api.Version
	o.MaxMsgSize, o.MaxBodySize = src.MaxMsgSize, src.MaxBodySize
	o.MsgTimeout, o.MaxMsgTimeout = src.MsgTimeout, src.MaxMsgTimeout
	o.MaxReqTimeout, o.MaxDeferTimeout = src.MaxReqTimeout, src.MaxDeferTimeout
	o.MaxHeartbeatInterval, o.MaxRdyCount = src.MaxHeartbeatInterval, src.MaxRdyCount
	o.MaxChannelConsumers = src.MaxChannelConsumers
	o.MaxOutputBufferSize, o.MaxOutputBufferTimeout = src.MaxOutputBufferSize, src.MaxOutputBufferTimeout
	o.MinOutputBufferTimeout, o.OutputBufferTimeout = src.MinOutputBufferTimeout, src.OutputBufferTimeout
	o.Deflate, o.MaxDeflate, o.Snappy = src.Deflate, src.MaxDeflateLevel, src.Snappy
	o.TopologyRegion, o.TopologyZone = src.TopologyRegion, src.TopologyZone
	o.RequeueOnDisconnect = src.RequeueOnDisconnect
	o.LoginTimeout, o.MaxPerUser = src.LoginTimeout, limitClients(p.files, src).perUser
	switch src.TLSRequired {
	case config.TLSRequiredAll:
		o.TLSRequired = tcp.TLSRequired
	case config.TLSRequiredExceptHTTP:
		o.TLSRequired = tcp.TLSRequiredExceptHTTP
	}
	if p.tls != nil {
		o.TLS = p.tls.Config()
	}
	return o
}

func (p *process) httpOptions() httpapi.Options {
	node, build := p.node, api.ReadBuild()
	return httpapi.Options{
		Version: api.Version, LockstepVersion: build.Version, Commit: build.Commit, FeatureLevel: metadata.Level, NodeName: p.o.NodeName, Durability: p.o.Durability,
		BroadcastAddress: node.BroadcastAddress, Hostname: node.Hostname, TCPPort: listen.Port(p.sockets.TCPAddr()), HTTPPort: listen.Port(p.sockets.HTTPAddr()),
		NodeID: p.o.NodeID, HTTPSPort: listen.Port(p.sockets.HTTPSAddr()), StartTime: time.Now(),
		MaxMsgSize: p.o.MaxMsgSize, MaxBodySize: p.o.MaxBodySize, MaxDeferTimeout: cmp.Or(p.o.MaxDeferTimeout, p.o.MaxReqTimeout),
		MaxHeartbeatInterval: p.o.MaxHeartbeatInterval, MaxOutputBufferSize: p.o.MaxOutputBufferSize,
		MaxOutputBufferTimeout: p.o.MaxOutputBufferTimeout, MaxDeflateLevel: p.o.MaxDeflateLevel,
		TopologyZone: p.o.TopologyZone, TopologyRegion: p.o.TopologyRegion,
		MsgTimeout: p.o.MsgTimeout, MaxMsgTimeout: p.o.MaxMsgTimeout, MaxReqTimeout: p.o.MaxReqTimeout, MaxInFlight: int(p.o.MaxRdyCount),
	}
}

// consumerOptions limits the consumers by HTTP as connections: a session costs about as much.
func (p *process) consumerOptions() consume.Options {
	l := limitClients(p.files, p.o)
	return consume.Options{
		MaxSessions: l.http, MaxPerClient: l.httpPerAddress, Memory: p.memory,
		RequeueOnDisconnect: p.o.RequeueOnDisconnect, Metrics: p.metrics,
	}
}
