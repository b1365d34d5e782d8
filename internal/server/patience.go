package server

import (
	"io"
	"net/http"
	"time"
)

// bodyTimeout is how long a client may be silent in the middle of a body. It
// bounds silence, not the whole: a large body over a slow line takes its time.
const bodyTimeout = 30 * time.Second

// patient serves with bodies that end after a silence. Otherwise a client that
// stops half way, or is gone without a word, holds its connection for ever.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w)}
			b.extend() // for what the handler leaves unread, too
			r.Body = b
		}
		h.ServeHTTP(w, r)
	})
}

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
