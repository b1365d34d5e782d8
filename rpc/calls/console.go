package calls

import "github.com/lockstepmq/lockstep/rpc"

// Console has a broker answer a part of a question of the console (package internal/frontend/console).
const Console Method[ConsoleRequest, ConsoleReply] = "console.read"

// ConsoleRequest is a request as JSON: the console's questions change more often than the calls.
// On the wire, by place: append only.
type ConsoleRequest struct{ JSON rpc.Bytes }

// ConsoleReply is the answer, as JSON.
// On the wire, by place: append only.
type ConsoleReply struct{ JSON rpc.Bytes }
