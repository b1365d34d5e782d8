package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Compression of the connections.
type Compression int

// The compressions. A broker that does not offer the chosen one is not used.
const (
	NoCompression Compression = iota
	Snappy
	Deflate
)

// Options of a client. The zero value is ready for use.
type Options struct {
	// Token is the secret of AUTH and the bearer token of discovery. It is sent to brokers
	// that ask for one.
	Token string
	// TLS, if not nil, encrypts all connections; ServerName is by default the address's host.
	TLS *tls.Config
	// Compression of the connections.
	Compression Compression
	// ClientID names the client in the brokers' statistics.
	ClientID string
	// Heartbeat is the interval of the brokers' heartbeats, 1 s to 60 s, by default 2 s. A
	// broker that is silent for 2.5 intervals counts as dead.
	Heartbeat time.Duration
	// DialTimeout bounds a connection's beginning, with TLS and AUTH; by default 3 s.
	DialTimeout time.Duration
	// DiscoverEvery is the interval at which URLs are asked for the brokers; by default 30 s.
	DiscoverEvery time.Duration
	// Dialer opens sockets; by default a net.Dialer.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Observer receives events; nil = none.
	Observer Observer
	// Tracer starts spans; nil = none.
	Tracer Tracer
}

func (o *Options) complete() error {
	if o.Heartbeat == 0 {
		o.Heartbeat = 2 * time.Second
	}
	if o.Heartbeat < time.Second || o.Heartbeat > time.Minute {
		return fmt.Errorf("lockstep: Heartbeat %s is not between 1s and 1m", o.Heartbeat)
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 3 * time.Second
	}
	if o.DiscoverEvery <= 0 {
		o.DiscoverEvery = 30 * time.Second
	}
	if o.Dialer == nil {
		o.Dialer = (&net.Dialer{}).DialContext
	}
	if o.Observer == nil {
		o.Observer = NoObserver{}
	}
	return nil
}

const (
	// firstPause and longestPause bound the pause before an address that failed is tried
	// again; each failure doubles it.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// Client knows the brokers of a cluster. All its methods may be called by any goroutine.
type Client struct {
	o    Options
	urls []string // of the brokers' HTTP ports
	http *http.Client
	ctx  context.Context // ends with Close
	end  context.CancelFunc
	gone sync.WaitGroup
	ask  chan struct{} // capacity 1: a broker failed, ask for the brokers again

	mu struct {
		sync.Mutex
		addresses []*address
		topic     string // of the last connection, for GET /lookup
		producers map[*Producer]struct{}
	}
}

// address is one broker, with its last failures.
type address struct {
	hostPort string
	given    bool // by the application: it stays
	failures int
	retryAt  time.Time
}

// Open connects to one of the brokers, to check the addresses, TLS and the token, and returns
// a client. Without a broker that answers it returns an error when ctx ends, or when all
// addresses have failed. An address is host:port of a TCP port, or the URL of an HTTP port.
func Open(ctx context.Context, addresses []string, o Options) (*Client, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Client{o: o, ask: make(chan struct{}, 1)}
	c.mu.producers = map[*Producer]struct{}{}
	for _, a := range addresses {
		if err := c.give(a); err != nil {
			return nil, err
		}
	}
	if len(addresses) == 0 {
		return nil, errors.New("lockstep: no address")
	}
	c.http = &http.Client{Timeout: o.DialTimeout, Transport: &http.Transport{TLSClientConfig: o.TLS, DialContext: o.Dialer}}
	c.ctx, c.end = context.WithCancel(context.Background())
	if err := c.probe(ctx); err != nil {
		c.Close(ctx)
		return nil, err
	}
	if len(c.urls) > 0 {
		c.gone.Go(c.keepDiscovering)
	}
	return c, nil
}

// give takes one address of the application.
func (c *Client) give(a string) error {
	if strings.Contains(a, "://") {
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return fmt.Errorf("lockstep: %q is not an address: want host:port, http://host:port or https://host:port", a[strings.LastIndex(a, "@")+1:])
		}
		c.urls = append(c.urls, u.Scheme+"://"+u.Host)
		return nil
	}
	if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
		return fmt.Errorf("lockstep: %q is not an address: want host:port or a URL", a[strings.LastIndex(a, "@")+1:])
	}
	c.mu.addresses = append(c.mu.addresses, &address{hostPort: a, given: true})
	return nil
}

// probe connects to the brokers, one after the other, until one answers.
func (c *Client) probe(ctx context.Context) error {
	found := c.discover(ctx, "")
	c.mu.Lock()
	all := append([]*address(nil), c.mu.addresses...)
	c.mu.Unlock()
	if len(all) == 0 && errors.Is(found, errNoRight) {
		return nil // the brokers of a topic are asked for with its name
	}
	last := found
	for _, i := range rand.Perm(len(all)) {
		n, err := c.dial(ctx, all[i].hostPort, 0)
		if err == nil {
			n.fail(errRetired)
			return nil
		}
		c.failed(all[i].hostPort, err)
		last = err
	}
	return last
}

// Close ends the client: its producers are closed as by [Producer.Close] with ctx. Consume is
// ended by its own context. Close returns the first producer's error.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	var all []*Producer
	for p := range c.mu.producers {
		all = append(all, p)
	}
	c.mu.Unlock()
	var first error
	for _, p := range all {
		if err := p.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	c.end()
	c.gone.Wait()
	c.http.CloseIdleConnections()
	return first
}

// pick selects the broker for the next connection, and how long to wait before: one that did
// not fail, at random, else the one whose pause ends first. ok is false if no broker is known.
func (c *Client) pick() (hostPort string, wait time.Duration, ok bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *address
	good := 0
	for _, a := range c.mu.addresses {
		switch {
		case a.failures == 0:
			if good++; rand.IntN(good) == 0 {
				best = a
			}
		case good == 0 && (best == nil || a.retryAt.Before(best.retryAt)):
			best = a
		}
	}
	if best == nil {
		return "", firstPause, false
	}
	if best.failures == 0 {
		return best.hostPort, 0, true
	}
	return best.hostPort, max(0, best.retryAt.Sub(now)), true
}

// failed notes that a broker cannot serve now.
func (c *Client) failed(hostPort string, why error) {
	c.mu.Lock()
	for _, a := range c.mu.addresses {
		if a.hostPort == hostPort {
			pause := min(longestPause, firstPause<<min(a.failures, 8))
			a.failures++
			a.retryAt = time.Now().Add(pause/2 + rand.N(pause))
		}
	}
	c.mu.Unlock()
	signal(c.ask)
	c.o.Observer.Disconnected(hostPort, why)
}

// succeeded notes that a broker serves.
func (c *Client) succeeded(hostPort string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.mu.addresses {
		if a.hostPort == hostPort {
			a.failures = 0
		}
	}
}

// connect makes one attempt at a connection, after the pause that failures call for, and after
// patience at the latest.
func (c *Client) connect(ctx context.Context, topic string, msgTimeout, patience time.Duration) (*conn, error) {
	c.mu.Lock()
	c.mu.topic = topic
	c.mu.Unlock()
	hostPort, wait, ok := c.pick()
	if !ok {
		if err := c.discover(ctx, topic); err != nil {
			_ = sleep(ctx, firstPause) // the end of ctx is found by the caller
			return nil, err
		}
		if hostPort, wait, ok = c.pick(); !ok {
			_ = sleep(ctx, firstPause)
			return nil, &Error{Op: "discover", Topic: topic, kinds: []error{ErrUnreachable}, Text: "no broker is known"}
		}
	}
	if err := sleep(ctx, min(wait, patience)); err != nil {
		return nil, err
	}
	n, err := c.dial(ctx, hostPort, msgTimeout)
	if err != nil {
		c.failed(hostPort, err)
	}
	return n, err
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
