package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/frontend/webui"
)

type clients struct {
	users     *access.Registry
	memory    *limits.Budget   // for bodies, unanswered puts, and messages and answers that clients do not read
	audit     *guard.AuditFile // nil without --audit-file
	tls       *listen.TLS      // nil without certificates
	authTLS   *tls.Config      // for auth services
	sockets   *listen.Server
	standby   *standby
	guard     *guard.Guard
	tcp       *tcp.Handler
	consumers *consume.Sessions // by HTTP; nil until serve
	console   *console.Console
}

// listen binds the sockets for clients and for other brokers.
func (p *process) listen() (err error) {
	c := &p.clients
	if c.authTLS, err = listen.RequestTLS(p.o.ClientTLS); err != nil {
		return err
	}
	if p.o.TLSCert != "" {
		if c.tls, err = listen.LoadTLS(p.o.ClientTLS); err != nil {
			return err
		}
	}
	if c.sockets, err = listen.Listen(p.serverOptions()); err != nil {
		return err
	}
	port, err := net.Listen("tcp", p.o.RPCAddress)
	if err != nil {
		return err
	}
	p.peers.port = port.(*net.TCPListener)
	if err := certificateFault(p.o.RPCTLSCert, p.peerAddress()); err != nil {
		p.log.WithError(err).WithField("file", p.o.RPCTLSCert).Warn("other brokers will refuse this one's certificate")
	}
	return nil
}

// answer opens the ports for clients. Until serve is called, requests wait, and are answered with the reason why the
// broker does not serve yet when they have waited for too long.
func (p *process) answer() {
	c := &p.clients
	c.standby = newStandby(p.log, p.metrics, p.o.PutHold)
	c.standby.step("reading the data path")
	c.guard = guard.New(guard.Options{
		Users: c.users, External: p.authorizer(), NotReady: c.standby.why, Answered: p.metrics.Answered, AuditFile: c.audit, Log: p.log,
	})
	c.tcp = tcp.New(p.protocolOptions(), tcp.Backend{
		Publisher: c.standby, Subscribers: c.standby, Await: c.standby.await, Guard: c.guard, Metrics: p.metrics, Memory: c.memory, Log: p.log,
	})
	api := c.standby.port(func(b *backends) http.Handler { return b.api })
	h := listen.Handlers{
		TCP: c.tcp, HTTP: api, HTTPS: api,
		Lookup: c.standby.port(func(b *backends) http.Handler { return b.lookup }),
	}
	if p.o.TLSRequired == config.TLSRequiredAll {
		h.HTTP = httpapi.RequireTLS(h.HTTP, c.sockets.Number(listen.HTTPS))
		h.Lookup = httpapi.RequireTLS(h.Lookup, c.sockets.Number(listen.HTTPS))
	}
	c.sockets.Start(h)
}

// serve connects the ports for clients to the broker.
func (p *process) serve() {
	if err := lookup.Validate(p.o.LookupdTCPAddress); err != nil {
		p.log.WithError(err).Error("not registering with any nsqlookupd: correct --lookupd-tcp-address")
	} else {
		p.lookup.SetAddresses(p.o.LookupdTCPAddress)
	}
	c := &p.clients
	publisher, subscribers := p.traces.Publisher(p.broker.Gateway), p.traces.Subscribers(p.broker.Gateway)
	c.consumers = consume.New(p.consumerOptions(), subscribers, p.broker.Gateway)
	c.console = console.New(p.consoleOptions())
	p.broker.AnswerConsole(c.console.Answer)
	names := []string{p.o.BroadcastAddress, p.node.Hostname, p.o.NodeName}
	page, ops := http.NewServeMux(), p.broker.Admin
	backend := httpapi.Backend{
		Publisher: publisher, Stats: p.broker.Inspector, Directory: p.broker.Directory, Inspector: p.broker.Inspector,
		Admin: ops, Planner: ops, Channels: ops, Recovery: ops, Tracer: ops,
		Config: &liveConfig{o: p.o, log: p.log, lookup: p.lookup}, Metrics: p.metrics.Handler(), Recorder: p.metrics, Log: p.log,
		Users: c.users, Admission: p.peers.admission, Guard: c.guard, Browsers: guard.NewBrowsers(append(names, p.o.HTTPAllowedHost...)...), Console: c.console,
		Memory: c.memory, Consumers: c.consumers, Producers: c.tcp.Producers, Page: page,
	}
	for _, f := range webui.Files() {
		page.Handle(f.Path, f)
	}
	options := p.httpOptions()
	c.standby.serve(backends{
		publisher: publisher, subscribers: subscribers,
		api: p.traces.HTTP(httpapi.NSQD(options, backend)), lookup: httpapi.Lookup(options, backend),
	})
}

func (c *clients) drain() {
	if c.consumers != nil {
		c.consumers.Stop() // otherwise their polls would be waited for
	}
	if c.sockets != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		c.sockets.Stop(ctx)
	}
}

// count counts the clients of this broker by what they do. A session over HTTP is a consumer.
func (c *clients) count() (consumers, producers, idle int) {
	consumers, producers, idle = c.tcp.Clients()
	return consumers + c.consumers.Count(), producers, idle
}

// minBootstrap is the least length of a bootstrap token in bytes: it is compared, not hashed slowly, and is in a file
// that a person may have typed.
const minBootstrap = 32

// openUsers makes the register of users. It is empty, and lets no client do anything, until the metadata has answered.
func openUsers(o config.Options, dir string, log logrus.FieldLogger) (*access.Registry, error) {
	token, err := bootstrapToken(o)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-admin-token-file: %w", err)
	}
	a := access.Options{
		Keys: metadata.Keys{Cluster: o.ClusterName}, Bootstrap: token, Enforce: len(o.AuthHTTPAddress) > 0 || o.RequireUsers, Log: log,
	}
	if token == nil {
		if a.First, a.FirstFile, err = access.OpenFirst(dir); err != nil {
			return nil, fmt.Errorf("the secret for the first administrator: %w", err)
		}
	}
	return access.NewRegistry(a), nil
}

// bootstrapToken reads the token of --bootstrap-admin-token-file; nil without one.
func bootstrapToken(o config.Options) ([]byte, error) {
	token, err := secret("", o.BootstrapAdmin)
	if err == nil && token != nil && len(token) < minBootstrap {
		err = fmt.Errorf("the token has %d characters, at least %d are required", len(token), minBootstrap)
	}
	return token, err
}

// mayPublish reports whether a user may publish to a topic now. The answer is no until the users have been read.
func (p *process) mayPublish(user, topic string) bool {
	policy := p.clients.users.Policy()
	return policy != nil && policy.AllowUser(user, access.Publish, topic)
}

// awaitUsers returns when the users have been read. No port serves clients before that.
func (p *process) awaitUsers(ctx context.Context) error {
	users := p.clients.users
	for {
		changed := users.Changed()
		if policy := users.Policy(); policy != nil {
			switch {
			case !policy.Enforced():
				p.warnOfOpenPorts()
			case !policy.Administered() && len(p.o.AuthHTTPAddress) == 0 && p.o.BootstrapAdmin == "":
				p.log.WithField("file", users.FirstFile()).Warn("refusing all clients until there is an administrator: run `nsqctl user create root --admin` on this machine, as root or as the user of this process; it reads the secret in this file")
			}
			return nil
		}
		p.clients.standby.step("reading the users")
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// warnOfOpenPorts says that a cluster without users is open to a network.
func (p *process) warnOfOpenPorts() {
	s := p.clients.sockets
	for _, a := range []net.Addr{s.Addr(listen.TCP), s.Addr(listen.HTTP), s.Addr(listen.HTTPS)} {
		if tcp, ok := a.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			p.log.WithField("address", a).Warn("port is open to the network without authentication: every client that reaches it may do everything, as --insecure-clients or --insecure-http allows, until the first user is created (nsqctl user create --help)")
		}
	}
}
