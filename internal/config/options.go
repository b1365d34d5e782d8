package config

import (
	"cmp"
	"time"
)

// Options are all settings of a broker, in groups. cmd/nsqd passes each group unchanged to the part of the broker that
// it configures. The tags say:
//
//	flag     name on the command line; NSQD_<FLAG> in the environment
//	key      name in the file, unless it is the flag with "_" for "-"
//	default  as on the command line
//	min/max  limits of a number or duration
//	oneof    the permitted values, separated by commas
//	source   "flag": not in the environment or the file (NSQD_VERSION is common in images);
//	         "environment": neither a flag, which every user of the machine sees, nor in the file
//	noop     the flag is accepted without effect; the reason
//	help     the meaning; $hostname and $nodeid are replaced by those of this machine
//	when     the reason to change the setting, as the end of "change it when …". A setting with
//	         this tag is in --help-all only: --help has those that a new cluster needs
//
// The tag group is the title of a group in the help.
type Options struct {
	start     `group:"Start and check"`
	data      `group:"Data"`
	listen    `group:"Listen (host:port, or the path of a unix socket)"`
	cluster   `group:"Cluster"`
	times     `group:"Times of the cluster (every broker the same)"`
	newTopics `group:"New topics"`
	Messages  `group:"Messages"`
	security  `group:"Security"`
	limits    `group:"Limits (docs/reference/limits.md has all limits)"`
	observe   `group:"Observe"`
	stock     `group:"Accepted from scripts of a stock nsqd"`
}

// start has settings for the start of the process; most of them end it at once.
type start struct {
	Version     bool   `flag:"version" source:"flag" default:"false" help:"print the version and exit"`
	ConfigFile  string `flag:"config" default:"" help:"TOML file with settings; the key of a setting is its flag with _ in place of -"`
	CheckConfig bool   `flag:"check-config" source:"flag" default:"false" help:"check the settings, and the certificates, keys and secrets in their files; exit with 0, or with 2 after printing all faults"`
	PrintConfig bool   `flag:"print-config" source:"flag" default:"false" help:"print the effective settings as a TOML file, each with its source, and exit; secrets are omitted"`
}

// data configures the data path.
type data struct {
	DataPath         string        `flag:"data-path" default:"" help:"directory of all data; empty: the working directory"`
	MinFreeDiskBytes int64         `flag:"min-free-disk-bytes" default:"268435456" min:"0" help:"refuse puts while fewer bytes than this are free, so that consumers can continue"`
	MaxDiskBytes     int64         `flag:"max-disk-bytes" default:"0" min:"0" help:"refuse puts while the data uses more bytes than this; 0: no limit"`
	DeleteGrace      time.Duration `flag:"delete-grace" default:"24h" min:"0s" help:"how long a deleted topic can be undeleted (nsqctl topic trash); until then it takes disk space; 0: it is deleted at once; every broker the same"`
	DeleteEarly      bool          `flag:"delete-early" default:"false" help:"below the disk reserve remove deleted topics before their grace is over, the oldest first" when:"room for new messages matters more than undeleting a topic"`
	TrashGrace       time.Duration `flag:"trash-grace" default:"1h" min:"1s" help:"how long the files of permanently deleted topics and of replicas that moved away stay in the trash of the data path" when:"the disk has no room for them that long"`
	MaxBytesPerFile  int64         `flag:"max-bytes-per-file" default:"104857600" min:"65536" max:"4294967296" help:"size of a segment file" when:"finished messages must free their disk space in smaller steps, or a broker has hundreds of thousands of files"`
	MemQueueSize     int64         `flag:"mem-queue-size" default:"10000" min:"0" help:"undelivered messages of an #ephemeral channel, at least 1; other channels are on disk only" when:"consumers of ephemeral channels fall behind and lose messages"`
}

// listen has the addresses of the broker.
type listen struct {
	TCPAddress         string   `flag:"tcp-address" default:"0.0.0.0:4150" help:"address of the NSQ protocol"`
	HTTPAddress        string   `flag:"http-address" default:"0.0.0.0:4151" help:"HTTP API and lookup API; empty: none"`
	HTTPSAddress       string   `flag:"https-address" default:"0.0.0.0:4152" help:"HTTPS API; only with --tls-cert"`
	BroadcastAddress   string   `flag:"broadcast-address" default:"$hostname" help:"address that clients and other brokers connect to"`
	LookupdTCPAddress  []string `flag:"lookupd-tcp-address" key:"nsqlookupd_tcp_addresses" default:"" help:"external nsqlookupd to register with (repeat)"`
	LookupdHTTPAddress string   `flag:"lookupd-http-address" default:"" help:"additional address of the lookup API, e.g. 0.0.0.0:4161" when:"consumers look for a lookup API at a port of its own"`
	BroadcastTCPPort   int      `flag:"broadcast-tcp-port" default:"0" min:"0" max:"65535" help:"TCP port that clients connect to; 0: the port of --tcp-address" when:"clients reach the broker through a port mapping"`
	BroadcastHTTPPort  int      `flag:"broadcast-http-port" default:"0" min:"0" max:"65535" help:"HTTP port that clients connect to; 0: the port of --http-address" when:"clients reach the broker through a port mapping"`
	HTTPAllowedHost    []string `flag:"http-allowed-host" default:"" help:"further host name of this broker in HTTP requests: a name, *.suffix, or * for any (repeat)" when:"a proxy or another DNS name leads to the HTTP API"`
}

// cluster says which cluster the broker belongs to, and how its brokers reach each other.
type cluster struct {
	Join               []string `flag:"join" default:"" help:"host names of all brokers of a cluster with embedded etcd: n1.example,n2.example,n3.example (every broker the same). It implies --node-name, --broadcast-address, the addresses for brokers, --etcd-initial-cluster and the files of --tls-dir"`
	TLSDir             string   `flag:"tls-dir" default:"/etc/lockstep/tls" help:"with --join: folder with ca.crt, tls.crt and tls.key, as nsqctl cert broker makes them, for other brokers and for clients; not with --insecure" when:"the certificates are in another folder"`
	NodeName           string   `flag:"node-name" default:"$hostname" help:"permanent name of this broker: its identity, independent of its address"`
	TopologyZone       string   `flag:"topology-zone" default:"" help:"zone of this broker, for consumers and placement" when:"brokers are in several zones and a partition needs replicas in more than one"`
	TopologyRegion     string   `flag:"topology-region" default:"" help:"region of this broker, for consumers and placement" when:"zones of several regions have equal names"`
	ClusterName        string   `flag:"cluster-name" default:"lockstep" help:"name of the cluster, and of its keys in etcd" when:"several clusters share an external etcd"`
	NodeID             int64    `flag:"node-id" key:"id" default:"$nodeid" min:"0" max:"1023" help:"number in /info (message ids do not depend on it, unlike in a stock nsqd)" when:"a tool reads the number from /info"`
	RPCAddress         string   `flag:"rpc-address" default:"127.0.0.1:4153" help:"address for connections of other brokers"`
	RPCTLSCert         string   `flag:"rpc-tls-cert" default:"" help:"certificate of this broker for connections between brokers, and of the embedded etcd" when:"there is no --join, or the certificates for brokers are not those in --tls-dir"`
	RPCTLSKey          string   `flag:"rpc-tls-key" default:"" help:"private key of --rpc-tls-cert" when:"--rpc-tls-cert is set"`
	RPCTLSCA           string   `flag:"rpc-tls-ca" default:"" help:"certificate authority of the brokers' certificates" when:"--rpc-tls-cert is set"`
	RPCTLSName         string   `flag:"rpc-tls-name" default:"*" help:"DNS name that the certificate of each broker must have, with * for its --node-name, such as *.brokers.example (every broker the same)" when:"the names in the certificates are not the node names"`
	RPCTLSAllow        []string `flag:"rpc-tls-allow" default:"" help:"node name of a broker that may join a running cluster with embedded etcd at any time (repeat); not needed after nsqctl cluster invite, or if --rpc-tls-name is not *" when:"new brokers join without an invitation"`
	ClusterTokenFile   string   `flag:"cluster-token-file" default:"" help:"file with the secret shared by all brokers of the cluster" when:"the network between the brokers has no TLS, or a CA that also signs other hosts"`
	ClusterToken       Secret   `flag:"cluster-token" source:"environment" default:"" help:"the secret itself, in place of --cluster-token-file" when:"secrets arrive in the environment"`
	Insecure           bool     `flag:"insecure" default:"false" help:"allow connections between brokers over a network without TLS: any host that reaches these ports can read and change everything"`
	EtcdEndpoints      []string `flag:"etcd-endpoints" default:"" help:"address of the external etcd (repeat, or with commas); empty: run an embedded etcd"`
	EtcdUsername       string   `flag:"etcd-username" default:"" help:"user name for the external etcd" when:"the external etcd requires a login"`
	EtcdPasswordFile   string   `flag:"etcd-password-file" default:"" help:"file with the password of --etcd-username" when:"the external etcd requires a login"`
	EtcdPassword       Secret   `flag:"etcd-password" source:"environment" default:"" help:"the password itself, in place of --etcd-password-file" when:"secrets arrive in the environment"`
	EtcdTLSCert        string   `flag:"etcd-tls-cert" default:"" help:"client certificate for the external etcd" when:"the external etcd requires client certificates"`
	EtcdTLSKey         string   `flag:"etcd-tls-key" default:"" help:"private key of --etcd-tls-cert" when:"--etcd-tls-cert is set"`
	EtcdTLSCA          string   `flag:"etcd-tls-ca" default:"" help:"certificate authority of the external etcd" when:"the external etcd has a private certificate authority"`
	EtcdClientAddress  string   `flag:"etcd-client-address" default:"127.0.0.1:4154" help:"client address of the embedded etcd, for the brokers" when:"there is no --join, or its port is taken"`
	EtcdPeerAddress    string   `flag:"etcd-peer-address" default:"127.0.0.1:4155" help:"peer address of the embedded etcd, for its other members" when:"there is no --join, or its port is taken"`
	EtcdInitialCluster string   `flag:"etcd-initial-cluster" default:"" help:"all members of the embedded etcd of a new cluster: n1=http://host:4155,n2=…; empty: this broker is the only one"`
	EtcdFoundWithout   []string `flag:"etcd-found-without" default:"" help:"found a new cluster without these members of --etcd-initial-cluster; set it on all other brokers, and only if the named members have never run in the cluster" when:"a host of a new cluster does not start"`
}

// times has the timeouts between brokers.
type times struct {
	SessionTTL          time.Duration `flag:"session-ttl" default:"3s" min:"1s" max:"1m" help:"a broker without contact to etcd for this long counts as dead" when:"slow disks or pauses make brokers count as dead, or a failover must be faster"`
	EtcdElectionTimeout time.Duration `flag:"etcd-election-timeout" default:"300ms" min:"50ms" max:"10s" help:"silence after which the embedded etcd elects a leader; it sends ten heartbeats in this time" when:"the log shows elections of the embedded etcd without a failure, because the network or the disks are slow"`
	PeerTimeout         time.Duration `flag:"peer-timeout" default:"500ms" min:"50ms" max:"1m" help:"a broker silent for this long does not count as live; it sends ten heartbeats in this time" when:"the log shows silent brokers without a failure, because they are far apart"`
	ReplicaTimeout      time.Duration `flag:"replica-timeout" default:"1s" min:"50ms" max:"1m" help:"a replica that does not acknowledge for this long leaves the in-sync set" when:"replicas leave the in-sync set during short stalls of a disk"`
	LeaderHold          time.Duration `flag:"leader-hold" default:"3s" min:"0s" max:"1m" help:"a put waits this long for enough live replicas; then it is refused" when:"producers must learn sooner that replicas are missing, or must wait through their restart"`
	WriteTimeout        time.Duration `flag:"write-timeout" default:"3s" min:"100ms" max:"1m" help:"a put that is written and not committed is rolled back after this time; if that takes two thirds of it, the put is reported as in doubt" when:"a sync may take longer than this without the disk being broken"`
	PutHold             time.Duration `flag:"put-hold" default:"9s" min:"0s" max:"10m" help:"longest wait of a put, and of any client of a starting broker; keep it below the clients' timeout" when:"the clients' timeout is not 10 s"`
}

// newTopics has the options of a topic whose creation does not set them.
type newTopics struct {
	ReplicationFactor   int           `flag:"replication-factor" default:"0" min:"0" max:"7" help:"replicas of each partition of a new topic; 0: the number of brokers in --etcd-initial-cluster, at most 3"`
	MinInSync           int           `flag:"min-in-sync" default:"0" min:"0" max:"7" help:"least number of in-sync replicas; with fewer, puts are refused; 0: 1 of 1, 2 of 2, 2 of 3"`
	Durability          string        `flag:"durability" default:"sync" oneof:"sync,replicated" help:"meaning of OK for new topics. sync: on the disk of every in-sync replica; replicated: in the memory of each, and lost if all of them lose power"`
	Partitions          int           `flag:"partitions" default:"1" min:"1" max:"1024" help:"partitions of a new topic, if its creation does not set them"`
	AutoCreateTopics    bool          `flag:"auto-create-topics" default:"true" help:"create a topic at its first put or subscription" when:"only administrators may create topics"`
	TopicDefault        []string      `flag:"topic-default" default:"" help:"defaults of new topics whose names match a pattern, in place of those of all topics, such as orders.*:partitions=8;retention-time=24h (repeat; the first that matches counts; the names are the flags of nsqctl topic create)"`
	TopicMaxBytes       int64         `flag:"topic-max-bytes" default:"0" min:"0" option:"max_bytes" when:"a topic without consumers must not fill the disk"`
	TopicMaxPutRate     int64         `flag:"topic-max-put-rate" default:"0" min:"0" option:"max_put_rate" when:"one producer must not take the whole broker"`
	TopicMaxPutBytes    int64         `flag:"topic-max-put-bytes-rate" default:"0" min:"0" option:"max_put_bytes_rate" when:"one producer must not take the whole network"`
	TopicRetention      time.Duration `flag:"topic-retention" default:"0s" min:"0s" option:"retention_time" when:"consumers replay messages"`
	TopicRetentionBytes int64         `flag:"topic-retention-bytes" default:"0" min:"0" option:"retention_bytes" when:"kept messages must not fill the disk"`
	TopicIdleAfter      time.Duration `flag:"topic-idle-after" default:"0s" min:"0s" option:"idle_after" when:"clients create topics with temporary names"`
	ChannelIdleAfter    time.Duration `flag:"channel-idle-after" default:"0s" min:"0s" option:"channel_idle_after" when:"consumers leave channels behind"`
}

// Messages limits messages, their timeouts and delays.
type Messages struct {
	MsgTimeout          time.Duration `flag:"msg-timeout" default:"1m" min:"1ms" help:"a message without a FIN, REQ or TOUCH of its consumer for this long is delivered again"`
	MaxMsgSize          int64         `flag:"max-msg-size" default:"1048576" min:"1" max:"66977792" help:"largest message in bytes"`
	MaxMsgTimeout       time.Duration `flag:"max-msg-timeout" default:"15m" min:"1ms" help:"longest message timeout that a consumer may request or reach with TOUCH" when:"a handler works longer than this on a message"`
	MaxReqTimeout       time.Duration `flag:"max-req-timeout" default:"1h" min:"0s" help:"longest delay of a requeue" when:"messages are requeued for longer than this"`
	MaxDeferTimeout     time.Duration `flag:"max-defer-timeout" default:"0s" min:"0s" help:"longest delay of a put (DPUB); 0: --max-req-timeout" when:"messages are deferred for longer than they may be requeued"`
	MaxBodySize         int64         `flag:"max-body-size" default:"5242880" min:"1" max:"268435456" help:"largest body of one command in bytes; a larger --max-msg-size raises the default" when:"producers send larger batches"`
	RequeueOnDisconnect bool          `flag:"requeue-on-disconnect" default:"true" help:"deliver the messages of a disconnected consumer again at once, not after their message timeout" when:"consumers reconnect often and must not process a message twice"`
	Linger              time.Duration `flag:"linger" default:"0s" min:"0s" max:"100ms" help:"least time between two rounds of replication: with 200 topics 1ms saves a third of the processor time, and a put takes six times as long" when:"hundreds of topics use up the processor and latency does not matter"`
	CatchUpRate         int64         `flag:"catch-up-rate" default:"0" min:"0" help:"bytes a second that this broker reads for replicas that catch up; 0: no limit. Below the publish rate a replica never catches up" when:"moving or restarted replicas slow the clients down"`
}

// MaxDefer is the longest delay of a put.
func (m Messages) MaxDefer() time.Duration { return cmp.Or(m.MaxDeferTimeout, m.MaxReqTimeout) }

// security configures which clients are admitted.
type security struct {
	ClientTLS
	RequireUsers   bool   `flag:"require-users" default:"false" help:"enforce rights from the start: no client may do anything until the first user is made (nsqctl user create, on a broker's machine)"`
	BootstrapAdmin string `flag:"bootstrap-admin-token-file" default:"" help:"file with a token of at least 32 characters that administers the cluster at this broker; it enforces rights from the start" when:"the first user is made from another machine"`
	AuthService
	InsecureClients bool   `flag:"insecure-clients" default:"false" help:"allow --tcp-address beyond loopback although no client has to authenticate: every client may publish and consume"`
	InsecureHTTP    bool   `flag:"insecure-http" default:"false" help:"allow --http-address, --https-address and --lookupd-http-address beyond loopback although no client has to authenticate: every client may administer the cluster"`
	InsecureTLS     bool   `flag:"insecure-tls" default:"false" help:"allow TLS 1.0 and 1.1 in --tls-min-version" when:"a client supports only TLS 1.0 or 1.1"`
	AuditFile       string `flag:"audit-file" default:"" help:"file to which every administrative action is appended as a line of JSON; rename it to rotate it; empty: the log and /v1/audit alone" when:"audit records must outlive the log"`
}

// ClientTLS configures TLS at the ports for clients.
type ClientTLS struct {
	TLSCert             string      `flag:"tls-cert" default:"" help:"certificate file"`
	TLSKey              string      `flag:"tls-key" default:"" help:"private key of --tls-cert"`
	TLSRequired         TLSRequired `flag:"tls-required" default:"false" help:"refuse clients without TLS: true, false, or tcp-https (plain HTTP remains allowed)"`
	TLSClientAuthPolicy string      `flag:"tls-client-auth-policy" default:"" oneof:",require,require-verify" help:"client certificates: require any, or require-verify against --tls-root-ca-file; implies --tls-required" when:"clients have certificates"`
	TLSRootCAFile       string      `flag:"tls-root-ca-file" default:"" help:"certificate authority of the clients, and of auth services with HTTPS" when:"a private authority signs the certificates of clients or of the auth service"`
	TLSMinVersion       string      `flag:"tls-min-version" default:"tls1.2" oneof:",tls1.0,tls1.1,tls1.2,tls1.3" help:"oldest accepted TLS version; empty: tls1.2; tls1.0 and tls1.1 require --insecure-tls" when:"all clients support TLS 1.3, or one supports only TLS 1.0 or 1.1"`
}

// AuthService configures the requests to the authorization server, and its timeouts also apply to requests to
// nsqlookupd.
type AuthService struct {
	AuthHTTPAddress    []string      `flag:"auth-http-address" key:"auth_http_addresses" default:"" help:"authorization server (repeat)"`
	AuthHTTPMethod     string        `flag:"auth-http-request-method" default:"get" oneof:"get,post" help:"HTTP method of the requests to the authorization server" when:"the auth service must not have secrets in its access log"`
	HTTPConnectTimeout time.Duration `flag:"http-client-connect-timeout" default:"2s" min:"0s" help:"timeout of connecting to the authorization server and to nsqlookupd; 0: no limit" when:"the auth service or nsqlookupd is far away"`
	HTTPRequestTimeout time.Duration `flag:"http-client-request-timeout" default:"5s" min:"0s" help:"timeout of a whole request to the authorization server or to nsqlookupd; 0: no limit" when:"the auth service or nsqlookupd answers slowly"`
}

// limits bounds what clients may use together.
type limits struct {
	MaxConnections           int   `flag:"max-connections" default:"0" min:"0" help:"largest number of clients at --tcp-address; 0: what the limit of open files leaves"`
	MaxClientMemory          int64 `flag:"max-client-memory" default:"268435456" min:"1048576" help:"bytes of memory for all clients together: bodies that arrive, puts without an answer, messages and answers that a client does not read. The share of a user, or of an address without a login, grows up to half of what is free; at least --max-body-size"`
	MaxTopics                int   `flag:"max-topics" default:"20000" min:"0" help:"refuse to create a topic when the cluster has this many; 0: no limit" when:"there is memory for more topics, or clients create too many"`
	MaxPartitions            int   `flag:"max-partitions" default:"200000" min:"0" help:"refuse to create a topic when the cluster would have more partitions than this; 0: no limit" when:"there is memory for more partitions"`
	MaxChannels              int   `flag:"max-channels" default:"2000" min:"0" help:"refuse to create a channel when its topic has this many, durable and ephemeral ones counted apart; 0: no limit" when:"a topic has more consumers that each need all messages"`
	MaxHTTPConnections       int   `flag:"max-http-connections" default:"0" min:"0" help:"largest number of connections at all HTTP ports together, besides 32 for probes; 0: what the limit of open files leaves" when:"HTTP clients use up file descriptors"`
	MaxConnectionsPerAddress int   `flag:"max-connections-per-address" default:"0" min:"0" help:"largest number of connections of one address (IPv6: of its /64) at --tcp-address, and at the HTTP ports; 0: nine tenths of the limit there" when:"many clients are behind one address, such as a NAT gateway"`
	MaxConnectionsPerUser    int   `flag:"max-connections-per-user" default:"0" min:"0" help:"largest number of clients of one user at --tcp-address of this broker; 0: nine tenths of --max-connections" when:"users share a broker and one opens too many connections"`
	Connection
}

// Connection limits one client of the NSQ protocol, and has the features that it is offered.
type Connection struct {
	MaxChannelConsumers    int           `flag:"max-channel-consumers" default:"0" min:"0" help:"largest number of consumers of a channel on this broker; 0: no limit" when:"a channel attracts more consumers than its work needs"`
	LoginTimeout           time.Duration `flag:"login-timeout" default:"10s" min:"100ms" max:"1m" help:"limit for the first bytes of a client, a TLS handshake, the headers of a request, and, where rights are enforced, for IDENTIFY and AUTH" when:"clients are at the end of slow links"`
	MaxRdyCount            int64         `flag:"max-rdy-count" default:"2500" min:"0" help:"largest RDY count" when:"a consumer handles more messages at a time"`
	MaxHeartbeatInterval   time.Duration `flag:"max-heartbeat-interval" default:"1m" min:"1s" help:"longest heartbeat interval that a client may request" when:"clients sleep longer than this"`
	MaxOutputBufferSize    int64         `flag:"max-output-buffer-size" default:"65536" min:"64" help:"largest output buffer that a client may request, in bytes" when:"a client requests larger buffers"`
	MaxOutputBufferTimeout time.Duration `flag:"max-output-buffer-timeout" default:"30s" min:"0s" help:"longest output buffer timeout that a client may request" when:"a client requests a longer timeout"`
	MinOutputBufferTimeout time.Duration `flag:"min-output-buffer-timeout" default:"25ms" min:"0s" help:"shortest output buffer timeout that a client may request" when:"clients with short timeouts use too much processor time"`
	OutputBufferTimeout    time.Duration `flag:"output-buffer-timeout" default:"250ms" min:"0s" help:"output buffer timeout of a client that requests none" when:"clients that request none must receive messages sooner, or in larger packets"`
	Deflate                bool          `flag:"deflate" default:"true" help:"offer deflate" when:"compression uses too much processor time"`
	MaxDeflateLevel        int           `flag:"max-deflate-level" default:"6" min:"1" max:"9" help:"highest deflate level that a client may request" when:"compression uses too much processor time"`
	Snappy                 bool          `flag:"snappy" default:"true" help:"offer snappy" when:"compression uses too much processor time"`
}

// observe configures logs, traces, metrics and statistics.
type observe struct {
	LogLevel         string        `flag:"log-level" default:"info" oneof:"debug,info,warn,warning,error,fatal" help:"least severe messages to log; SIGHUP and PUT /config/log_level change it at run time"`
	LogFormat        string        `flag:"log-format" default:"text" oneof:"text,json" help:"form of the log's lines: text, as a stock nsqd writes them, or one JSON object a line"`
	LogPrefix        string        `flag:"log-prefix" default:"[nsqd] " help:"text in front of each log line" when:"several programs write into one log"`
	LogSlow          time.Duration `flag:"log-slow" default:"1s" min:"0s" help:"log puts and syncs of the journal that take this long, with the stage that was slow; 0: none" when:"the log shows too many slow puts, or too few"`
	OTLPEndpoint     string        `flag:"otlp-endpoint" default:"" help:"OpenTelemetry collector for traces of puts and deliveries: host:port, http://host:port or https://host:port (OTLP over gRPC; TLS except for http:// and loopback); empty: no traces"`
	TraceSample      float64       `flag:"trace-sample" default:"0.001" help:"share of the messages without a traceparent that is traced, 0.0 to 1.0; all messages with a sampled traceparent are traced" when:"the collector has room for more traces, or receives too many"`
	MetricsMaxSeries int           `flag:"metrics-max-series" default:"10000" min:"0" help:"largest number of topics and channels with series of their own in /metrics, and a tenth as many led partitions; the other topics and channels are summed under one name" when:"Prometheus has room for more series, or receives too many"`
	Statsd
	E2EPercentiles          []float64     `flag:"e2e-processing-latency-percentile" key:"e2e_processing_latency_percentiles" default:"" help:"percentiles (0.0 to 1.0) of the time from put to finish (repeat, or with commas)" when:"dashboards show how long messages wait for their consumers"`
	E2EProcessingWindowTime time.Duration `flag:"e2e-processing-latency-window-time" default:"10m" min:"1s" help:"time window of these percentiles" when:"the percentiles must follow changes faster, or be smoother"`
}

// Statsd configures the pushes to a statsd daemon.
type Statsd struct {
	StatsdAddress          string        `flag:"statsd-address" default:"" help:"UDP address of a statsd daemon; empty: no pushes"`
	StatsdInterval         time.Duration `flag:"statsd-interval" default:"1m" min:"1s" help:"time between pushes" when:"the statsd daemon flushes at another interval"`
	StatsdMemStats         bool          `flag:"statsd-mem-stats" default:"true" help:"push memory and GC statistics too" when:"the statsd daemon receives too many keys"`
	StatsdPrefix           string        `flag:"statsd-prefix" default:"nsq.%s" help:"prefix of all keys; %s: broadcast address and HTTP port" when:"dashboards expect other keys"`
	StatsdUDPPacketSize    int           `flag:"statsd-udp-packet-size" default:"508" min:"64" max:"65507" help:"largest packet in bytes" when:"the network carries larger packets to the statsd daemon"`
	StatsdExcludeEphemeral bool          `flag:"statsd-exclude-ephemeral" default:"false" help:"omit #ephemeral topics and channels" when:"ephemeral names fill the statsd daemon"`
}

// stock has the settings of a stock nsqd that have no effect.
type stock struct {
	Verbose              bool          `flag:"verbose" default:"false" noop:"use --log-level=debug" help:"deprecated"`
	WorkerID             bool          `flag:"worker-id" source:"flag" default:"false" noop:"use --node-id" help:"deprecated"`
	Experiments          []string      `flag:"enable-experiment" key:"enable_experiment" default:"" noop:"zones do not affect the delivery" help:"experimental feature to switch on (repeat)"`
	SyncEvery            int64         `flag:"sync-every" default:"2500" noop:"every OK is sent after the sync; see --durability" help:"messages per sync"`
	SyncTimeout          time.Duration `flag:"sync-timeout" default:"2s" noop:"every OK is sent after the sync; see --durability" help:"time between syncs"`
	QueueScanWorkerMax   int           `flag:"queue-scan-worker-pool-max" default:"4" noop:"one timer serves all channels" help:"workers that scan channels"`
	QueueScanSelectCount int           `flag:"queue-scan-selection-count" default:"20" noop:"one timer serves all channels" help:"channels per scan"`
}

// Secret is a setting that is never printed. The code that uses it converts it to a string.
type Secret string

// String implements fmt.Stringer, also for %#v and in structs.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, which JSON uses too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// TLSRequired selects the clients that must use TLS.
type TLSRequired string

// Values of TLSRequired.
const (
	TLSNotRequired        TLSRequired = "false"
	TLSRequiredAll        TLSRequired = "true"
	TLSRequiredExceptHTTP TLSRequired = "tcp-https"
)
