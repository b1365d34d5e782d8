package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// validate checks the rules that the tags of one field cannot express. A value that cannot be parsed has its default
// here; its fault is already recorded.
func (l *loader) validate() {
	o := &l.options
	l.validateAddresses(o)
	l.validateCombinations(o)
	l.validateClientTLS(o)
	l.validateObserve(o)
	l.validateBodies(o)
	l.validateClients(o)
	l.validateCluster(o)
	l.validateExposure(o)
	l.validateClientExposure(o)
	l.validateTopicDefaults(o)
}

func (l *loader) fault(format string, args ...any) { l.faults.add(errInvalid, format, args...) }

func (l *loader) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// validateCombinations refuses settings that are given without others, or with others that exclude them.
func (l *loader) validateCombinations(o *Options) {
	for _, group := range []struct {
		flags  string
		values []string
	}{
		{"--tls-cert and --tls-key", []string{o.TLSCert, o.TLSKey}},
		{"--rpc-tls-cert, --rpc-tls-key and --rpc-tls-ca", []string{o.RPCTLSCert, o.RPCTLSKey, o.RPCTLSCA}},
		{"--etcd-tls-cert and --etcd-tls-key", []string{o.EtcdTLSCert, o.EtcdTLSKey}},
		{"--etcd-username and --etcd-password-file (or $NSQD_ETCD_PASSWORD)", []string{o.EtcdUsername, o.EtcdPasswordFile + string(o.EtcdPassword)}},
	} {
		if n := count(group.values...); n != 0 && n != len(group.values) {
			l.fault("%s go together", group.flags)
		}
	}
	for _, pair := range []struct {
		flags string
		both  bool
	}{
		{"--etcd-endpoints (external etcd) and --etcd-initial-cluster (embedded)", len(o.EtcdEndpoints) > 0 && o.EtcdInitialCluster != ""},
		{"--etcd-password-file and $NSQD_ETCD_PASSWORD", o.EtcdPasswordFile != "" && o.EtcdPassword != ""},
		{"--cluster-token-file and $NSQD_CLUSTER_TOKEN", o.ClusterTokenFile != "" && o.ClusterToken != ""},
	} {
		if pair.both {
			l.fault("%s exclude each other", pair.flags)
		}
	}
}

func (l *loader) validateClientTLS(o *Options) {
	if o.TLSClientAuthPolicy != "" && o.TLSRequired == TLSNotRequired {
		o.TLSRequired = TLSRequiredAll
		l.origin["tls-required"] = origin{source: "implied by tls_client_auth_policy"}
	}
	if o.TLSRequired != TLSNotRequired && (o.TLSCert == "" || o.TLSKey == "") {
		l.fault("--tls-required (or --tls-client-auth-policy) requires --tls-cert and --tls-key")
	}
	if (o.TLSMinVersion == "tls1.0" || o.TLSMinVersion == "tls1.1") && !o.InsecureTLS {
		l.fault("--tls-min-version=%s: TLS 1.0 and 1.1 are broken; leave the setting out (TLS 1.2 and later), or allow them with --insecure-tls", o.TLSMinVersion)
	}
	if o.TLSClientAuthPolicy == "require-verify" && o.TLSRootCAFile == "" {
		l.warn("--tls-client-auth-policy=require-verify without --tls-root-ca-file trusts the system's authorities")
	}
}

func (l *loader) validateObserve(o *Options) {
	for _, p := range o.E2EPercentiles {
		if !(p > 0 && p <= 1) { // NaN is neither
			l.fault("--e2e-processing-latency-percentile=%v: must be above 0 and at most 1", p)
		}
	}
	if o.OTLPEndpoint != "" {
		if _, _, err := Collector(o.OTLPEndpoint); err != nil {
			l.fault("--otlp-endpoint: %v", err)
		}
	}
	if !(o.TraceSample >= 0 && o.TraceSample <= 1) {
		l.fault("--trace-sample=%v must be 0.0 to 1.0", o.TraceSample)
	}
}

const (
	// bodyFraming is the number of bytes in a body in addition to its only message.
	bodyFraming = 64
	// bodyRoom is bodyFraming and the longest header of a message.
	bodyRoom = 65 << 10
)

// validateBodies makes the limit of bodies follow that of messages, which MPUB, /mpub and /v1/topic/append send as
// parts of a body. A limit that was set and is too small is refused.
func (l *loader) validateBodies(o *Options) {
	switch _, set := l.given["max-body-size"]; {
	case set && o.MaxBodySize < o.MaxMsgSize+bodyFraming:
		l.fault("--max-body-size=%d leaves no room for a message of --max-msg-size=%d, and MPUB and nsqctl import send it in a body: set at least %d, or leave it out", o.MaxBodySize, o.MaxMsgSize, o.MaxMsgSize+bodyFraming)
	case !set && o.MaxBodySize < o.MaxMsgSize+bodyRoom:
		o.MaxBodySize = o.MaxMsgSize + bodyRoom
		l.origin["max-body-size"] = origin{source: "implied by max_msg_size"}
	}
}

// validateClients warns about limits that a stock nsqd accepts silently.
func (l *loader) validateClients(o *Options) {
	if o.MinOutputBufferTimeout > o.MaxOutputBufferTimeout {
		l.warn("--min-output-buffer-timeout is above --max-output-buffer-timeout: clients cannot choose one")
	}
	if o.MsgTimeout > o.MaxMsgTimeout {
		l.warn("--msg-timeout is above --max-msg-timeout: clients cannot request the default, and TOUCH shortens it")
	}
	if o.MaxRdyCount == 0 {
		l.warn("--max-rdy-count=0: no consumer receives messages")
	}
	if o.HTTPConnectTimeout == 0 || o.HTTPRequestTimeout == 0 {
		l.warn("--http-client-connect-timeout or --http-client-request-timeout is 0: a client waits without a limit while the auth service hangs")
	}
	if n := len(o.LookupdTCPAddress); n > maxLookupds {
		l.fault("--lookupd-tcp-address: %d addresses, at most %d", n, maxLookupds)
	}
}

func (l *loader) validateCluster(o *Options) {
	l.validateName("node-name", o.NodeName)
	l.validateName("cluster-name", o.ClusterName)
	scheme, members := "http", o.Members()
	if o.RPCTLSCert != "" {
		scheme = "https"
	}
	if len(members) > 0 && !slices.Contains(members, o.NodeName) {
		l.fault("--etcd-initial-cluster does not name this broker, %q", o.NodeName)
	}
	for i, member := range nonEmpty(strings.Split(o.EtcdInitialCluster, ",")) {
		member = strings.TrimSpace(member)
		if _, url, _ := strings.Cut(member, "="); members[i] == "" || !isURL(url, true, scheme) {
			l.fault("--etcd-initial-cluster: %s must be NAME=%s://host:port (https with --rpc-tls-cert, http without)", redact.Address(member), scheme)
		}
		if slices.Contains(members[:i], members[i]) {
			l.fault("--etcd-initial-cluster names %s twice", members[i])
		}
	}
	for _, absent := range o.EtcdFoundWithout {
		if absent == o.NodeName || !slices.Contains(members, absent) {
			l.fault("--etcd-found-without=%s must name another member of --etcd-initial-cluster", absent)
		}
	}
	if len(o.EtcdEndpoints) > 0 && o.ReplicationFactor == 0 {
		l.warn("--etcd-endpoints without --replication-factor: the size of the cluster is unknown, so new topics get one replica")
	}
	if o.ReplicationFactor > 0 && o.MinInSync > o.ReplicationFactor {
		l.fault("--min-in-sync is above --replication-factor")
	}
	l.validateCopies(o)
	if strings.Count(o.RPCTLSName, "*") != 1 {
		l.fault("--rpc-tls-name=%s must contain one *, which stands for the node name", o.RPCTLSName)
	}
	if o.SessionTTL%time.Second != 0 {
		l.fault("--session-ttl must be whole seconds: etcd has no finer leases")
	}
}

// validateCopies warns if more replicas are configured than the cluster has brokers.
func (l *loader) validateCopies(o *Options) {
	size := o.ClusterSize()
	replicas := o.Replicas(size)
	switch {
	case o.MinInSync > replicas && o.ReplicationFactor == 0:
		l.warn("--min-in-sync=%d without --replication-factor: new topics get %d replicas, and --min-in-sync=%d", o.MinInSync, replicas, o.InSync(replicas))
	case o.EmbedsEtcd() && replicas > size:
		l.warn("--replication-factor=%d, but --etcd-initial-cluster names %d brokers: no topic can be created with fewer brokers than replicas", replicas, size)
	}
}

func (l *loader) validateName(flag, name string) {
	if name == "" || strings.ContainsAny(name, "/=, \t\n") {
		l.fault("--%s=%q: must not be empty or contain / = , or blanks", flag, name)
	}
}

// validateExposure refuses ports that would let any host on the network write to the logs of this cluster. The cluster
// token alone does not protect the RPC port: it authenticates the start of a connection, and neither encrypts nor
// authenticates what follows.
func (l *loader) validateExposure(o *Options) {
	secure := o.Insecure || o.RPCTLSCert != ""
	l.validateAddress("rpc-address", o.RPCAddress, secure)
	if o.EmbedsEtcd() {
		l.validateAddress("etcd-client-address", o.EtcdClientAddress, secure)
		l.validateAddress("etcd-peer-address", o.EtcdPeerAddress, secure)
	}
}

func (l *loader) validateAddress(flag, address string, secure bool) {
	host, port, _ := net.SplitHostPort(address)
	switch {
	case !isHostPort(address, true):
		l.fault("--%s=%s: must be host:port", flag, address)
	case port == "0" && strings.HasPrefix(flag, "etcd-"):
		l.fault("--%s=%s: must be a fixed port, because other brokers connect to it", flag, address)
	case !secure && !isLoopback(host):
		l.fault("--%s=%s is reachable from the network: give --rpc-tls-cert, --rpc-tls-key and --rpc-tls-ca, or allow it with --insecure (a cluster token alone does not protect what a connection carries)", flag, address)
	}
}

// loopback is the host of a default address if the broker serves only this machine.
const loopback = "127.0.0.1"

// validateClientExposure refuses ports that would let any host on the network use the cluster. A default address does
// not mean that the operator wants to serve a network: a single broker whose other settings name no network replaces it
// by one on loopback.
func (l *loader) validateClientExposure(o *Options) {
	if o.RequireUsers || len(o.AuthHTTPAddress) > 0 || o.BootstrapAdmin != "" {
		return // every client has to authenticate
	}
	// The system's authorities sign certificates for anyone, so client certificates signed by them prove nothing.
	certified := o.TLSClientAuthPolicy == "require-verify" && o.TLSRootCAFile != ""
	for _, port := range []struct {
		flag     string
		address  *string
		allowed  bool
		insecure string
	}{
		{"tcp-address", &o.TCPAddress, o.InsecureClients || certified, "insecure-clients"},
		{"http-address", &o.HTTPAddress, o.InsecureHTTP || certified && o.TLSRequired == TLSRequiredAll, "insecure-http"},
		{"https-address", &o.HTTPSAddress, o.InsecureHTTP || certified || o.TLSCert == "", "insecure-http"},
		{"lookupd-http-address", &o.LookupdHTTPAddress, o.InsecureHTTP || certified && o.TLSRequired == TLSRequiredAll, "insecure-http"},
	} {
		if port.allowed || !exposed(*port.address) {
			continue
		}
		_, given := l.origin[port.flag]
		_, number, err := net.SplitHostPort(*port.address)
		if !given && err == nil && l.servesThisMachine(o) {
			*port.address = net.JoinHostPort(loopback, number)
			l.origin[port.flag] = origin{source: "loopback: no client has to authenticate"}
			l.warn("--%s is %s, and not %s, because no client has to authenticate: give --require-users, --bootstrap-admin-token-file or --auth-http-address to serve a network, or --%s",
				port.flag, *port.address, net.JoinHostPort("0.0.0.0", number), port.insecure)
			continue
		}
		l.fault("--%s=%s is reachable from the network, and no client has to authenticate: give --require-users (then make the first user: nsqctl user create root --admin), --bootstrap-admin-token-file, "+
			"--auth-http-address, or --tls-client-auth-policy=require-verify with --tls-root-ca-file; or listen on %s; or allow it with --%s", port.flag, *port.address, loopback, port.insecure)
	}
}

// servesThisMachine reports whether no setting names a network. In that case default addresses are narrowed to
// loopback. The default addresses of a cluster are not, because its clients would find no broker.
func (l *loader) servesThisMachine(o *Options) bool {
	_, announced := l.origin["broadcast-address"]
	return o.EtcdInitialCluster == "" && o.EmbedsEtcd() && len(o.LookupdTCPAddress) == 0 &&
		(!announced || isLoopback(o.BroadcastAddress)) && !exposed(o.RPCAddress)
}

// exposed reports whether other machines reach an address: host:port beyond loopback, and not the path of a unix
// socket.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !isLoopback(host)
}

// maxLookupds bounds the external nsqlookupds: each has a connection and a goroutine.
const maxLookupds = 32

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func count(values ...string) (n int) {
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}
