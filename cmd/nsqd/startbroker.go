package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
)

const checkMetadataEvery = 2 * time.Second

// startBroker starts the coordinator. If the metadata fails before the broker is registered, it waits and starts again.
func (p *process) startBroker(ctx context.Context) error {
	if err := p.trace(); err != nil {
		return err
	}
	options, err := p.brokerOptions()
	if err != nil {
		return err
	}
	p.node = options.Node
	p.lookup = lookup.New(p.lookupOptions(), nil) // without addresses: the broker does not serve yet
	for {
		if err := p.awaitMetadata(ctx); err != nil {
			return err
		}
		port, err := reuse(p.peers.port)
		if err != nil {
			return err
		}
		options.Listen = port
		endExplaining := p.explainStart(ctx)
		p.broker, err = coordinator.Start(ctx, options)
		endExplaining()
		switch {
		case err == nil:
			port.given.Store(true)
			return nil
		case ctx.Err() != nil, !errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown):
			return fmt.Errorf("start the broker: %w", err)
		}
		p.clients.standby.say("the metadata failed before this broker was registered; registering again: " + withoutOwnPorts(err))
		concurrency.Sleep(ctx, retryMetadataEvery)
	}
}

// explainStart reports why a start takes long, until the returned function is called: the broker reads its disk, or the
// metadata does not answer.
func (p *process) explainStart(ctx context.Context) (end func()) {
	const reading = "opening the store, and registering with the cluster"
	p.clients.standby.step(reading)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with the start of the broker
		defer close(done)
		for concurrency.Sleep(ctx, checkMetadataEvery) {
			switch err := p.askMetadata(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				p.clients.standby.say(p.whyNoMetadata(ctx, err))
			default:
				p.clients.standby.step(reading)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// reusablePort is the port for other brokers as a coordinator uses it. If the coordinator cannot start, Close only ends
// its use of the port. The next coordinator gets the same port, and no other process can bind it in between. A started
// coordinator closes the port itself, because other brokers detect a death by the closed port.
type reusablePort struct {
	*net.TCPListener
	given, closed atomic.Bool
}

func reuse(port *net.TCPListener) (*reusablePort, error) {
	return &reusablePort{TCPListener: port}, port.SetDeadline(time.Time{})
}

func (l *reusablePort) Close() error {
	l.closed.Store(true)
	if l.given.Load() {
		return l.TCPListener.Close()
	}
	return l.SetDeadline(time.Unix(1, 0)) // in the past
}

func (l *reusablePort) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}
