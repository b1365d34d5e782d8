package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// The memory of a client (package limits) bounds the bodies of its requests until they are answered, and its answers
// until they are read.
//
// Invariants
//
//  1. A large answer is written only with memory reserved for it. If there is none, the client gets the reason, as long
//     as the answer has not begun.
//  2. A status is not sent before there is memory for the first bytes after it.

// shareOf returns the client's share of the memory. It belongs to the user, or to the address before a login.
func (a *endpoints) shareOf(r *http.Request) limits.Share {
	if s := identityOf(r); s != nil && s.LoggedIn() {
		return a.b.Memory.Share(s.Identity())
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // a unix socket has none
	return a.b.Memory.Share(guard.Network(host))
}

// reserve reserves memory for a body, whose size is at most limit. It waits as limits.Share does. The caller calls
// release when the request is answered.
func (a *endpoints) reserve(r *http.Request, limit int64) (release func(), err error) {
	share, size := a.shareOf(r), int(r.ContentLength)
	if size < 0 {
		size = int(limit) // the client does not announce the size
	}
	if !share.Reserve(r.Context(), limits.Bodies, size) {
		a.b.Recorder.Add(metrics.RefusedHTTPMemory, 1)
		a.b.Recorder.Answered(outcome.ErrBusy)
		return nil, putFailure(outcome.ErrBusy)
	}
	r.Body = &timedBody{ReadCloser: r.Body}
	return func() { share.Release(limits.Bodies, size) }, nil
}

// bodyFailed is the answer to a body that could not be read to its end: byDefault, unless the body was too slow.
func (a *endpoints) bodyFailed(r *http.Request, byDefault error) error {
	if b, ok := r.Body.(*timedBody); !ok || !b.late {
		return byDefault
	}
	a.b.Recorder.Add(metrics.RefusedHTTPSlow, 1)
	return fail(http.StatusRequestTimeout, fmt.Sprintf("the body arrives too slowly, nothing is stored: "+
		"above %d KiB, %d bytes a second are required after %v", limits.Free>>10, limits.MinRate, limits.Grace))
}

type timedBody struct {
	io.ReadCloser
	late bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late = b.late || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// errMemory is the reason why an answer is not written.
var errMemory = errors.New("the memory for answers that this client has not read is used up: read the other answers to their end")

// boundedWriter reserves memory for large writes until they are done, so a client that does not read cannot use more
// memory than its share. It delays the status until there is memory for the body.
type boundedWriter struct {
	http.ResponseWriter
	r      *http.Request
	share  limits.Share
	refuse func(http.ResponseWriter) // answers that there is no memory; not called once the answer has begun
	status int                       // of the answer; 0 = none yet, and 200 once it has begun
	begun  bool                      // the status is written
	err    error                     // returned by all later writes
}

func (a *endpoints) bounded(w http.ResponseWriter, r *http.Request) *boundedWriter {
	return &boundedWriter{ResponseWriter: w, r: r, share: a.shareOf(r), refuse: func(w http.ResponseWriter) {
		a.b.Recorder.Add(metrics.RefusedHTTPMemory, 1)
		a.refuse(w, r, unavailable(errMemory.Error()))
	}}
}

func (w *boundedWriter) WriteHeader(status int) {
	if !w.begun && w.status == 0 {
		w.status = status
	}
}

func (w *boundedWriter) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if len(p) > limits.Free {
		if !w.reserve(len(p)) {
			w.giveUp()
			return 0, w.err
		}
		defer w.share.Release(limits.Replies, len(p))
	}
	w.begin()
	return w.ResponseWriter.Write(p)
}

// reserve reserves memory for a part of the answer. An answer that has not begun does not wait, because it is in memory
// as a whole, and any number of such answers could wait.
func (w *boundedWriter) reserve(bytes int) bool {
	if !w.begun {
		return w.share.Try(limits.Replies, bytes)
	}
	return w.share.Reserve(w.r.Context(), limits.Replies, bytes)
}

// giveUp answers that there is no memory for the answer. A large answer that has already begun is cut off.
func (w *boundedWriter) giveUp() {
	if w.err = context.Cause(w.r.Context()); w.err != nil {
		return // the client has left
	}
	w.err = errMemory
	if !w.begun {
		w.begun, w.status = true, http.StatusServiceUnavailable
		w.Header().Del("Content-Length")
		w.refuse(w.ResponseWriter)
	}
}

func (w *boundedWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
