package tcp

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// Limits for the input of a client before its login.
const (
	// maxLoginBody is the largest body of IDENTIFY and AUTH.
	maxLoginBody = 64 << 10
	// loginPiece is how much memory is allocated for a body of IDENTIFY or AUTH before its bytes arrive.
	loginPiece = 4 << 10
	// maxName is the longest name that a client gives itself (client_id, hostname, user_agent, region, zone), in bytes;
	// the rest is cut off. The names of stock clients are far shorter.
	maxName = 256
)

// shortened cuts a name of the client at maxName bytes.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.Clone(strings.ToValidUTF8(name[:maxName], ""))
}

// armLogin sets the read deadline of a client that has no rights yet, and returns false for all other clients. The
// deadline counts from the start of the connection, or from the moment when the users have been read; no command
// extends it. A client that has ever had rights has no such deadline; each of its commands is checked separately.
func (c *conn) armLogin() bool {
	g := c.h.backend.Guard
	if c.settled || g.Ready() != nil { // otherwise checked again once the users have been read
		return false
	}
	c.beginAgain()
	from := c.since
	if c.start.known.After(from) { // the client could not log in earlier
		from = c.start.known
	}
	if session := c.session.Load(); (!g.Enforced() || session.LoggedIn() || session.Permissions() > 0) && c.takeSeat() {
		c.settled, c.armed = true, time.Time{}
		return false
	}
	_ = c.raw.SetReadDeadline(from.Add(c.h.opts.LoginTimeout)) // a closed socket fails at the read
	c.late = true
	return true
}

// takeSeat moves the connection from the waiting seats to those of admitted clients, because its client has logged in
// or has rights without a login. It returns false if no seat is free; the client may still log in until its login
// timeout. Where TLS is required, a client without TLS has no rights yet.
func (c *conn) takeSeat() bool {
	if c.h.opts.TLSRequired != config.TLSNotRequired && !c.about.Load().TLS {
		return true
	}
	g, session := c.h.backend.Guard, c.session.Load()
	loggedIn := session.LoggedIn()
	switch {
	case loggedIn && !c.h.seat(c, session.Identity()): // its certificate was read before the users were
		c.unseated = errTooManyOfUser
	case !c.seat(g.Open() || loggedIn):
		c.unseated = errTooManyStrangers
	default:
		c.unseated = nil
	}
	if c.unseated == nil && !c.known {
		c.known = true
		c.log().Info("client connected")
	}
	return c.unseated == nil
}

// errTooManyStrangers ends the connection of a client that has not logged in.
var errTooManyStrangers = fatal(codeTooMany, "this broker has as many clients without a login as it may; log in, or try another broker")

// tooLate returns the error of a client that did not log in in time; nil for any other failed read.
func (c *conn) tooLate(read error) error {
	if !c.late || c.settled || c.stopping.Load() || c.revoked.Load() || !errors.Is(read, os.ErrDeadlineExceeded) {
		return nil
	}
	c.h.backend.Metrics.Add(metrics.RefusedTCPLogin, 1)
	return fatal(codeAuthFirst, "no login within %v", c.h.opts.LoginTimeout)
}

// seat counts the connection for its user. It returns false if the user has reached its limit.
func (h *Handler) seat(c *conn, user string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.user == user {
		return true
	}
	if h.opts.MaxPerUser > 0 && h.mu.users[user] >= h.opts.MaxPerUser {
		h.backend.Metrics.Add(metrics.RefusedTCPUser, 1)
		return false
	}
	h.unseatLocked(c)
	h.mu.users[user]++
	c.user = user
	return true
}

func (h *Handler) unseatLocked(c *conn) {
	if c.user == "" {
		return
	}
	if h.mu.users[c.user]--; h.mu.users[c.user] <= 0 {
		delete(h.mu.users, c.user)
	}
	c.user = ""
}

var errTooManyOfUser = fatal(codeTooMany, "this user has reached its connection limit at this broker; try another one")

// started is the progress of the broker's start, as one connection has seen it. The reader owns it.
type started struct {
	serves  bool      // the broker serves, so nothing waits for that any longer
	arrived time.Time // arrival of the first of the commands that wait together; zero = none waits
	refused bool      // a waiting command was answered with the reason
	known   time.Time // when the users were read, if the connection began before; zero otherwise
}

// next prepares for the next command. After a refusal, a later command of the client gets a new wait.
func (s *started) next(pipelined bool) {
	if s.refused && !pipelined {
		s.arrived, s.refused = time.Time{}, false
	}
}

// awaitStart delays a command while the broker does not serve yet: the client sees a pause and no error, and its
// further bytes stay in the socket. Pipelined commands share one limit, as do IDENTIFY, whose answer cannot contain a
// reason, and the following command. After the limit the command is answered with the reason.
func (c *conn) awaitStart(ctx context.Context) {
	verb, await := string(c.params[0]), c.h.backend.Await
	if verb == "NOP" {
		return
	}
	if await == nil {
		c.start.serves = true
		return
	}
	if c.start.arrived.IsZero() {
		c.start.arrived = time.Now()
	}
	c.start.serves = await(ctx, c.start.arrived)
	c.start.refused = !c.start.serves && verb != "IDENTIFY"
	c.armed = time.Time{}
	c.arm() // the client did not cause the wait
}
