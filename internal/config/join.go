package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// The files of --tls-dir, as `nsqctl cert broker` writes them.
const (
	AuthorityFile   = "ca.crt"
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
)

// maxHostName bounds a host name, and maxLabel each of its parts (RFC 1035).
const (
	maxHostName = 253
	maxLabel    = 63
)

// IsBrokerHost reports whether a text is a host name that --join accepts. An IP address is refused: the name is a
// broker's identity, and an address may change. Capitals are refused: names of brokers are compared exactly.
func IsBrokerHost(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || len(name) > maxHostName {
		return false
	}
	return areLabels(name)
}

// IsCertificateName reports whether a text may stand in a certificate as a host: a name, *.NAME, or an IP address.
func IsCertificateName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return len(name) <= maxHostName && areLabels(strings.TrimPrefix(name, "*."))
}

func areLabels(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || label[0] == '-' {
			return false
		}
	}
	return true
}

// derive sets what --join implies, except for the settings that were given.
func (l *loader) derive() {
	o := &l.options
	if len(o.Join) == 0 {
		return
	}
	for i, name := range o.Join {
		if !IsBrokerHost(name) {
			l.fault("--join=%s: must be the host name of a broker, in lower case and without a port: the name is the broker's identity", name)
			return
		}
		if slices.Contains(o.Join[:i], name) {
			l.fault("--join names %s twice", name)
			return
		}
	}
	if len(o.EtcdEndpoints) > 0 {
		l.fault("--etcd-endpoints (external etcd) and --join (embedded) exclude each other")
		return
	}
	if !o.Insecure {
		l.deriveTLS(o)
	}
	_, given := l.given["node-name"]
	own := ownName(o.Join, o.NodeName, given)
	if own == "" {
		l.fault("--join=%s does not name this broker, %q: give the name of this host in the list with --node-name", strings.Join(o.Join, ","), o.NodeName)
		return
	}
	imply(l, "node-name", &o.NodeName, own)
	imply(l, "broadcast-address", &o.BroadcastAddress, own)
	for flag, address := range map[string]*string{
		"rpc-address": &o.RPCAddress, "etcd-client-address": &o.EtcdClientAddress, "etcd-peer-address": &o.EtcdPeerAddress,
	} {
		if _, port, err := net.SplitHostPort(*address); err == nil {
			imply(l, flag, address, net.JoinHostPort("0.0.0.0", port))
		}
	}
	l.deriveMembers(o)
}

// ownName is the name of this broker in --join; "" if it is not in the list. A default name, that of the host, may also
// be the first part of one name in the list.
func ownName(join []string, name string, given bool) string {
	if slices.Contains(join, name) {
		return name
	}
	if given {
		return ""
	}
	host := strings.ToLower(name)
	if slices.Contains(join, host) {
		return host
	}
	var found []string
	for _, n := range join {
		if first, _, _ := strings.Cut(n, "."); first == host {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// deriveTLS names the files of --tls-dir. A certificate that was given keeps its own key and authority.
func (l *loader) deriveTLS(o *Options) {
	ca, cert, key := filepath.Join(o.TLSDir, AuthorityFile), filepath.Join(o.TLSDir, CertificateFile), filepath.Join(o.TLSDir, KeyFile)
	if count(o.RPCTLSCert, o.RPCTLSKey, o.RPCTLSCA) == 0 {
		imply(l, "rpc-tls-cert", &o.RPCTLSCert, cert)
		imply(l, "rpc-tls-key", &o.RPCTLSKey, key)
		imply(l, "rpc-tls-ca", &o.RPCTLSCA, ca)
	}
	if count(o.TLSCert, o.TLSKey) == 0 {
		imply(l, "tls-cert", &o.TLSCert, cert)
		imply(l, "tls-key", &o.TLSKey, key)
	}
	if o.TLSClientAuthPolicy == "require-verify" {
		imply(l, "tls-root-ca-file", &o.TLSRootCAFile, ca)
	}
}

// deriveMembers lists the members of the embedded etcd: all of them use this member's port.
func (l *loader) deriveMembers(o *Options) {
	_, port, err := net.SplitHostPort(o.EtcdPeerAddress)
	if err != nil {
		return // validateExposure has the fault
	}
	scheme := "http"
	if o.RPCTLSCert != "" {
		scheme = "https"
	}
	var members []string
	for _, name := range o.Join {
		members = append(members, name+"="+scheme+"://"+net.JoinHostPort(name, port))
	}
	imply(l, "etcd-initial-cluster", &o.EtcdInitialCluster, strings.Join(members, ","))
}

func imply(l *loader, flag string, setting *string, value string) {
	if _, given := l.given[flag]; given {
		return
	}
	*setting = value
	l.origin[flag] = origin{source: "implied by join"}
}
