// Package calls is the contract of the calls between brokers: the methods, and the
// structs of their requests and answers. The table in package dispatch has the handler of
// each method.
//
// It carries nothing out and moves no bytes (package rpc does).
//
// # Invariants
//
//  1. The name of a method and the places of the fields of its structs are wire format
//     (package rpc encodes fields by place): brokers of two versions call each other. A new
//     field goes to the end, and may be missing. Golden bytes in the test hold that.
//  2. Each method is idempotent: a caller that gets no answer calls again.
//  3. A method carries structs of this package alone. Those of internal/api are the
//     clients' and change with the HTTP API; the conversions are here.
package calls

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Caller asks a broker, this one included, and decodes the answer into resp.
type Caller interface {
	Call(ctx context.Context, n ident.Node, method string, req, resp any) error
}

// Method is the name of one call on the wire, with the types of its request and its
// answer.
type Method[Req, Resp any] string

// Ask makes the call.
func (m Method[Req, Resp]) Ask(ctx context.Context, c Caller, n ident.Node, req Req) (resp Resp, err error) {
	err = c.Call(ctx, n, string(m), req, &resp)
	return resp, err
}

// None is an empty request or answer.
// On the wire, by place: append only.
type None struct{}

// partition is the place of a partition in a request or an answer.
func partition(topic uint64, number uint16) ident.Partition {
	return ident.Partition{Topic: ident.TopicID(topic), Number: number}
}
