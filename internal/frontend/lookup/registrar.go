package lookup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Identity is the broker's part of IDENTIFY. The ports are those for clients.
type Identity struct {
	Version          string `json:"version"`
	TCPPort          int    `json:"tcp_port"`
	HTTPPort         int    `json:"http_port"`
	Hostname         string `json:"hostname"`
	BroadcastAddress string `json:"broadcast_address"`
	TopologyZone     string `json:"topology_zone"`
	TopologyRegion   string `json:"topology_region"`
}

// Options say what to register and when.
type Options struct {
	Identity Identity
	// Topics returns the topics to register, with their channels: those that the broker leads. Any goroutine may call it.
	Topics func() []api.TopicStats
	// Refresh is how often Topics is called without a Notify (default 1 s); Ping is how often an idle connection is
	// used (default 15 s).
	Refresh, Ping time.Duration
	// ConnectTimeout and RequestTimeout are for the HTTP queries of Channels; each TCP exchange has one second.
	ConnectTimeout, RequestTimeout time.Duration
	Log                            logrus.FieldLogger
}

// Registrar updates the registrations at all nsqlookupds.
type Registrar struct {
	opts Options
	mu   struct {
		sync.Mutex
		addresses []string // in the configured order
		peers     map[string]*peer
		closed    bool
	}
}

// New starts to register with the daemons at these addresses (host:port).
func New(o Options, addresses []string) *Registrar {
	o.Refresh, o.Ping = cmp.Or(o.Refresh, time.Second), cmp.Or(o.Ping, 15*time.Second)
	r := &Registrar{opts: o}
	r.mu.peers = map[string]*peer{}
	r.SetAddresses(addresses)
	return r
}

// maxAddresses bounds the daemons: each has a connection and a goroutine.
const maxAddresses = 32

// errInvalid means that there are too many daemon addresses, or that one of them is not an address.
var errInvalid = errors.New("lookup: invalid addresses of nsqlookupds")

// Validate checks addresses before SetAddresses: at most maxAddresses, each host:port.
func Validate(addresses []string) error {
	if len(addresses) > maxAddresses {
		return fmt.Errorf("%w: %d, at most %d", errInvalid, len(addresses), maxAddresses)
	}
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		number, notNumber := strconv.Atoi(port)
		if err != nil || notNumber != nil || !validEndpoint(host, number) {
			return fmt.Errorf("%w: %q is not host:port", errInvalid, a)
		}
	}
	return nil
}

// validEndpoint reports whether a host is an IP address or a DNS name, and the port is valid. A daemon that names
// itself host/path or user@host would otherwise direct the broker's requests.
func validEndpoint(host string, port int) bool {
	if port < 1 || port > 65535 || host == "" || len(host) > maxHost {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.ContainsFunc(host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}

// maxHost is the length of the longest DNS name.
const maxHost = 253

// SetAddresses replaces the daemons. It closes the connections to daemons that are not listed, which removes this
// broker's registrations there.
func (r *Registrar) SetAddresses(addresses []string) {
	configured := map[string]bool{}
	r.mu.Lock()
	if r.mu.closed {
		addresses = nil
	}
	r.mu.addresses = slices.Clone(addresses)
	for _, a := range addresses {
		configured[a] = true
		if r.mu.peers[a] == nil {
			r.mu.peers[a] = startPeer(r.opts, a)
		}
	}
	var gone []*peer
	for a, p := range r.mu.peers {
		if !configured[a] {
			gone = append(gone, p)
			delete(r.mu.peers, a)
		}
	}
	r.mu.Unlock()
	for _, p := range gone {
		p.cancel()
		<-p.done
	}
}

// Addresses returns the addresses of the daemons in the configured order; never nil.
func (r *Registrar) Addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.mu.addresses...)
}

// Notify sends changes to every daemon at once.
func (r *Registrar) Notify() {
	for _, p := range r.peers() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Close ends all connections.
func (r *Registrar) Close() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	r.SetAddresses(nil)
}

func (r *Registrar) peers() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.mu.peers))
}

type registration struct{ topic, channel string }

func registrations(topics []api.TopicStats) map[registration]bool {
	set := map[registration]bool{}
	for _, t := range topics {
		set[registration{topic: t.TopicName}] = true
		for i := range t.Channels {
			set[registration{t.TopicName, t.Channels[i].ChannelName}] = true
		}
	}
	return set
}
