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

// next prepares for the next command. After a refusal, a command that the client sent later gets its own wait.
func (s *started) next(pipelined bool) {
	if s.told && !pipelined {
		s.arrived, s.told = time.Time{}, false
	}
}

// awaitStart holds a command while the broker does not serve yet, as it holds a put: the client sees a pause and no
// error, and its further bytes stay in the socket. Pipelined commands share one limit, as do IDENTIFY, whose answer has
// no place for a reason, and the command after it. After the limit the command is answered with the reason. Once the
// broker serves, the check is skipped.
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
