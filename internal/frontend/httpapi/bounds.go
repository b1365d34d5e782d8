package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// Body and Answer keep HTTP requests within the memory of their client (package budget): their bodies until they are
// answered, and their answers until they are read.
//
// It knows no route and no user: internal/frontend/httpapi gives the share of a request, and writes the refusals.
//
// Invariants
//
//  1. A large answer is written only with memory reserved for it. If there is none, the client gets the reason, as long as the
//     answer has not begun.
//  2. A status is not sent before it is known that there is memory for the first bytes behind it.
//
// Goroutines
//
// None.

// Body reserves memory for the body of a request, whose size is at most limit. It waits as limits.Share does. After true
// the caller calls release when the request is answered.
func Body(r *http.Request, share limits.Share, limit int64) (release func(), ok bool) {
	size := int(r.ContentLength)
	if size < 0 {
		size = int(limit) // the client does not say
	}
	if !share.Reserve(r.Context(), limits.Bodies, size) {
		return nil, false
	}
	r.Body = &notedBody{ReadCloser: r.Body}
	return func() { share.Release(limits.Bodies, size) }, true
}

// TooSlow reports whether the body of a request, for which there was Body, did not arrive in time.
func TooSlow(r *http.Request) bool {
	b, ok := r.Body.(*notedBody)
	return ok && b.late
}

// notedBody notes whether the body of a request was too slow.
type notedBody struct {
	io.ReadCloser
	late bool
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late = b.late || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// Answer serves a request. Its large writes reserve memory of the share until they are written, so a client that does not
// read cannot hold more. refuse answers that there is no memory; it is not called once the answer has begun.
func Answer(h http.Handler, w http.ResponseWriter, r *http.Request, share limits.Share, refuse func(http.ResponseWriter)) {
	b := &writer{ResponseWriter: w, r: r, share: share, refuse: refuse}
	h.ServeHTTP(b, r)
	b.begin()
}

// ErrMemory is the reason why an answer is not written.
var ErrMemory = errors.New("the memory for answers that this client has not read is used up: read the other answers to their end")

// writer holds the status back until there is memory for what follows.
type writer struct {
	http.ResponseWriter
	r      *http.Request
	share  limits.Share
	refuse func(http.ResponseWriter)
	status int   // that waits; 0 = none
	begun  bool  // the status is written
	err    error // of the writes from now on
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if !w.begun && w.status == 0 {
		w.status = status
	}
}

func (w *writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
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

// reserve reserves memory for a part of the answer. An answer that has not begun is in memory as a whole, so it does not
// wait: any number of them could.
func (w *writer) reserve(bytes int) bool {
	if !w.begun {
		return w.share.Try(limits.Replies, bytes)
	}
	return w.share.Reserve(w.r.Context(), limits.Replies, bytes)
}

// giveUp answers that there is no memory for the answer. A large answer that has begun breaks off.
func (w *writer) giveUp() {
	if w.err = context.Cause(w.r.Context()); w.err != nil {
		return // the client has left
	}
	w.err = ErrMemory
	if !w.begun {
		w.begun = true
		w.Header().Del("Content-Length")
		w.refuse(w.ResponseWriter)
	}
}

// FlushError is for http.ResponseController.
func (w *writer) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
