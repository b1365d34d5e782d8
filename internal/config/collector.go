package config

import (
	"fmt"
	"net"
	"net/url"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// Collector reads --otlp-endpoint: the address to dial, and whether without TLS.
func Collector(endpoint string) (address string, plain bool, err error) {
	address = endpoint
	scheme := ""
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			return "", false, fmt.Errorf("%q must be host:port, http://host:port or https://host:port", redact.Address(endpoint))
		}
		scheme, address = u.Scheme, u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || scheme != "" && scheme != "http" && scheme != "https" {
		return "", false, fmt.Errorf("%q must be host:port, http://host:port or https://host:port", redact.Address(endpoint))
	}
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	return address, scheme == "http" || scheme == "" && local, nil
}
