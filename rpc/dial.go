package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// runConnection dials one peer, reads the connection until it ends, and dials again.
// Started by SetPeers, ends when the peer is removed or the Transport closes.
func (p *peer) runConnection(ctx context.Context) {
	pause := backoff{min: p.t.o.Times.BackoffMin, max: p.t.o.Times.BackoffMax}
	for ctx.Err() == nil {
		switch lasted := p.connect(ctx); {
		case lasted >= p.t.o.Times.Dead:
			pause.pause, pause.again = 0, false // the connection lasted: dial again at once
		case lasted > 0:
			pause.pause = 0 // the peer answered: use the shortest pause, so that its death is detected soon
		}
		concurrency.SleepUntil(ctx, p.redial, pause.next())
	}
}

// connect makes one connection and reads it to its end. It returns how long the connection lasted, 0 if none was
// established.
func (p *peer) connect(ctx context.Context) time.Duration {
	p.mu.Lock()
	address := p.mu.address
	p.mu.Unlock()
	c, err := p.dial(ctx, address)
	if err != nil {
		p.failed(ctx, address, err)
		return 0
	}
	p.t.counts.connects.Add(1)
	began := time.Now()
	cause := c.run(ctx, p)
	p.complain(ctx, "connection to peer ended", cause)
	return time.Since(began)
}

// dial connects and performs the handshake.
func (p *peer) dial(ctx context.Context, address string) (*conn, error) {
	dialing, cancel := context.WithTimeout(ctx, p.t.o.Times.Dial)
	defer cancel()
	raw, err := p.t.o.Dial(dialing, address)
	if err != nil {
		return nil, err
	}
	tune(raw)
	c := p.t.newConn(raw, true)
	c.address = address
	if p.t.o.TLS != nil {
		c.nc = tls.Client(raw, p.t.clientTLS(address))
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	if err := c.shake(func(h handshake) (Hello, error) { return h.dial(p.node) }); err != nil {
		c.close(err)
		return nil, err
	}
	return c, nil
}

// clientTLS names the server by its address, for the check of its certificate, unless the options name it.
func (t *Transport) clientTLS(address string) *tls.Config {
	cfg := t.tls()
	if cfg.ServerName == "" {
		cfg.ServerName = address
		if host, _, err := net.SplitHostPort(address); err == nil {
			cfg.ServerName = host
		}
	}
	return cfg
}

// shake runs one side of the handshake within its limits of time and size, and sets peer.
func (c *conn) shake(side func(handshake) (Hello, error)) (err error) {
	if err := c.raw.SetDeadline(time.Now().Add(c.t.o.Times.Handshake)); err != nil {
		return err
	}
	if s, ok := c.nc.(*tls.Conn); ok {
		if err := s.Handshake(); err != nil {
			return fmt.Errorf("%w: TLS: %w", errRefused, err)
		}
	}
	c.in = newFrameReader(c)
	c.in.limit = handshakeFrameBytes
	if c.peer, err = side(handshake{nc: c.nc, in: c.in, self: c.self, token: c.t.o.Token, certified: c.certified}); err != nil {
		return err
	}
	c.in.limit = MaxHeader + MaxPayload
	c.in.checked, c.in.bound = c.checked(), c.bound
	return c.raw.SetDeadline(time.Time{})
}

// certified returns an error if the other side's certificate does not belong to the node.
func (c *conn) certified(node ident.Node) error {
	s, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	shown := s.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return fmt.Errorf("%w: broker %q shows no certificate", errRefused, clip(string(node)))
	}
	if err := c.t.o.TLS.Check(shown[0], string(node)); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// failed records a failed dial. A refusal proves that the process is dead only at the address where the
// peer was last connected, and only while it is the latest answer.
func (p *peer) failed(ctx context.Context, address string, err error) {
	p.mu.Lock()
	p.mu.refused = errors.Is(err, syscall.ECONNREFUSED) && address == p.mu.reached && address == p.mu.address
	var slow net.Error
	p.silent.Store(errors.As(err, &slow) && slow.Timeout())
	p.updateLocked()
	p.mu.Unlock()
	p.complain(ctx, "cannot connect to peer", err)
}

// complain logs a reason, unless the same one was logged recently.
func (p *peer) complain(ctx context.Context, what string, err error) {
	p.mu.Lock()
	last := p.mu.complaints[what]
	fresh := last.fresh(reason(err))
	p.mu.complaints[what] = last
	p.mu.Unlock()
	if fresh && ctx.Err() == nil {
		p.log.WithError(err).Log(levelOf(err), what)
	}
}

// backoff computes the pauses between dials: first none, then min, doubled up to max, each with jitter so that brokers
// do not dial in lockstep.
type backoff struct {
	min, max time.Duration
	pause    time.Duration // the last pause; 0: the next one is min
	again    bool          // false: the next dial is at once
}

func (b *backoff) next() time.Duration {
	if !b.again {
		b.again = true
		return 0
	}
	b.pause = min(max(2*b.pause, b.min), b.max)
	return b.pause/2 + rand.N(b.pause/2+1)
}
