package tcp

import (
	"context"
	"time"
)

// started is the view that a connection has of the start of its broker. The reader owns it.
type started struct {
	serves  bool      // the broker serves: nothing waits any more
	arrived time.Time // of the first command of those that wait together; zero = none waits
	told    bool      // a command that waited was answered with the reason
	known   time.Time // when the users were read, if the connection began before; zero otherwise
}

// next prepares for the next command. After a refusal, a command that the client sent later waits anew.
func (s *started) next(pipelined bool) {
	if s.told && !pipelined {
		s.arrived, s.told = time.Time{}, false
	}
}

// awaitStart holds a command while the broker does not serve yet, as a put is held: the client sees a pause and no
// error, and what it sends meanwhile stays in its socket. The commands that a client pipelines have one limit
// together. So have IDENTIFY, which has no reason to give, and the command that follows it. After the limit the
// command is answered with the reason. A broker that serves is not asked again.
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
	c.start.told = !c.start.serves && verb != "IDENTIFY"
	c.armed = time.Time{}
	c.arm() // the wait was not the client's
}
