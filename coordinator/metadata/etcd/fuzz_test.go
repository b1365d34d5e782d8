package etcd

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzFront: the peer port answers before the other side is known to be a member. No request
// makes it panic, and while etcd does not run none is answered with more than the report.
func FuzzFront(f *testing.F) {
	for _, seed := range []struct{ method, path, query string }{
		{"GET", reportPath, "from=n2"}, {"GET", reportPath, "from=%zz"}, {"GET", membersPath, ""}, {"POST", "/raft", ""},
		{"GET", "/raft/stream/message/1", ""}, {"PUT", "//", ";"}, {"CONNECT", "*", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, []byte("body"))
	}
	front := &front{report: func(from string) reportMessage { return reportMessage{Name: from} }}
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		for _, serve := range []http.HandlerFunc{front.serveReport, front.forward} {
			w := httptest.NewRecorder()
			serve(w, r)
			if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
				t.Fatalf("%q %q?%q: %d", method, path, query, w.Code)
			}
		}
	})
}

// FuzzReadHead: the client port reads the first bytes of strangers, in pieces of any
// size. They are passed on as they came, and only with the head of a request.
func FuzzReadHead(f *testing.F) {
	for _, seed := range []string{"", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04", "GET /health HTTP/1.1\r\nHost: a\r\n\r\nbody", "\r\n\r", "\r\n\r\n", strings.Repeat("x", 300)} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(200))
	}
	f.Fuzz(func(t *testing.T, input []byte, piece uint8) {
		into := make([]byte, 256)
		n, err := readHead(&pieces{rest: input, size: int(piece) + 1}, into)
		if !bytes.HasPrefix(input, into[:n]) {
			t.Fatalf("%q read as %q", input, into[:n])
		}
		if whole := bytes.Contains(into[:n], []byte("\r\n\r\n")); whole != (err == nil) {
			t.Fatalf("%q: %v", into[:n], err)
		}
		if at := bytes.Index(input, []byte("\r\n\r\n")); at >= 0 && at+4 <= len(into) && err != nil {
			t.Fatalf("%q is refused: %v", input, err)
		}
	})
}

// pieces is a connection whose bytes come in pieces of one size.
type pieces struct {
	net.Conn
	rest []byte
	size int
}

func (p *pieces) Read(into []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(into, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
