package main

import (
	"context"
	"fmt"
	"net"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
)

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
