package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzRequests sends any query to every endpoint that changes or stores something: the handler
// does not panic, and no answer reports an internal error.
func FuzzRequests(f *testing.F) {
	for _, query := range []string{
		"topic=t", "topic=t&defer=1", "topic=t&binary=true", "topic=t&channel=c", "topic=t&channel=c%23ephemeral", "topic=%zz", "a;b",
		"topic=t&partitions=3&ordered=true&max_bytes=-1", "topic=t&key=k&ttl=5", "topic=t&channel=c&to=earliest", "topic=&channel=", "format=json&include_clients=0",
	} {
		for _, body := range []string{"", "one\ntwo\n", "\x00\x00\x00\x01\x00\x00\x00\x01x", "\xff\xff\xff\xff"} {
			f.Add(query, []byte(body))
		}
	}
	paths := []string{"/pub", "/mpub", "/topic/create", "/topic/pause", "/topic/empty", "/channel/create", "/channel/pause", "/v1/channel/seek", "/v1/channel/policy"}
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		s := newSite(t)
		for _, path := range paths {
			s.survive(http.MethodPost, path, query, body)
		}
		for _, path := range []string{"/stats", "/lookup", "/channels", "/config/log_level"} {
			s.survive(http.MethodGet, path, query, nil)
		}
	})
}

func (s *site) survive(method, path, query string, body []byte) {
	s.t.Helper()
	for _, handler := range []http.Handler{s.nsqd, s.lookup} {
		r := httptest.NewRequest(method, path, strings.NewReader(string(body)))
		r.URL = &url.URL{Path: path, RawQuery: query}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError {
			s.t.Fatalf("%s %s?%s: %d %s", method, path, query, w.Code, w.Body)
		}
	}
}
