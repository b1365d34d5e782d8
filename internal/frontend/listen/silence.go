package listen

import (
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// bodyTimeout is how long a client may be silent within a body, or not read its answer. It limits the silence and not
// the whole request: a large body over a slow line takes a long time.
const bodyTimeout = 30 * time.Second

// minBodyRate is the lowest permitted average rate of a small body in bytes per second, after the first four
// bodyTimeouts. Otherwise a client that sends a byte occasionally would occupy its connection for weeks. For a large
// body, for which memory is reserved, package limits defines the rate.
const minBodyRate = 1 << 10

// limitSilence ends requests whose bodies or answers make no progress. Otherwise a client that stops within a body, or
// disappears without closing, would occupy its connection forever.
func limitSilence(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		if r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: conn, began: time.Now(), large: r.ContentLength < 0 || r.ContentLength > limits.Free}
			b.extend()                     // also covers the part of the body that the handler does not read
			r = r.WithContext(r.Context()) // the server needs its own body to decide whether the rest is too long to read
			r.Body = b
		}
		_ = conn.SetWriteDeadline(time.Time{}) // clears the deadline of the previous request
		answer := &timedAnswer{ResponseWriter: w, conn: conn}
		h.ServeHTTP(answer, r)
		answer.extend() // the bytes in the server's buffer are written after the handler
	})
}

type timedAnswer struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (a *timedAnswer) extend() { _ = a.conn.SetWriteDeadline(time.Now().Add(bodyTimeout)) } // an error means that the connection is closed: the next write also fails

// answerPiece is the number of bytes that bodyTimeout applies to: a handler may write megabytes in one call.
const answerPiece = 4 << 10

func (a *timedAnswer) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, answerPiece) {
		a.extend()
		wrote, err := a.ResponseWriter.Write(piece)
		if n += wrote; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (a *timedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

type timedBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	began time.Time // start of the request or, if large, of the first read
	read  int64
	large bool // it has reserved memory
	paced bool // it is large, and being read
}

func (b *timedBody) extend() {
	deadline := time.Now().Add(bodyTimeout)
	latest := b.began.Add(4*bodyTimeout + time.Duration(b.read/minBodyRate)*time.Second)
	if b.paced {
		latest = limits.Due(b.began, b.read)
	}
	if latest.Before(deadline) {
		deadline = latest
	}
	_ = b.conn.SetReadDeadline(deadline) // an error means that the connection is closed: the next read also fails
}

// Read clears the deadline at the end of the body: after that the server watches the connection for the client's close,
// and would mistake an expired deadline for a close.
func (b *timedBody) Read(p []byte) (int, error) {
	if b.large && !b.paced { // the handler may have waited before
		b.began, b.paced = time.Now(), true
	}
	b.extend()
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}
