package tcp

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// recheckEvery is the interval of the checks when the users do not change: an answer of an auth service expires.
const recheckEvery = 5 * time.Second

// subscribed names what a connection consumes.
type subscribed struct {
	topic, channel string
	wait           *metrics.Wait
}

// Recheck ends the subscriptions of clients that have lost their right: at once when the users change, and within
// recheckEvery of the expiry of an auth service's answer. It runs until ctx ends.
func (h *Handler) Recheck(ctx context.Context) {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		changed := h.backend.Guard.Changed()
		h.recheckAll(ctx)
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// recheckAll checks every subscription. An auth service without a usable answer ends one only when its last answer
// about the client has expired.
func (h *Handler) recheckAll(ctx context.Context) {
	for _, c := range h.snapshot() {
		of := c.consumes.Load()
		if of == nil {
			continue
		}
		if err := c.session.Load().Allow(ctx, need(of.topic, of.channel)); guard.IsLoss(err) {
			h.backend.Log.WithField("client", c.about.Load().RemoteAddress).WithField("topic", of.topic).WithField("channel", of.channel).
				Info("subscription ended: the client lost its right")
			c.revoke()
		}
	}
}

// revoke ends the connection of a client that has lost its right. Any goroutine.
func (c *conn) revoke() {
	c.revoked.Store(true)
	c.ready.Store(0)
	c.interrupt()
}

// lost returns the error of a connection that revoke ended; otherwise err.
func (c *conn) lost(err error) error {
	of := c.consumes.Load()
	if !c.revoked.Load() || of == nil {
		return err
	}
	return fatal(codeUnauthorized, "AUTH failed for SUB on %q %q", of.topic, of.channel)
}
