package etcdserver

import (
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
