package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTopicCreateAndSet: all given settings are sent, zeros too, and a refusal is an error with the broker's text.
func TestTopicCreateAndSet(t *testing.T) {
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/cluster":
			fmt.Fprint(w, `{"topics":[{"topic":"orders"}]}`)
			return
		case "/v1/topic/channels":
			fmt.Fprint(w, `{}`)
			return
		}
		asked = r.Method + " " + r.URL.String()
		if r.URL.Query().Get("partitions") == "8" {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"message":"it exists with other settings: topic orders has partitions=1, not partitions=8"}`)
		}
	}))
	defer s.Close()
	call := func(args ...string) (string, error) {
		t.Helper()
		return run(t, time.Minute, append(append([]string{"topic"}, args...), "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://"))...)
	}
	for want, args := range map[string][]string{
		"POST /topic/create?topic=orders":                                      {"create", "orders"},
		"POST /topic/create?partitions=0&topic=orders":                         {"create", "orders", "--partitions", "0"},
		"POST /topic/create?max_bytes=0&min_in_sync=-1&topic=orders":           {"create", "orders", "--min-in-sync", "-1", "--max-bytes", "0"},
		"POST /topic/create?ordered=false&topic=orders":                        {"create", "orders", "--ordered=false"},
		"POST /v1/topic/set?durability=replicated&message_ttl=0s&topic=orders": {"set", "orders", "--message-ttl", "0s", "--durability", "replicated"},
		"POST /v1/topic/set?topic=orders":                                      {"set", "orders"},
	} {
		_, err := call(args...)
		require.NoError(t, err)
		require.Equal(t, want, asked)
	}
	_, err := call("create", "orders", "--partitions", "8")
	require.ErrorContains(t, err, "topic orders has partitions=1, not partitions=8")
}
