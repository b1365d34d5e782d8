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

// TestIdleAfterOfATopic: create sends it, and describe shows it.
func TestIdleAfterOfATopic(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/topic/create":
			require.Equal(t, "channel_idle_after=24h&idle_after=720h&topic=orders", r.URL.RawQuery)
		case "/v1/cluster":
			fmt.Fprint(w, `{"topics":[{"topic":"orders","idle_after_ms":2592000000,"channel_idle_after_ms":86400000}]}`)
		default:
			fmt.Fprint(w, "{}")
		}
	}))
	defer s.Close()
	out, err := run(t, time.Minute, "topic", "create", "orders", "--idle-after", "720h", "--channel-idle-after", "24h", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	require.Contains(t, out, ", idle_after=720h0m0s, channel_idle_after=24h0m0s")
}

// TestTrashCommands: the requests of topic delete, undelete, purge and trash, and the table.
func TestTrashCommands(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		switch r.URL.Path {
		case "/v1/topic/trash":
			fmt.Fprint(w, `{"topics":[{"topic":"orders","id":"16f3a2b4c5d6e7f8","deleted_at_ms":1,"by":"alice","partitions":3,"channels":2,"messages":10500,"bytes":2048,"remaining_ms":5,"until_ms":1000},`+
				`{"topic":"old","id":"000000000000002a","deleted_at_ms":1,"partitions":1,"channels":0,"messages":0,"bytes":0,"remaining_ms":0,"until_ms":0,"purging":true},`+
				`{"topic":"away","id":"000000000000002b","deleted_at_ms":1,"partitions":1,"channels":0,"messages":0,"bytes":0,"incomplete":true,"remaining_ms":0,"until_ms":0}]}`)
		case "/v1/cluster":
			fmt.Fprint(w, `{"topics":[{"topic":"orders"}]}`)
		default:
			fmt.Fprint(w, "{}")
		}
	}))
	defer s.Close()
	call := func(args ...string) string {
		t.Helper()
		asked = nil
		out, err := run(t, time.Minute, append(args, "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://"))...)
		require.NoError(t, err)
		return out
	}
	call("topic", "delete", "orders")
	require.Equal(t, []string{"POST /topic/delete?topic=orders"}, asked)
	call("topic", "delete", "orders", "--now")
	require.Equal(t, []string{"POST /topic/delete?now=true&topic=orders"}, asked)
	require.Contains(t, call("topic", "undelete", "orders", "--id", "16f3a2b4c5d6e7f8"), "topic orders")
	require.Equal(t, "POST /v1/topic/undelete?id=16f3a2b4c5d6e7f8&topic=orders", asked[0])
	call("topic", "purge", "orders")
	require.Equal(t, []string{"POST /v1/topic/purge?topic=orders"}, asked)
	lines := strings.Split(call("topic", "trash"), "\n")
	require.Regexp(t, `^orders +16f3a2b4c5d6e7f8 +\S+ +alice +3 +2 +10500 +2.0 KiB +\S+$`, lines[1])
	require.Regexp(t, `^old .* - +1 +0 +0 +0 B +being removed$`, lines[2])
	require.Regexp(t, `^away .* unknown +unknown +\S+$`, lines[3], "the leader of a partition did not answer")
}
