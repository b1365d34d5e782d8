package httpapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// asked records the last operation and returns the result of its validation.
type asked struct{ op api.Operation }

func (a *asked) Do(_ context.Context, op api.Operation) error {
	a.op = op
	return api.Validate(op)
}

func to[T any](v T) *T { return &v }

// newPolicy has new values of options of a policy, each as name=value.
func newPolicy(t *testing.T, values ...string) (p option.Change[option.Policy]) {
	for _, x := range values {
		name, value, _ := strings.Cut(x, "=")
		at := slices.IndexFunc(option.Policies, func(r option.Row[option.Policy]) bool { return r.Name == name })
		require.NoError(t, p.Read(&option.Policies[at], value))
	}
	return p
}

// newValues are new values of options, each as name=value.
func newValues(t *testing.T, values ...string) (l option.Change[option.Topic]) {
	for _, x := range values {
		name, value, _ := strings.Cut(x, "=")
		at := slices.IndexFunc(option.Topics, func(r option.Row[option.Topic]) bool { return r.Name == name })
		require.NoError(t, l.Read(&option.Topics[at], value))
	}
	return l
}

// TestOperationsAreRead: missing and empty arguments leave the default; endpoints of
// NSQ alone ignore unknown ones.
func TestOperationsAreRead(t *testing.T) {
	a := &asked{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: a, Directory: oneTopic{}})
	for target, want := range map[string]api.Operation{
		"/topic/create?topic=t&partitions=": api.CreateTopic{Topic: "t"},
		"/topic/create?topic=t&partitions=2&replication_factor=3&min_in_sync=1&ordered=true&retention_time=1s&message_ttl=0&max_bytes=7&durability=replicated": api.CreateTopic{
			Topic: "t", Durability: "replicated", Partitions: 2, ReplicationFactor: 3, MinInSync: 1, Ordered: to(true),
			Options: newValues(t, "retention_time=1s", "message_ttl=0", "max_bytes=7"),
		},
		"/v1/topic/set?topic=t&max_bytes=7&durability=sync": api.SetTopic{
			Topic: "t", Durability: "sync", Options: newValues(t, "max_bytes=7")},
		"/topic/delete?topic=t":                            api.DeleteTopic{Topic: "t"},
		"/topic/delete?topic=t&now=true":                   api.DeleteTopic{Topic: "t", Now: true},
		"/v1/topic/undelete?topic=t":                       api.UndeleteTopic{Topic: "t"},
		"/v1/topic/undelete?topic=t&id=000000000000002a":   api.UndeleteTopic{Topic: "t", ID: 42},
		"/v1/topic/purge?topic=t&id=000000000000002a":      api.PurgeTopic{Topic: "t", ID: 42},
		"/topic/empty?topic=t":                             api.EmptyTopic{Topic: "t"},
		"/topic/pause?topic=t&channel=c":                   api.PauseTopic{Topic: "t", Paused: true},
		"/topic/unpause?topic=t":                           api.PauseTopic{Topic: "t"},
		"/v1/topic/move?topic=t&partition=2&from=n1&to=n2": api.MoveReplica{Topic: "t", Partition: 2, From: "n1", To: "n2"},
		"/v1/topic/move?topic=t":                           api.MoveReplica{Topic: "t", Partition: -1},
		"/v1/topic/replication?topic=t&min_in_sync=2":      api.SetReplication{Topic: "t", MinInSync: 2},
		"/v1/topic/partitions?topic=t&partitions=8":        api.SetPartitions{Topic: "t", Partitions: 8},
		"/v1/cluster/balance":                              api.Balance{},
		"/v1/broker/decommission?node=n1&cancel=1":         api.Decommission{Node: "n1", Cancel: true},
		"/v1/broker/drain?node=n1&replicas=true":           api.Drain{Node: "n1", Replicas: true},
		"/v1/broker/drain?node=n1&cancel=true":             api.Drain{Node: "n1", Cancel: true},
		"/channel/create?topic=t&channel=c&from=latest":    api.CreateChannel{Topic: "t", Channel: "c", From: "latest"},
		"/channel/delete?topic=t&channel=c":                api.DeleteChannel{Topic: "t", Channel: "c"},
		"/channel/empty?topic=t&channel=c":                 api.EmptyChannel{Topic: "t", Channel: "c"},
		"/channel/pause?topic=t&channel=c":                 api.PauseChannel{Topic: "t", Channel: "c", Paused: true},
		"/channel/unpause?topic=t&channel=c":               api.PauseChannel{Topic: "t", Channel: "c"},
		"/channel/setorder?topic=t&channel=c&order=true":   api.OrderChannel{Topic: "t", Channel: "c", Ordered: true},
		"/v1/channel/policy?topic=t&channel=c&max_attempts=&dead_letter_topic=&retry_backoff=": api.SetPolicy{
			Topic: "t", Channel: "c", Policy: newPolicy(t, "max_attempts=", "dead_letter_topic=", "retry_backoff=")},
		"/channel/create?topic=t&channel=c&filter=tag%3Da":                  api.CreateChannel{Topic: "t", Channel: "c", Filter: "tag=a"},
		"/v1/channel/policy?topic=t&channel=c&filter=":                      api.SetPolicy{Topic: "t", Channel: "c", Policy: newPolicy(t, "filter=")},
		"/v1/channel/policy?topic=t&channel=c&filter=%21header%3Aa~%3D%5Eb": api.SetPolicy{Topic: "t", Channel: "c", Policy: newPolicy(t, "filter=!header:a~=^b")},
		"/v1/channel/policy?topic=t&channel=c&max_attempts=3&retry_backoff=1s,3,5m,0.5": api.SetPolicy{
			Topic: "t", Channel: "c", Policy: newPolicy(t, "max_attempts=3", "retry_backoff=1s,3,5m,0.5")},
	} {
		answer := do(h, "POST", target, "")
		require.Equal(t, 200, answer.StatusCode, target)
		require.Equal(t, want, a.op, target)
	}
}

// TestMalformedArguments: an argument that cannot be read, or is missing, is refused with a sentence.
func TestMalformedArguments(t *testing.T) {
	a := &asked{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: a, Directory: oneTopic{}})
	for target, want := range map[string]string{
		"/topic/create?topic=t&partitions=0":                                  "partitions must be a positive number",
		"/topic/create?topic=t&partitions=-1":                                 "partitions must be a positive number",
		"/topic/create?topic=t&replication_factor=0":                          "replication_factor must be a positive number",
		"/topic/create?topic=t&retention_time=-1s":                            "retention_time must be a duration such as 24h",
		"/topic/create?topic=t&retention_time=1us":                            "retention_time must be at least 1ms, or 0",
		"/topic/create?topic=t&retention_time=60":                             "retention_time must be a duration such as 24h",
		"/topic/create?topic=t&max_bytes=1e3":                                 "max_bytes must be a number of bytes",
		"/v1/topic/set?topic=t&max_bytes=1e3":                                 "max_bytes must be a number of bytes",
		"/v1/topic/set?topic=t":                                               "name durability, a limit, or more of them",
		"/topic/create?topic=t&ordered=perhaps&partitions=0":                  "ordered must be true or false",
		"/topic/delete?topic=t&now=perhaps":                                   "now must be true or false",
		"/v1/topic/undelete?topic=t&id=x":                                     "id must be the id of a topic: 16 hexadecimal digits",
		"/v1/topic/purge?topic=t&id=0":                                        "id must be the id of a topic: 16 hexadecimal digits",
		"/v1/topic/replication?topic=t":                                       "name replication_factor, min_in_sync, or both",
		"/v1/topic/replication?topic=t&min_in_sync=x":                         "min_in_sync must be a positive number",
		"/v1/broker/decommission?node=n1&cancel=x":                            "cancel must be true or false",
		"/channel/create?topic=t&channel=c&ordered=x":                         "ordered must be true or false",
		"/channel/setorder?topic=t&channel=c":                                 "order must be true or false",
		"/v1/channel/policy?topic=t&channel=c&max_attempts=-1":                "max_attempts must be 0 to 65535",
		"/v1/channel/policy?topic=t&channel=c&max_attempts=x&retry_backoff=x": "max_attempts must be 0 to 65535",
		"/v1/channel/policy?topic=t&channel=c":                                "name max_attempts, dead_letter_topic, retry_backoff, filter, or more of them",
		"/v1/channel/policy?topic=t&channel=c&filter=region":                  `filter: \"region\" has no condition: write tag=VALUE or header:NAME=VALUE`,
		"/channel/create?topic=t&channel=c&filter=tag%5E%3D":                  "filter: the prefix is empty",
		"/v1/channel/policy?topic=t&channel=c&retry_backoff=1s,0.5":           "retry_backoff must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2",
		"/v1/channel/policy?topic=t&channel=c&retry_backoff=0s,0":             "retry_backoff must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2",
		"/v1/channel/policy?topic=t&channel=c&retry_backoff=1s,2,5m,0.2,1":    "retry_backoff must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2",
	} {
		answer := do(h, "POST", target, "")
		require.Equal(t, 400, answer.StatusCode, target)
		require.Equal(t, fmt.Sprintf(`{"message":"invalid argument: %s"}`, want), text(t, answer), target)
	}
}

// TestBoundsOfNumbers: a number directly below or above the bounds of its argument is refused.
func TestBoundsOfNumbers(t *testing.T) {
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: &asked{}, Directory: oneTopic{}, Console: &console.Console{}})
	for target, want := range map[string]string{
		"GET /v1/console/topics?limit=0":                          "limit must be a number from 1 to 500",
		"GET /v1/console/topics?limit=501":                        "limit must be a number from 1 to 500",
		"GET /v1/console/channels?offset=-1":                      "offset must be a number from 0 to 1073741824",
		"GET /v1/console/channels?offset=1073741825":              "offset must be a number from 0 to 1073741824",
		"GET /v1/console/events?limit=0":                          "limit must be a number from 1 to 1000",
		"GET /v1/console/events?limit=1001":                       "limit must be a number from 1 to 1000",
		"GET /v1/console/series?minutes=0":                        "minutes must be a number from 1 to 60",
		"GET /v1/console/series?minutes=61":                       "minutes must be a number from 1 to 60",
		"POST /v1/topic/partitions?topic=t&partitions=0":          "partitions must be a positive number",
		"POST /v1/topic/replication?topic=t&min_in_sync=0":        "min_in_sync must be a positive number",
		"POST /v1/topic/replication?topic=t&replication_factor=0": "replication_factor must be a positive number",
	} {
		method, path, _ := strings.Cut(target, " ")
		answer := do(h, method, path, "")
		require.Equal(t, 400, answer.StatusCode, target)
		require.Equal(t, fmt.Sprintf(`{"message":"invalid argument: %s"}`, want), text(t, answer), target)
	}
}

// TestADeletionOfNSQAdminIsOneOfMany: nsqadmin asks every broker, other clients mean the topic that is there.
func TestADeletionOfNSQAdminIsOneOfMany(t *testing.T) {
	a := &asked{}
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admin: a, Directory: oneTopic{}})
	r := httptest.NewRequest("POST", "/topic/delete?topic=t", nil)
	r.Header.Set("Accept", "application/vnd.nsq; version=1.0")
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, api.DeleteTopic{Topic: "t", BrokerByBroker: true}, a.op)
}

// TestUnknownArgumentsAreRefused: an endpoint beyond NSQ refuses a mistyped argument
// and has no effect.
func TestUnknownArgumentsAreRefused(t *testing.T) {
	a := &asked{}
	r := &replicas{}
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	h := httpapi.NSQD(httpapi.Options{Messages: settings.Messages{MaxMsgSize: 100, MaxBodySize: 100}}, httpapi.Backend{
		Admin: a, Inspector: r, Recovery: r, Publisher: cluster, Directory: cluster.Directory(), Channels: &askedChannels{},
	})
	lookup := httpapi.Lookup(httpapi.Options{}, httpapi.Backend{Admin: a, Directory: cluster.Directory()})
	for target, takes := range map[string]string{
		"POST /pub?topic=t&tll=5":                                  "topic, defer, key, ttl",
		"POST /mpub?topic=t&ttl_ms=5":                              "topic, binary, defer, key, ttl",
		"POST /topic/create?topic=t&partition=2":                   "topic, partitions, replication_factor, min_in_sync, ordered, durability, retention_time, retention_bytes, max_bytes, message_ttl",
		"POST /channel/create?topic=t&channel=c&form=earliest":     "topic, channel, from, ordered, filter",
		"POST /channel/setorder?topic=t&channel=c&ordered=true":    "topic, channel, order",
		"POST /v1/topic/move?topic=t&partitions=1":                 "topic, partition, from, to",
		"POST /v1/topic/replication?topic=t&min_isr=2":             "topic, replication_factor, min_in_sync",
		"POST /v1/cluster/balance?node=n1":                         "none",
		"POST /v1/broker/decommission?node=n1&cancle=true":         "node, cancel",
		"POST /v1/channel/seek?topic=t&channel=c&to=1&partitions=": "topic, channel, to, partition, dry_run",
		"POST /v1/channel/policy?topic=t&channel=c&max_attempt=2":  "topic, channel, max_attempts, dead_letter_topic, retry_backoff, filter",
		"POST /v1/channel/redrive?topic=t&channel=c&max=2":         "topic, channel, limit",
		"GET /v1/topic/peek?topic=t&sequence=2":                    "topic, topic_id, partition, from, limit, node, uncommitted",
		"GET /v1/partition/digest?topic=t&partition=0&to=2":        "topic, partition, from",
		"POST /v1/topic/recover?topic=t&form=n1&confirm=t/0":       "topic, partition, from, discard, confirm",
		"GET /v1/cluster?topic=t":                                  "none",
	} {
		a.op, r.asked = nil, ""
		method, path, _ := strings.Cut(target, " ")
		answer := do(h, method, path, "body")
		require.Equal(t, 400, answer.StatusCode, target)
		body := text(t, answer)
		require.Contains(t, body, "there is no argument", target)
		require.Contains(t, body, "but: "+takes, target)
		require.Nil(t, a.op, target)
		require.Empty(t, r.asked, target)
	}
	require.Equal(t, 400, do(lookup, "POST", "/topic/create?topic=t&partition=2", "").StatusCode)
	require.Empty(t, cluster.Directory().Topics(), "something was published")
}
