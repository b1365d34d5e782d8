package calls

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// The calls about brokers.
const (
	// Space reports whether a broker is below its disk reserve.
	Space Method[SpaceNotice, None] = "broker.space"
	// Hide reports that an operator hides a node from lookups of a topic.
	Hide Method[HideNotice, None] = "broker.hide"
	// Failed reports that the caller is to count as dead until it reconnects.
	Failed Method[None, None] = "broker.failed"
	// Busy reports how long the current write of a broker's journal, or pass of a core loop, has been under way.
	Busy Method[None, BusyReply] = "broker.busy"
	// Reaches reports whether a broker is connected to a run of another one.
	Reaches Method[ReachesRequest, ReachesReply] = "broker.reaches"
	// Console has a broker answer a part of a question of the console (package internal/frontend/console).
	Console Method[ConsoleJSON, ConsoleJSON] = "console.read"
)

// The requests and answers. On the wire, by position: append only.
type (
	// SpaceNotice reports whether a broker is below its disk reserve.
	SpaceNotice struct {
		Node ident.Node
		Low  bool
	}
	// BusyReply is the longer of the two times, or 0.
	BusyReply struct{ Milliseconds int64 }
	// HideNotice names a topic and a node ("broadcast_address:http_port").
	HideNotice struct{ Topic, Node string }
	// ReachesRequest names a run of a broker.
	ReachesRequest struct {
		Node        ident.Node
		Incarnation ident.Incarnation
	}
	// ReachesReply reports whether the callee is connected to that run.
	ReachesReply struct{ Reaches bool }
	// ConsoleJSON is a question of the console, or its answer, as JSON.
	ConsoleJSON struct{ JSON rpc.Bytes }
)
