package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// What the transport itself answers.
var (
	// ErrDown: there is no connection to the peer; nothing was sent.
	ErrDown = errors.New("rpc: peer is down")
	// ErrWindow: too much waits for the peer already; nothing was sent.
	ErrWindow = errors.New("rpc: window is full")
	// ErrTooLarge: the frame exceeds MaxHeader or MaxPayload; nothing was sent.
	ErrTooLarge = errors.New("rpc: frame is too large")
	// ErrBroken: the connection ended after a request was sent; nobody knows
	// whether it was served.
	ErrBroken = errors.New("rpc: connection broke before the answer")
	// ErrMethod: the peer does not know the method.
	ErrMethod = errors.New("rpc: unknown method")
)

// What a broker may answer another one about a partition or a topic. What a
// client may be told besides is in package edge.
var (
	// ErrNotLeader: this broker does not lead the partition; nothing was written.
	ErrNotLeader = errors.New("not the leader")
	// ErrNotInSync: the replica is not a member of the in-sync set.
	ErrNotInSync = errors.New("not in the in-sync set")
	// ErrEpoch: the message is of an epoch that is over.
	ErrEpoch = errors.New("epoch is over")
	// ErrStore: the message is for another store or another topic id.
	ErrStore = errors.New("another store")
	// ErrNoPartition: this broker holds no replica of the partition.
	ErrNoPartition = errors.New("no such partition here")
	// ErrNotReady: the broker has not caught up with the metadata yet.
	ErrNotReady = errors.New("metadata not known yet")
)

// ErrorClass says what the caller may do about an error. The numbers are on the
// wire.
type ErrorClass uint8

// The classes of errors.
const (
	// RetryHere: nothing happened; the same broker may do it later.
	RetryHere ErrorClass = iota + 1
	// RetryElsewhere: nothing happened; ask the present leader.
	RetryElsewhere
	// LeaveISR: the replica cannot go on in the in-sync set.
	LeaveISR
	// Definite: nothing happened, and repeating it will not help.
	Definite
	// InDoubt: it may have happened, or may yet.
	InDoubt
	// RolledBack: it happened and was taken back for good.
	RolledBack
)

// String names the class.
func (c ErrorClass) String() string {
	if c < RetryHere || c > RolledBack {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return [...]string{"retry here", "retry elsewhere", "leave isr", "definite", "in doubt", "rolled back"}[c-1]
}

// Code is the stable number of an error. Numbers are never reused.
type Code uint16

// CodeUnknown is the code of an error that has no row in the table.
const CodeUnknown Code = 1

// row ties a sentinel to its number and class.
type row struct {
	code  Code
	class ErrorClass
	err   error
}

// rows is the one mapping, read both ways; it never changes. An error that wraps
// several sentinels takes the first row that matches.
var rows = [...]row{
	{10, RetryHere, ErrDown},
	{11, RetryHere, ErrWindow},
	{12, Definite, ErrTooLarge},
	{14, InDoubt, ErrBroken},
	{15, Definite, ErrMethod},
	{20, RetryElsewhere, ErrNotLeader},
	{21, LeaveISR, ErrNotInSync},
	{22, RetryElsewhere, ErrEpoch},
	{23, LeaveISR, ErrStore},
	{24, RetryElsewhere, ErrNoPartition},
	{25, RetryHere, ErrNotReady},
	{40, RetryHere, edge.ErrNotEnough},
	{41, RolledBack, edge.ErrRolledBack},
	{42, InDoubt, edge.ErrInDoubt},
	{43, RetryElsewhere, edge.ErrExiting},
	{44, RetryHere, edge.ErrNoLeader},
	{45, RetryHere, edge.ErrDiskFull},
	{46, RetryHere, edge.ErrTopicFull},
	{47, RetryHere, edge.ErrBusy},
	{50, Definite, edge.ErrNotInFlight},
	{51, Definite, edge.ErrNotOwner},
	{60, Definite, edge.ErrTopicNotFound},
	{61, Definite, edge.ErrChannelNotFound},
	{62, Definite, edge.ErrInvalid},
	{63, Definite, edge.ErrTooManyClients},
	{64, RetryHere, edge.ErrUnavailable},
	{80, InDoubt, context.DeadlineExceeded},
	{81, InDoubt, context.Canceled},
}

// Error is an error that came, or goes, over the wire. errors.Is finds the
// sentinel of its code.
type Error struct {
	Code  Code
	Class ErrorClass
	Text  string
}

const maxErrorText = 1024

// FromError gives err the form that travels; nil for nil. An error without a
// row is in doubt: nobody knows how far it came.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var wire *Error
	if errors.As(err, &wire) {
		return &Error{Code: wire.Code, Class: wire.Class, Text: clip(err.Error())}
	}
	for _, r := range rows {
		if errors.Is(err, r.err) {
			return &Error{Code: r.code, Class: r.class, Text: clip(err.Error())}
		}
	}
	return &Error{Code: CodeUnknown, Class: InDoubt, Text: clip(err.Error())}
}

// ClassOf tells the class of any error; 0 for nil.
func ClassOf(err error) ErrorClass {
	if e := FromError(err); e != nil {
		return e.Class
	}
	return 0
}

// Err is e as an error, nil if e is nil or of code 0.
func (e *Error) Err() error {
	if e == nil || e.Code == 0 {
		return nil
	}
	return e
}

// Error gives the text of the original error.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is the sentinel of e's code.
func (e *Error) Is(target error) bool {
	for _, r := range rows {
		if r.code == e.Code {
			return r.err == target
		}
	}
	return false
}

func clip(s string) string { return s[:min(len(s), maxErrorText)] }
