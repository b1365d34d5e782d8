package rpc

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// The errors of the transport itself.
var (
	// ErrDown: the peer is not connected; nothing was sent.
	ErrDown = errors.New("rpc: peer is down")
	// ErrWindow: the queue for the peer is full; nothing was sent.
	ErrWindow = errors.New("rpc: window is full")
	// errTooLarge: the frame exceeds MaxHeader or MaxPayload; nothing was sent.
	errTooLarge = errors.New("rpc: frame is too large")
	// ErrBroken: the connection ended after a request was sent. Whether it was served is unknown.
	ErrBroken = errors.New("rpc: connection broke before the answer")
	// ErrMethod: the peer has no such method.
	ErrMethod = errors.New("rpc: unknown method")
)

// The errors of one broker to another about a partition. All others are in package outcome.
var (
	// ErrNotLeader: this broker does not lead the partition; nothing was written.
	ErrNotLeader = outcome.ErrNotLeader
	// ErrNoReplica: this broker has no replica of the partition.
	ErrNoReplica = errors.New("no such partition here")
	// ErrNotReady: the broker has not caught up with the metadata yet.
	ErrNotReady = errors.New("metadata not known yet")
)

// row ties a sentinel to its number and class.
type row struct {
	code  outcome.Code
	class outcome.Class
	err   error
}

// rows is the one mapping, read both ways; the table never changes. An error that wraps several sentinels takes the row
// with the lowest code.
var rows = byCode([]row{
	{10, outcome.ClassRetryHere, ErrDown},
	{11, outcome.ClassRetryHere, ErrWindow},
	{12, outcome.ClassDefinite, errTooLarge},
	{14, outcome.ClassInDoubt, ErrBroken},
	{15, outcome.ClassDefinite, ErrMethod},
	{24, outcome.ClassRetryElsewhere, ErrNoReplica},
	{25, outcome.ClassRetryHere, ErrNotReady},
	{80, outcome.ClassInDoubt, context.DeadlineExceeded},
	{81, outcome.ClassInDoubt, context.Canceled},
})

// byCode adds the rows of the table of outcomes, and sorts.
func byCode(all []row) []row {
	for _, r := range outcome.Rows() {
		if r.Err != nil {
			all = append(all, row{r.Code, r.Class, r.Err})
		}
	}
	slices.SortFunc(all, func(a, b row) int { return cmp.Compare(a.code, b.code) })
	return all
}

// Error is an error on the wire. errors.Is finds the sentinel of its code. On the wire, by position: append only.
type Error struct {
	Code  outcome.Code
	Class outcome.Class
	Text  string
}

const maxErrorText = 1024

// fromError converts err for the wire; nil for nil. An error without a row is in doubt: whether the
// request was carried out is unknown.
func fromError(err error) *Error {
	if err == nil {
		return nil
	}
	if wire, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: wire.Code, Class: wire.Class, Text: clip(err.Error())}
	}
	for _, r := range rows {
		if errors.Is(err, r.err) {
			return &Error{Code: r.code, Class: r.class, Text: clip(err.Error())}
		}
	}
	return &Error{Code: outcome.CodeUnknown, Class: outcome.ClassInDoubt, Text: clip(err.Error())}
}

// ClassOf is the class of any error; 0 for nil.
func ClassOf(err error) outcome.Class {
	if e := fromError(err); e != nil {
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

// Error returns the text of the original error.
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
