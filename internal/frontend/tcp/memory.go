package tcp

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// setShare selects the client's share of the memory. It belongs to the user, or to the address before a login.
func (c *conn) setShare() {
	host, _, _ := net.SplitHostPort(c.about.Load().RemoteAddress) // a unix socket has none
	owner := guard.Network(host)
	if s := c.session.Load(); s.LoggedIn() {
		owner = s.Identity()
	}
	share := c.h.backend.Memory.Share(owner)
	c.share.Store(&share)
}

// reservation is memory reserved for one put, from the first byte of its body to its answer.
type reservation struct {
	share limits.Share
	bytes int
}

func (r *reservation) release() {
	r.share.Release(limits.Bodies, r.bytes)
	*r = reservation{}
}

// reserve reserves the memory of the body of a put, and limits the time for its arrival until arrived is called. After
// an error nothing of the put is stored.
func (c *conn) reserve(ctx context.Context, size int) error {
	if size <= limits.Free {
		return nil
	}
	share := *c.share.Load()
	if !share.Reserve(ctx, limits.Bodies, size) {
		c.h.backend.Metrics.Add(metrics.RefusedTCPMemory, 1)
		c.h.backend.Metrics.Answered(outcome.ErrBusy)
		c.armed = time.Time{}
		c.arm() // the client did not cause the wait
		return outcome.ErrBusy
	}
	c.reserved = reservation{share, size}
	c.pace = pace{began: time.Now()}
	return nil
}

func (c *conn) arrived() {
	if c.pace.began.IsZero() {
		return
	}
	if c.pace.late {
		return // the command will fail, and tooSlow has the reason
	}
	c.pace, c.armed = pace{}, time.Time{}
}

// pace tracks the arrival of a body for which memory is reserved.
type pace struct {
	began time.Time // zero if there is none
	due   time.Time // the read deadline
	read  int64
	late  bool // it was too slow
}

func (n creditReader) readPaced(p []byte) (int, error) {
	c := n.c
	if due := limits.Due(c.pace.began, c.pace.read); due.Sub(c.pace.due) >= time.Second {
		c.pace.due = due
		_ = c.raw.SetReadDeadline(due) // a closed socket fails at the read
	}
	if c.stopping.Load() || c.revoked.Load() {
		c.interrupt()
	}
	m, err := n.src.Read(p)
	c.pace.read += int64(m)
	c.pace.late = errors.Is(err, os.ErrDeadlineExceeded) && !c.stopping.Load() && !c.revoked.Load()
	return m, err
}

// ended returns the error of a command whose body arrived too slowly or became too large; otherwise err.
func (c *conn) ended(err error) error {
	switch {
	case err == nil:
		return nil
	case c.bomb != nil:
		c.h.backend.Metrics.Add(metrics.RefusedTCPExpansion, 1)
		return fatal(codeBadBody, "input is compressed too well: %s; the last command is not stored: send such messages without compression", c.bomb)
	case !c.pace.late:
		return err
	}
	c.h.backend.Metrics.Add(metrics.RefusedTCPSlow, 1)
	return fatal(codeBadMessage, "%s body arrives too slowly, not stored: %d bytes in %v, at least %d bytes a second are required after %v",
		c.verb, c.pace.read, time.Since(c.pace.began).Round(time.Second), limits.MinRate, limits.Grace)
}
