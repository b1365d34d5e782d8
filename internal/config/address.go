package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// validateAddresses refuses addresses that no program could listen on, or connect to.
func (l *loader) validateAddresses(o *Options) {
	l.validateBroadcast(o.BroadcastAddress)
	for _, listener := range []struct{ flag, address string }{
		{"tcp-address", o.TCPAddress}, {"http-address", o.HTTPAddress}, {"https-address", o.HTTPSAddress}, {"lookupd-http-address", o.LookupdHTTPAddress},
	} {
		if listener.address == "" && listener.flag != "tcp-address" {
			continue // no listener
		}
		if !isSocketPath(listener.address) && !isHostPort(listener.address, true) {
			l.fault("--%s=%s: must be host:port, such as %s:4150, or the path of a unix socket with a / in it", listener.flag, listener.address, loopback)
		}
	}
	for _, a := range o.LookupdTCPAddress {
		if !isHostPort(a, false) {
			l.fault("--lookupd-tcp-address=%s: must be host:port", a)
		}
	}
	if o.StatsdAddress != "" && !isHostPort(o.StatsdAddress, false) {
		l.fault("--statsd-address=%s: must be host:port", o.StatsdAddress)
	}
	for _, a := range o.AuthHTTPAddress {
		target := a
		if !strings.Contains(a, "://") {
			target = "http://" + a
		}
		if !isURL(target, false, "http", "https") {
			l.fault("--auth-http-address=%s: must be host:port, or a URL with http:// or https://", redact.Address(a))
		}
	}
	for _, a := range o.EtcdEndpoints {
		if !isHostPort(a, false) && !isURL(a, true, "http", "https") {
			l.fault("--etcd-endpoints=%s: must be host:port, http://host:port or https://host:port", redact.Address(a))
		}
	}
}

// validateBroadcast checks the host that other brokers and clients connect to. The ports have settings of their own.
func (l *loader) validateBroadcast(host string) {
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && ip.IsUnspecified():
		l.fault("--broadcast-address=%q: clients and other brokers connect to it, so it must be one address of this host", host)
	case !isHost(host):
		l.fault("--broadcast-address=%q: must be a host name or an IP address alone; its ports are --broadcast-tcp-port and --broadcast-http-port", host)
	}
}

// isHost reports whether a text is an IP address, or may be the name of a host.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '-' && r != '_'
	})
}

// IsHostPort reports whether a text is host:port to connect to.
func IsHostPort(address string) bool { return isHostPort(address, false) }

// isHostPort reports whether a text is host:port. A listener may leave out the host (all addresses), and have port 0
// (the system chooses).
func isHostPort(address string, listener bool) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || !isHost(host) && !(listener && host == "") {
		return false
	}
	n, err := net.LookupPort("tcp", port) // a number, or the name of a service
	return err == nil && (n > 0 || listener)
}

// isSocketPath reports whether a text names a unix socket: a path, because 4150 or a host without a port would be the
// name of a file.
func isSocketPath(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err != nil && strings.Contains(address, "/") && !strings.Contains(address, "://")
}

// isURL reports whether a text is a URL with one of the schemes and a host.
func isURL(text string, needsPort bool, schemes ...string) bool {
	u, err := url.Parse(text)
	if err != nil || !isHost(u.Hostname()) {
		return false
	}
	if n, err := strconv.Atoi(u.Port()); err != nil && (needsPort || u.Port() != "") || err == nil && (n < 1 || n > 65535) {
		return false
	}
	return slices.Contains(schemes, u.Scheme)
}

// Collector reads --otlp-endpoint: the address to dial, and whether without TLS.
func Collector(endpoint string) (address string, plain bool, err error) {
	fault := fmt.Errorf("%q must be host:port, http://host:port or https://host:port", redact.Address(endpoint))
	scheme, address := "", endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			return "", false, fault
		}
		scheme, address = u.Scheme, u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || !slices.Contains([]string{"", "http", "https"}, scheme) {
		return "", false, fault
	}
	return address, scheme == "http" || scheme == "" && isLoopback(host), nil
}
