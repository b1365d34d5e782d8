package tcp

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/auth/access"
)

// Command is one command of the protocol, with the right that it requires. FIN, REQ, TOUCH, RDY and CLS require none: they
// work on a subscription that was allowed. docs/reference/rights.md follows from the table.
type Command struct {
	Name  string
	Right access.Right
	run   func(c *conn, ctx context.Context, verb string) error
}

var commands = [...]Command{
	{"IDENTIFY", access.Open, (*conn).identify},
	{"AUTH", access.Open, (*conn).auth},
	{"NOP", access.Open, func(c *conn, _ context.Context, _ string) error { c.heartbeats = true; return nil }},
	{"PUB", access.Publish, (*conn).pub},
	{"MPUB", access.Publish, (*conn).mpub},
	{"DPUB", access.Publish, (*conn).dpub},
	{"SUB", access.Consume, (*conn).subscribe},
	{"RDY", access.Open, (*conn).rdy},
	{"FIN", access.Open, (*conn).finish},
	{"REQ", access.Open, (*conn).requeue},
	{"TOUCH", access.Open, (*conn).touch},
	{"CLS", access.Open, (*conn).startClose},
	{"PUB_EXT", access.Publish, pubExtended(headed)},
	{"MPUB_EXT", access.Publish, mpubExtended(headed)},
	{"PUB_TRACE", access.Publish, pubExtended(traced)},
	{"MPUB_TRACE", access.Publish, mpubExtended(traced)},
	{"SUB_ORDERED", access.Consume, (*conn).subscribeOrdered},
	{"SUB_ADVANCED", access.Consume, (*conn).subscribeAdvanced},
}

// Commands returns all commands.
func Commands() []Command { return commands[:] }
