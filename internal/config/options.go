package config

import "time"

// Options are all settings of a broker. The tags say:
//
//	flag     name on the command line; NSQD_<FLAG> in the environment
//	key      name in the file, when it is not the flag with "_"
//	default  as it would be written on the command line
//	min/max  limits of a number or duration
//	oneof    the only values allowed, with commas between
//	source   "flag": not in the environment or the file (NSQD_VERSION is common in images)
//	noop     accepted and ignored, and why
//	help     what it does; $hostname and $nodeid stand for this machine's
//
// A field without a flag begins a group of the help; its tag is the title.
type Options struct {
	_ struct{} `group:"General"`

	Version    bool   `flag:"version" source:"flag" default:"false" help:"print the version and exit"`
	ConfigFile string `flag:"config" default:"" help:"TOML file with settings; a key is a flag's name with _ for -"`
	LogLevel   string `flag:"log-level" default:"info" oneof:"debug,info,warn,warning,error,fatal" help:"least severe messages to log; SIGHUP and PUT /config/log_level change it at run time"`
	LogPrefix  string `flag:"log-prefix" default:"[nsqd] " help:"text in front of each log line"`
	DataPath   string `flag:"data-path" default:"" help:"directory of all data; empty: the working directory"`
	NodeID     int64  `flag:"node-id" key:"id" default:"$nodeid" min:"0" max:"1023" help:"number shown by /info (message ids do not depend on it here)"`
	Verbose    bool   `flag:"verbose" default:"false" noop:"use --log-level=debug" help:"deprecated"`
	WorkerID   bool   `flag:"worker-id" source:"flag" default:"false" noop:"use --node-id" help:"deprecated"`

	_ struct{} `group:"Addresses (host:port, or the path of a unix socket)"`

	TCPAddress         string   `flag:"tcp-address" default:"0.0.0.0:4150" help:"where NSQ clients connect"`
	HTTPAddress        string   `flag:"http-address" default:"0.0.0.0:4151" help:"HTTP API and lookup API; empty: none"`
	HTTPSAddress       string   `flag:"https-address" default:"0.0.0.0:4152" help:"HTTPS API; only with --tls-cert"`
	LookupdHTTPAddress string   `flag:"lookupd-http-address" default:"" help:"lookup API on an address of its own as well, e.g. 0.0.0.0:4161"`
	BroadcastAddress   string   `flag:"broadcast-address" default:"$hostname" help:"address that clients and other brokers are told"`
	BroadcastTCPPort   int      `flag:"broadcast-tcp-port" default:"0" min:"0" max:"65535" help:"TCP port that clients are told; 0: the one listened on"`
	BroadcastHTTPPort  int      `flag:"broadcast-http-port" default:"0" min:"0" max:"65535" help:"HTTP port that clients are told; 0: the one listened on"`
	LookupdTCPAddress  []string `flag:"lookupd-tcp-address" key:"nsqlookupd_tcp_addresses" default:"" help:"external nsqlookupd to register with (repeat)"`
	TopologyRegion     string   `flag:"topology-region" default:"" help:"region of this broker, for consumers and placement"`
	TopologyZone       string   `flag:"topology-zone" default:"" help:"zone of this broker, for consumers and placement"`
	Experiments        []string `flag:"enable-experiment" key:"enable_experiment" default:"" noop:"consumers of all zones are served alike" help:"experimental feature to switch on (repeat)"`

	_ struct{} `group:"Cluster"`

	NodeName         string   `flag:"node-name" default:"$hostname" help:"permanent name of this broker; it is its identity, not its address"`
	ClusterName      string   `flag:"cluster-name" default:"lockstep" help:"name of the cluster, and of its keys in etcd"`
	RPCAddress       string   `flag:"rpc-address" default:"127.0.0.1:4153" help:"where other brokers connect"`
	RPCTLSCert       string   `flag:"rpc-tls-cert" default:"" help:"certificate towards other brokers (and of the embedded etcd)"`
	RPCTLSKey        string   `flag:"rpc-tls-key" default:"" help:"its private key"`
	RPCTLSCA         string   `flag:"rpc-tls-ca" default:"" help:"authority that signs the brokers' certificates"`
	ClusterTokenFile string   `flag:"cluster-token-file" default:"" help:"file with the secret that all brokers of the cluster share"`
	Insecure         bool     `flag:"insecure" default:"false" help:"let brokers talk over a network without TLS or token"`
	EtcdEndpoints    []string `flag:"etcd-endpoints" default:"" help:"external etcd (repeat, or with commas); empty: embed one"`
	EtcdUsername     string   `flag:"etcd-username" default:"" help:"user at the external etcd"`
	EtcdPasswordFile string   `flag:"etcd-password-file" default:"" help:"file with its password"`
	EtcdTLSCert      string   `flag:"etcd-tls-cert" default:"" help:"client certificate towards the external etcd"`
	EtcdTLSKey       string   `flag:"etcd-tls-key" default:"" help:"its private key"`
	EtcdTLSCA        string   `flag:"etcd-tls-ca" default:"" help:"authority of the external etcd's certificates"`

	EtcdClientAddress  string `flag:"etcd-client-address" default:"127.0.0.1:4154" help:"where brokers reach the embedded etcd"`
	EtcdPeerAddress    string `flag:"etcd-peer-address" default:"127.0.0.1:4155" help:"where the embedded etcds reach each other"`
	EtcdInitialCluster string `flag:"etcd-initial-cluster" default:"" help:"all embedded etcds of a new cluster: n1=http://host:4155,n2=…; empty: this broker is alone"`

	_ struct{} `group:"Replication"`

	Durability        string        `flag:"durability" default:"sync" oneof:"sync,replicated" help:"what OK means on every in-sync replica: synced to disk, or in its memory (a power cut of all loses it)"`
	Linger            time.Duration `flag:"linger" default:"0s" min:"0s" max:"100ms" help:"rounds of replication begin at least this long after one another: with 200 topics 1ms saves a third of the processor time, and each put takes six times as long"`
	Partitions        int           `flag:"partitions" default:"1" min:"1" max:"1024" help:"partitions of a topic that is created without saying"`
	ReplicationFactor int           `flag:"replication-factor" default:"0" min:"0" max:"7" help:"copies of each partition; 0: as many as --etcd-initial-cluster names, up to 3"`
	MinInSync         int           `flag:"min-in-sync" default:"0" min:"0" max:"7" help:"copies without which puts are refused; 0: 1 of 1, 2 of 2, 2 of 3"`
	AutoCreateTopics  bool          `flag:"auto-create-topics" default:"true" help:"create a topic when it is first published to or subscribed"`

	_ struct{} `group:"Times of the cluster (every broker the same)"`

	SessionTTL          time.Duration `flag:"session-ttl" default:"3s" min:"1s" max:"1m" help:"a broker that etcd has not heard for this long is dead"`
	EtcdHeartbeat       time.Duration `flag:"etcd-heartbeat" default:"30ms" min:"5ms" max:"1s" help:"heartbeat of the embedded etcd"`
	EtcdElectionTimeout time.Duration `flag:"etcd-election-timeout" default:"300ms" min:"50ms" max:"10s" help:"silence after which the embedded etcd elects a leader; at least 5 heartbeats"`
	PeerHeartbeat       time.Duration `flag:"peer-heartbeat" default:"50ms" min:"5ms" max:"5s" help:"heartbeat between brokers"`
	PeerTimeout         time.Duration `flag:"peer-timeout" default:"500ms" min:"20ms" max:"1m" help:"a broker silent for this long does not count as live"`
	ReplicaTimeout      time.Duration `flag:"replica-timeout" default:"1s" min:"50ms" max:"1m" help:"a replica that has not acknowledged for this long leaves the in-sync set"`
	LeaderHold          time.Duration `flag:"leader-hold" default:"3s" min:"0s" max:"1m" help:"a put waits this long for enough live replicas, then it is refused"`
	WriteTimeout        time.Duration `flag:"write-timeout" default:"3s" min:"100ms" max:"1m" help:"a written but uncommitted put is rolled back after this"`
	RollbackGrace       time.Duration `flag:"rollback-grace" default:"2s" min:"0s" max:"1m" help:"a rolled-back put whose new epoch is not confirmed after this is reported in doubt"`
	PutHold             time.Duration `flag:"put-hold" default:"9s" min:"0s" max:"10m" help:"no producer waits longer than this for an answer; below the clients' time-out"`

	_ struct{} `group:"Disk"`

	MaxDiskBytes        int64         `flag:"max-disk-bytes" default:"0" min:"0" help:"refuse puts when the data uses more; 0: no limit"`
	MinFreeDiskBytes    int64         `flag:"min-free-disk-bytes" default:"268435456" min:"0" help:"refuse puts when less is free, so that consumers can always drain"`
	TopicMaxBytes       int64         `flag:"topic-max-bytes" default:"0" min:"0" help:"refuse puts to a topic with more unfinished bytes (default for new topics); 0: no limit"`
	TopicRetention      time.Duration `flag:"topic-retention" default:"0s" min:"0s" help:"keep finished messages this long (default for new topics)"`
	TopicRetentionBytes int64         `flag:"topic-retention-bytes" default:"0" min:"0" help:"keep up to this many bytes of finished messages (default for new topics)"`
	MaxBytesPerFile     int64         `flag:"max-bytes-per-file" default:"104857600" min:"65536" max:"4294967296" help:"size of a segment file"`
	MemQueueSize        int64         `flag:"mem-queue-size" default:"10000" min:"0" help:"undelivered messages that an #ephemeral channel keeps, at least 1; no other channel has a queue of its own"`
	SyncEvery           int64         `flag:"sync-every" default:"2500" noop:"every OK is sent after the sync; see --durability" help:"messages per sync"`
	SyncTimeout         time.Duration `flag:"sync-timeout" default:"2s" noop:"every OK is sent after the sync; see --durability" help:"time between syncs"`

	_ struct{} `group:"Messages"`

	MsgTimeout           time.Duration `flag:"msg-timeout" default:"1m" min:"1ms" help:"a message that a consumer has not answered is delivered again"`
	MaxMsgTimeout        time.Duration `flag:"max-msg-timeout" default:"15m" min:"1ms" help:"longest time that a consumer may ask for, and touch a message to"`
	MaxMsgSize           int64         `flag:"max-msg-size" default:"1048576" min:"1" max:"67108864" help:"bytes of one message"`
	MaxReqTimeout        time.Duration `flag:"max-req-timeout" default:"1h" min:"0s" help:"longest delay of a requeue"`
	MaxDeferTimeout      time.Duration `flag:"max-defer-timeout" default:"0s" min:"0s" help:"longest delay of a put (DPUB); 0: --max-req-timeout"`
	MaxBodySize          int64         `flag:"max-body-size" default:"5242880" min:"1" max:"268435456" help:"bytes of one command"`
	RequeueOnDisconnect  bool          `flag:"requeue-on-disconnect" default:"true" help:"deliver what a vanished consumer held at once, not after its message timeout"`
	QueueScanWorkerMax   int           `flag:"queue-scan-worker-pool-max" default:"4" noop:"one timer serves all channels" help:"workers that scan channels"`
	QueueScanSelectCount int           `flag:"queue-scan-selection-count" default:"20" noop:"one timer serves all channels" help:"channels per scan"`

	_ struct{} `group:"Clients"`

	MaxHeartbeatInterval   time.Duration `flag:"max-heartbeat-interval" default:"1m" min:"1s" help:"longest heartbeat that a client may ask for"`
	MaxRdyCount            int64         `flag:"max-rdy-count" default:"2500" min:"0" help:"greatest RDY"`
	MaxOutputBufferSize    int64         `flag:"max-output-buffer-size" default:"65536" min:"64" help:"greatest output buffer that a client may ask for, bytes"`
	MaxOutputBufferTimeout time.Duration `flag:"max-output-buffer-timeout" default:"30s" min:"0s" help:"longest time that a client may let messages wait in the buffer"`
	MinOutputBufferTimeout time.Duration `flag:"min-output-buffer-timeout" default:"25ms" min:"0s" help:"shortest such time"`
	OutputBufferTimeout    time.Duration `flag:"output-buffer-timeout" default:"250ms" min:"0s" help:"such time of a client that does not ask"`
	MaxChannelConsumers    int           `flag:"max-channel-consumers" default:"0" min:"0" help:"consumers per channel on this broker; 0: no limit"`
	Deflate                bool          `flag:"deflate" default:"true" help:"offer deflate"`
	MaxDeflateLevel        int           `flag:"max-deflate-level" default:"6" min:"1" max:"9" help:"greatest deflate level that a client may ask for"`
	Snappy                 bool          `flag:"snappy" default:"true" help:"offer snappy"`

	_ struct{} `group:"Security towards clients"`

	TLSCert             string        `flag:"tls-cert" default:"" help:"certificate file"`
	TLSKey              string        `flag:"tls-key" default:"" help:"its private key"`
	TLSClientAuthPolicy string        `flag:"tls-client-auth-policy" default:"" oneof:",require,require-verify" help:"whether clients show a certificate; implies --tls-required"`
	TLSRootCAFile       string        `flag:"tls-root-ca-file" default:"" help:"authority of the clients' certificates, and of auth services that speak HTTPS"`
	TLSRequired         TLSRequired   `flag:"tls-required" default:"false" help:"refuse clients without TLS: true, false, or tcp-https (plain HTTP stays)"`
	TLSMinVersion       string        `flag:"tls-min-version" default:"tls1.0" oneof:",tls1.0,tls1.1,tls1.2,tls1.3" help:"oldest TLS version accepted; empty: tls1.0"`
	AuthHTTPAddress     []string      `flag:"auth-http-address" key:"auth_http_addresses" default:"" help:"authorization server (repeat)"`
	AuthHTTPMethod      string        `flag:"auth-http-request-method" default:"get" oneof:"get,post" help:"HTTP method of its requests"`
	HTTPConnectTimeout  time.Duration `flag:"http-client-connect-timeout" default:"2s" min:"0s" help:"to connect to it and to nsqlookupd; 0: no limit"`
	HTTPRequestTimeout  time.Duration `flag:"http-client-request-timeout" default:"5s" min:"0s" help:"for its whole answer; 0: no limit"`

	_ struct{} `group:"Statistics"`

	MetricsMaxSeries        int           `flag:"metrics-max-series" default:"10000" min:"0" help:"topics and channels in /metrics; the rest is summed up under one name"`
	StatsdAddress           string        `flag:"statsd-address" default:"" help:"UDP address of a statsd; empty: none"`
	StatsdInterval          time.Duration `flag:"statsd-interval" default:"1m" min:"1s" help:"time between pushes"`
	StatsdMemStats          bool          `flag:"statsd-mem-stats" default:"true" help:"push memory and GC statistics too"`
	StatsdPrefix            string        `flag:"statsd-prefix" default:"nsq.%s" help:"prefix of all keys; %s: broadcast address and HTTP port"`
	StatsdUDPPacketSize     int           `flag:"statsd-udp-packet-size" default:"508" min:"64" max:"65507" help:"bytes per packet"`
	StatsdExcludeEphemeral  bool          `flag:"statsd-exclude-ephemeral" default:"false" help:"leave #ephemeral topics and channels out"`
	E2EPercentiles          []float64     `flag:"e2e-processing-latency-percentile" key:"e2e_processing_latency_percentiles" default:"" help:"percentiles (0.0 to 1.0) of the time from put to finish (repeat, or with commas)"`
	E2EProcessingWindowTime time.Duration `flag:"e2e-processing-latency-window-time" default:"10m" min:"1s" help:"window of these percentiles"`
}

// TLSRequired says which clients must use TLS.
type TLSRequired string

// Values of TLSRequired.
const (
	TLSNotRequired        TLSRequired = "false"
	TLSRequiredAll        TLSRequired = "true"
	TLSRequiredExceptHTTP TLSRequired = "tcp-https"
)
