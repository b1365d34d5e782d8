package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// metadataTimeout bounds one request to the metadata.
	metadataTimeout = 2 * time.Second
	// retryMetadataEvery is the pause between requests without an answer.
	retryMetadataEvery = 500 * time.Millisecond
)

type metadataStore struct {
	etcd   *etcd.Server    // the embedded member; nil with an external etcd
	config metadata.Config // of store, without the password
	store  *metadata.Etcd
}

// openMetadata connects to the external etcd, or starts the embedded member and waits until its cluster has a leader.
func (p *process) openMetadata(ctx context.Context) (err error) {
	c := metadata.Config{Endpoints: p.o.EtcdEndpoints, Username: p.o.EtcdUsername}
	if p.o.EmbedsEtcd() {
		if err = p.startEtcd(ctx); err != nil {
			return err
		}
		c.Endpoints = []string{p.meta.etcd.Local()}
	} else if c.TLS, err = externalTLS(p.o, p.log); err != nil {
		return err
	}
	p.meta.config = c
	p.clients.standby.step("connecting to the metadata")
	for {
		password, err := secret(p.o.EtcdPassword, p.o.EtcdPasswordFile) // read for each attempt: the file may be at fault
		if err != nil {
			return err
		}
		c.Password = string(password)
		if p.meta.store, err = metadata.DialEtcd(ctx, c); err == nil || !answered(err) || ctx.Err() != nil {
			return err
		}
		p.clients.standby.say(p.whyNoMetadata(ctx, err))
		concurrency.Sleep(ctx, retryMetadataEvery)
	}
}

// answered reports whether the etcd itself refused a login: a fault of the settings does not go away. Any other
// failure is one of the connection.
func answered(err error) bool {
	_, known := errors.AsType[rpctypes.EtcdError](err)
	_, remote := status.FromError(err)
	return known || remote || errors.Is(err, context.DeadlineExceeded)
}

func (p *process) awaitMetadata(ctx context.Context) error {
	for {
		err := p.askMetadata(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, metadata.ErrWentBack) {
			return err
		}
		p.clients.standby.say(p.whyNoMetadata(ctx, err))
		concurrency.Sleep(ctx, retryMetadataEvery)
	}
}

// askMetadata reads this broker's key in the metadata, which need not exist.
func (p *process) askMetadata(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	_, err := p.meta.store.Get(ask, metadata.Keys{Cluster: p.o.ClusterName}.Node(ident.Node(p.o.NodeName)))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	return err
}

// whyNoMetadata returns a sentence that says why the metadata store does not answer; err is the error of a request of
// this broker.
func (p *process) whyNoMetadata(ctx context.Context, err error) string {
	if p.meta.etcd != nil {
		return p.meta.etcd.Missing(ctx)
	}
	why := "waiting for the metadata: " + withoutOwnPorts(err)
	if path := p.meta.config.Explain(ctx); path != nil {
		why += "; " + withoutOwnPorts(path)
	}
	return why
}

// withoutOwnPorts returns an error as one line, without the local ports of connections, so that the same fault has the
// same text.
func withoutOwnPorts(err error) string {
	return ownPort.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", "; "), "")
}

var ownPort = regexp.MustCompile(`[0-9.]+:[0-9]+->|\[[0-9a-f:]+\]:[0-9]+->`)
