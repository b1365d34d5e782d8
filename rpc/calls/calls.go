// Package calls is the contract of the calls between brokers: the methods, and the structs of their requests and
// answers. The table in package dispatch has the handler of each method.
//
// It implements no call and transfers no bytes (package rpc does).
//
// # Invariants
//
//  1. The name of a method and the order of the fields of its structs are wire format (package rpc encodes fields by
//     position): brokers of two versions call each other. A new field goes to the end, and may be missing. Golden bytes
//     in the test check that.
//  2. Each method is idempotent: a caller that receives no answer calls again.
//  3. A method carries structs of this package, or JSON: a value of internal/api, which changes
//     with the HTTP API by the rules of that API.
package calls

import (
	"context"
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// Caller makes calls to brokers, including this one, and decodes the answers into resp.
type Caller interface {
	Call(ctx context.Context, n ident.Node, method string, req, resp any) error
}

// Method is the name of one call on the wire, with the types of its request and its answer.
type Method[Req, Resp any] string

// Ask makes the call.
func (m Method[Req, Resp]) Ask(ctx context.Context, c Caller, n ident.Node, req Req) (resp Resp, err error) {
	err = c.Call(ctx, n, string(m), req, &resp)
	return resp, err
}

// None is an empty request or answer. On the wire, by position: append only.
type None struct{}

// JSON carries a value of internal/api as JSON.
type JSON[T any] struct{ Value T }

// MarshalBinary implements encoding.BinaryMarshaler.
func (j JSON[T]) MarshalBinary() ([]byte, error) { return json.Marshal(j.Value) }

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (j *JSON[T]) UnmarshalBinary(b []byte) error { return json.Unmarshal(b, &j.Value) }

const (
	// requestBytes is enough for the request of any method except those below.
	requestBytes = 1 << 20
	// cancelBytes is enough for the sequences in the largest body that the HTTP API accepts by
	// default. Decoded they take up to eight times as much.
	cancelBytes = 4 << 20
	// responseBytes is enough for the ends of 400,000 partitions.
	responseBytes = 16 << 20
)

// Limits returns the limits of a method. They bound the memory that another broker can make this one use: a decoded
// request or response is a multiple of the encoded one.
func Limits(method string) rpc.CallLimits {
	l := rpc.CallLimits{Request: requestBytes, Response: responseBytes}
	switch method {
	case string(Deferred):
		l.Request = cancelBytes
	case string(Batches), string(Peek): // bytes of messages, which do not grow when decoded
		l.Response = rpc.MaxPayload
	case string(Digest), string(Positions), string(Console):
		l.Response = 4 * responseBytes
	}
	return l
}

// The calls about brokers.
const (
	// Space reports whether a broker is below its disk reserve.
	Space Method[SpaceNotice, None] = "broker.space"
	// Hide reports that an operator hides a node from lookups of a topic.
	Hide Method[HideNotice, None] = "broker.hide"
	// Failed requests that the caller counts as dead until it reconnects.
	Failed Method[None, None] = "broker.failed"
	// Busy reports how long the current write of a broker's journal, or pass of a core loop, has been running.
	Busy Method[None, BusyReply] = "broker.busy"
	// Reaches reports whether a broker is connected to a given incarnation of another broker.
	Reaches Method[ReachesRequest, ReachesReply] = "broker.reaches"
	// Console requests a broker's part of the answer to a query of the console (package internal/frontend/console).
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
	// ReachesRequest names an incarnation of a broker.
	ReachesRequest struct {
		Node        ident.Node
		Incarnation ident.Incarnation
	}
	// ReachesReply reports whether the callee is connected to that incarnation.
	ReachesReply struct{ Reaches bool }
	// ConsoleJSON is a query of the console, or its answer, as JSON.
	ConsoleJSON struct{ JSON rpc.Bytes }
)
