package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

// The reasons for which this side ends a connection.
var (
	errSilent      = errors.New("rpc: the peer was silent")
	errReplaced    = errors.New("rpc: the peer reconnected")
	errClosed      = errors.New("rpc: the transport was closed")
	errRemoved     = errors.New("rpc: the peer left the address book")
	errReaddressed = errors.New("rpc: the peer's address changed")
	errIncarnation = errors.New("rpc: own incarnation changed")
)

// peer is another broker: its two connections and its state at the Handler.
//
// mu is held while Handler.Peer and Handler.Frame are called, because only that orders the calls. They are the only
// callbacks under a lock here, which is allowed because a Handler does not block. Send, Flush and Up never take mu.
type peer struct {
	t    *Transport
	node ident.Node
	log  logrus.FieldLogger

	sender  atomic.Pointer[conn] // mu.out, for Send
	isUp    atomic.Bool          // mu.up, for Up
	silent  atomic.Bool          // the last dial timed out without a handshake or a refusal
	traffic traffic              // of all its connections
	redial  concurrency.Edge     // dial now
	stop    context.CancelFunc   // ends runConnection

	mu struct {
		sync.Mutex
		address string
		out, in *conn // dialled by this broker, dialled by the peer; nil = none
		removed bool

		up          bool
		incarnation ident.Incarnation    // incarnation when the peer was last up
		known       bool                 // it was up once
		refused     bool                 // the last dial was refused, at the address of that time
		dead        bool                 // it was reported dead
		reached     string               // address of the last connection dialled
		changed     chan struct{}        // closed and replaced with every change
		complaints  map[string]complaint // by subject
	}
}

func newPeer(t *Transport, node ident.Node, address string, stop context.CancelFunc) *peer {
	p := &peer{
		t: t, node: node, stop: stop,
		log:    t.log.WithField("node", string(node)),
		redial: concurrency.NewEdge(),
	}
	p.mu.address = address
	p.mu.changed = make(chan struct{})
	p.mu.complaints = map[string]complaint{}
	return p
}

// admits refuses a peer whose registration is older than that of the connected peer.
func (p *peer) admits(h Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in := p.mu.in; in != nil && h.Incarnation < in.peer.Incarnation {
		return fmt.Errorf("incarnation %d is over, %d is connected", h.Incarnation, in.peer.Incarnation)
	}
	return nil
}

// attach makes c the peer's connection of its direction, in place of an older one. A connection that
// was made before a change of identity or address is closed.
func (p *peer) attach(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.removed:
		c.close(errRemoved)
		return
	case p.t.closed.Load():
		c.close(errClosed)
		return
	case c.self != *p.t.self.Load():
		c.close(errIncarnation)
		return
	case c.dialled && c.address != p.mu.address:
		c.close(errReaddressed)
		return
	}
	p.mu.refused = false
	p.silent.Store(false)
	if c.dialled {
		p.mu.out, p.mu.reached = c, c.address
		p.sender.Store(c)
	} else {
		if p.mu.in != nil {
			p.mu.in.close(errReplaced)
		}
		p.mu.in = c
		if p.mu.out == nil {
			p.redial.Notify() // the peer is alive: skip the rest of a back-off
		}
	}
	p.updateLocked()
}

// detach forgets a connection that has ended.
func (p *peer) detach(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.out == c {
		p.mu.out = nil
		p.sender.Store(nil)
	}
	if p.mu.in == c {
		p.mu.in = nil
	}
	p.updateLocked()
}

// deliver passes one frame to the Handler. It waits while the peer is not up, because the frame arrived before this
// broker's own connection was established. Later frames wait in the socket, and the watch ends the wait if it takes too
// long.
func (p *peer) deliver(c *conn, f Received) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.in == c {
		if p.mu.up != p.answersLocked() {
			p.updateLocked() // a frame ends a silence, and the dialled connection may have been closed
		}
		if p.mu.up {
			p.t.o.Handler.Frame(p.node, c.peer.Incarnation, f)
			return nil
		}
		if err := p.waitLocked(c); err != nil {
			return err
		}
	}
	return errReplaced
}

// waitLocked releases the lock until the peer changes or c ends.
func (p *peer) waitLocked(c *conn) error {
	changed := p.mu.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-c.done:
		return c.cause
	}
}

// updateLocked notifies the Handler of the changes since its last notification.
func (p *peer) updateLocked() {
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
	up := p.answersLocked()
	if p.mu.up && (!up || p.mu.in.peer.Incarnation != p.mu.incarnation) {
		p.notifyLocked(false, false)
	}
	if up && !p.mu.up {
		p.mu.known, p.mu.dead = true, false
		p.mu.incarnation = p.mu.in.peer.Incarnation
		p.notifyLocked(true, false)
	}
	gone := p.mu.out == nil && p.mu.in == nil && p.mu.refused
	if gone && p.mu.known && !p.mu.dead {
		p.mu.dead = true
		p.notifyLocked(false, true)
	}
}

// answersLocked reports whether both connections are established, to the same incarnation, and bytes
// arrived on either recently. A closed connection does not count, even if its reader has not noticed.
func (p *peer) answersLocked() bool {
	out, in := p.mu.out, p.mu.in
	return !p.mu.removed && out != nil && in != nil && !out.closed() && !in.closed() &&
		out.peer.Incarnation == in.peer.Incarnation &&
		min(p.t.silence(out), p.t.silence(in)) <= p.t.o.Times.Silent
}

func (p *peer) notifyLocked(up, refused bool) {
	p.mu.up = up
	p.isUp.Store(up)
	if p.t.closed.Load() {
		return // closing: the Handler is no longer called
	}
	p.log.WithFields(logrus.Fields{"up": up, "refused": refused, "incarnation": p.mu.incarnation}).
		Info("peer changed")
	p.t.o.Handler.Peer(p.node, p.mu.incarnation, up, refused)
}

// check closes connections after too long a silence, and notifies the Handler when a silence begins or
// ends. Called by the watch.
func (p *peer) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*conn{p.mu.out, p.mu.in} {
		if c != nil && p.t.silence(c) > p.t.o.Times.Dead {
			c.close(errSilent)
		}
	}
	if p.mu.up != p.answersLocked() {
		p.updateLocked()
	}
}

// readdress changes the address at which the peer is dialled.
func (p *peer) readdress(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if address == p.mu.address {
		return
	}
	p.mu.address, p.mu.refused = address, false
	if p.mu.out != nil {
		p.mu.out.close(errReaddressed)
	}
	p.redial.Notify()
}

// end closes both connections; their readers detach them.
func (p *peer) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.removed = p.mu.removed || why == errRemoved
	for _, c := range []*conn{p.mu.out, p.mu.in} {
		if c != nil {
			c.close(why)
		}
	}
	if p.mu.removed && p.mu.up {
		p.updateLocked()
	}
}

// complaint is the last reason that was logged, so that a repeated one does not fill the log.
type complaint struct {
	text string
	at   time.Time
}

// fresh reports whether text is new, or was last logged a while ago.
func (c *complaint) fresh(text string) bool {
	const again = 30 * time.Second
	if text == c.text && time.Since(c.at) < again {
		return false
	}
	c.text, c.at = text, time.Now()
	return true
}

// notYet ends the refusal of a broker that the watch of the metadata has not delivered yet.
const notYet = "is not in the address book yet"

// levelOf is the level of a log line about a failed connection. A broker that has just started may reach another broker
// before its registration is visible there, which is not a fault.
func levelOf(err error) logrus.Level {
	if strings.Contains(err.Error(), notYet) {
		return logrus.DebugLevel
	}
	return logrus.WarnLevel
}

// reason is an error's text without this broker's own address, whose port differs with each attempt.
func reason(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err.Error()
	}
	same := *op
	same.Source = nil
	return same.Error()
}
