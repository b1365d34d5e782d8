package console_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// TestAuditSentences: an entry of the audit reads as a sentence, and loses none of its arguments.
func TestAuditSentences(t *testing.T) {
	for _, c := range []struct {
		entry guard.Entry
		want  string
	}{
		{guard.Entry{Action: "POST /topic/create", Detail: "topic=orders&partitions=4&ttl=1h&min_in_sync=2"}, "alice created the topic orders with 4 partitions (min_in_sync=2, ttl=1h)"},
		{guard.Entry{Action: "POST /topic/create", Detail: "topic=orders"}, "alice created the topic orders"},
		{guard.Entry{Action: "POST /topic/delete", Detail: "topic=orders", Result: guard.ResultRefused}, "alice was not allowed to delete the topic orders"},
		{guard.Entry{Action: "POST /v1/channel/seek", Detail: "topic=o&channel=c&to=earliest", Result: guard.ResultFailed}, "alice failed to move the channel o/c to earliest"},
		{guard.Entry{Action: "POST /v1/broker/drain", Detail: "node=n2&replicas=true"}, "alice began to drain the broker n2 (replicas=true)"},
		{guard.Entry{Action: "POST /v1/broker/drain", Detail: "node=n2&cancel=true"}, "alice ended the drain of the broker n2"},
		{guard.Entry{Action: "POST /v1/broker/drain", Detail: "node=n2&cancel=false"}, "alice began to drain the broker n2 (cancel=false)"},
		{guard.Entry{Action: "POST /v1/acl/grant", Detail: "user=shop&topic=orders.*&rights=publish"}, "alice gave the user shop the rights publish on the topics orders.*"},
		{guard.Entry{Action: "POST /v1/acl/grant", Detail: "user=shop&cluster=observe"}, "alice gave the user shop the right to observe the cluster"},
		{guard.Entry{Action: "POST /v1/channel/deferred/cancel", Detail: "topic=o&channel=c&id=a&id=b"}, "alice cancelled delayed messages of the channel o/c (id=a,b)"},
		{guard.Entry{Action: "POST /channel/pause", Detail: "topic=o"}, "alice paused the channel o/(no channel)"},
		{guard.Entry{Action: "PUT /config/log_level"}, "alice changed the setting log_level"},
		{guard.Entry{Action: "GET /debug/pprof/heap", Detail: "debug=1"}, "alice read the profile heap (debug=1)"},
		{guard.Entry{Action: "GET /debug/pprof"}, "alice read the profile"},
		{guard.Entry{Action: "PUB", Detail: "created topic t", Implied: true}, "alice created topic t, by PUB"},
		{guard.Entry{Action: "PUB", Detail: "create topic t: quota reached", Implied: true, Result: guard.ResultRefused}, "alice was refused, by PUB: create topic t: quota reached"},
		{guard.Entry{Action: "POST /of/a/later/build", Detail: "x=y", Result: guard.ResultFailed}, "alice requested POST /of/a/later/build x=y, which was not possible"},
	} {
		e := c.entry
		e.Identity = "alice"
		if e.Result == "" {
			e.Result = guard.ResultOK
		}
		require.Equal(t, c.want, console.AuditSentence(&e))
	}
}
