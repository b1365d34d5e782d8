package main

import (
	"context"
	"fmt"
	"net"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
)

// minBootstrap is the least length of a bootstrap token in bytes: it is compared, not hashed
// slowly, and lies in a file that somebody may have typed.
const minBootstrap = 32

// openUsers makes the register of users. It knows none yet: until the metadata has answered,
// no client may do anything.
func (p *process) openUsers() error {
	token, err := bootstrapToken(p.o)
	if err != nil {
		return fmt.Errorf("--bootstrap-admin-token-file: %w", err)
	}
	o := access.Options{
		Keys: metadata.Keys{Cluster: p.o.ClusterName}, Bootstrap: token, Enforce: len(p.o.AuthHTTPAddress) > 0 || p.o.RequireUsers, Log: p.log,
	}
	if token == nil {
		if o.First, o.FirstFile, err = access.OpenFirst(p.dir); err != nil {
			return fmt.Errorf("the secret for the first administrator: %w", err)
		}
	}
	p.users = access.NewRegistry(o)
	return nil
}

// mayPublish reports whether a user may publish to a topic now. Nobody may while the users are not known.
func (p *process) mayPublish(user, topic string) bool {
	policy := p.users.Policy()
	return policy != nil && policy.AllowUser(user, access.Publish, topic)
}

// bootstrapToken reads the token of --bootstrap-admin-token-file; nil without one.
func bootstrapToken(o config.Options) ([]byte, error) {
	token, err := secret("", o.BootstrapAdmin)
	if err == nil && token != nil && len(token) < minBootstrap {
		err = fmt.Errorf("the token has %d characters, it must have %d at least", len(token), minBootstrap)
	}
	return token, err
}

// watchUsers follows the users, and ends subscriptions that lose their right, until the
// process stops.
func (p *process) watchUsers() {
	ctx, cancel := context.WithCancel(context.Background())
	p.watches.Go(func() { // ends with the process
		<-p.quit
		cancel()
	})
	p.watches.Go(func() { p.users.Watch(ctx, p.meta) })
	p.watches.Go(func() { p.tcp.Recheck(ctx) })
}

// awaitUsers returns when the users are known: before that no door may open.
func (p *process) awaitUsers(ctx context.Context) error {
	for {
		changed := p.users.Changed()
		if policy := p.users.Policy(); policy != nil {
			switch {
			case !policy.Enforced():
				p.warnOfStrangers()
			case !policy.Administered() && len(p.o.AuthHTTPAddress) == 0 && p.o.BootstrapAdmin == "":
				p.log.WithField("file", p.users.FirstFile()).Warn("refusing all clients until there is an administrator: run `nsqctl user create root --admin` on this machine, as root or as the user of this process; it reads the secret in this file")
			}
			return nil
		}
		p.standby.step("reading the users")
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// warnOfStrangers says that a cluster without users is open to a network.
func (p *process) warnOfStrangers() {
	for _, a := range []net.Addr{p.sockets.TCPAddr(), p.sockets.HTTPAddr(), p.sockets.HTTPSAddr()} {
		if tcp, ok := a.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			p.log.WithField("address", a).Warn("port is open to the network without authentication: every client that reaches it may do everything, as --insecure-clients or --insecure-http allows, until the first user is created (nsqctl user create --help)")
		}
	}
}

// browsers holds the names that this broker goes by.
func (p *process) browsers() *guard.Browsers {
	names := append([]string{p.o.BroadcastAddress, p.node.Hostname, p.o.NodeName}, p.o.HTTPAllowedHost...)
	return guard.NewBrowsers(names...)
}
