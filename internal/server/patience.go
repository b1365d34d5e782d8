package server

import (
	"io"
	"net/http"
	"slices"
	"time"
)

// bodyTimeout is how long a client may be silent in the middle of a body, or not
// take what it asked for. It bounds silence, not the whole: a large body over a slow
// line takes its time.
const bodyTimeout = 30 * time.Second

// patient serves with bodies and answers that end after a silence. Otherwise a client
// that stops half way, or is gone without a word, holds its connection for ever.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		if r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: conn}
			b.extend()                     // for what the handler leaves unread, too
			r = r.WithContext(r.Context()) // the server knows by its own body that it is too long to be read to its end
			r.Body = b
		}
		_ = conn.SetWriteDeadline(time.Time{}) // of the request before
		answer := &timedAnswer{ResponseWriter: w, conn: conn}
		h.ServeHTTP(answer, r)
		answer.extend() // what is still in the server's buffer goes now
	})
}

// timedAnswer gives each piece of an answer its time.
type timedAnswer struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (a *timedAnswer) extend() { _ = a.conn.SetWriteDeadline(time.Now().Add(bodyTimeout)) } // fails when it is closed: so will the write

// answerPiece has bodyTimeout: a handler may write megabytes at once.
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

// Unwrap is for http.ResponseController.
func (a *timedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *timedBody) extend() { _ = b.conn.SetReadDeadline(time.Now().Add(bodyTimeout)) } // fails when it is closed: so will the read

// Read lifts the limit at the end: from there on the server looks whether the
// client has gone, and a deadline would look like that to the handler.
func (b *timedBody) Read(p []byte) (int, error) {
	b.extend()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}
