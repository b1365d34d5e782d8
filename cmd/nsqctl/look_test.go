package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// TestLook: the commands that print the console's answers name what is missing, and write unknown
// numbers as unknown.
func TestLook(t *testing.T) {
	one, kept := 1.5, 3.0*(1<<20)
	free, dead := int64(5<<30), int64(8)
	at := time.Now().Add(-time.Minute).UnixMilli()
	stuck := console.Channel{Topic: "orders", Channel: "billing", InFlight: 8, LagSeconds: 61.04, Clients: 1}
	silent := []console.Unreachable{{Broker: "n3", Reason: "dead"}}
	answers := map[string]any{
		"/v1/console/events": console.Events{Unreachable: silent, Events: []console.Event{
			{TimeMS: at + 1000, Kind: "audit", State: "healthy", Text: "alice: POST /topic/delete topic=old", Identity: "alice", Remote: "10.0.0.7:4242", Result: "ok"},
			{TimeMS: at, Kind: "topic", State: "healthy", Text: "topic old was created"},
		}},
		"/v1/console/brokers": console.Brokers{Unreachable: silent, Brokers: []console.Broker{
			{BrokerView: api.BrokerView{Name: "n1", Alive: true}, Answered: true, Leads: 3, Replicas: 9, Live: &console.Live{
				Traffic: console.Traffic{Puts: &one}, SyncP99MS: &one, Connections: 2, DiskFreeBytes: &free, DiskDataBytes: 2048, Etcd: "leader", Refused: map[string]float64{"topic_full": 4, "no_leader": 1}}},
			{BrokerView: api.BrokerView{Name: "n3"}, Replicas: 9, BehindSeconds: &one},
		}},
		"/v1/console/channels": console.Channels{Listed: console.Listed{Matched: 3}, Channels: []console.Channel{stuck, {Topic: "orders", Channel: "audit", Finishes: &one}}},
		"/v1/console/channel": console.ChannelDetail{Channel: stuck, DeadLetterTopic: "orders.dead", DeadLetters: &dead, Oldest: &console.Oldest{Partition: 1, Sequence: 7, TimeMS: at},
			Connections: []console.Connection{
				{Broker: "n2", ConsumerStats: api.ConsumerStats{LastActivity: time.UnixMilli(at), ClientStats: api.ClientStats{
					RemoteAddress: "10.0.0.7:53012", ClientID: "worker-7", ReadyCount: 10, InFlightCount: 8, MessageCount: 8, AuthIdentity: "shop"}}},
				{Broker: "n3", ConsumerStats: api.ConsumerStats{LastActivity: time.UnixMilli(at), Oldest: &api.HeldMessage{ID: [16]byte([]byte("0a00000000000000")), Attempts: 3, For: time.Minute},
					ClientStats: api.ClientStats{RemoteAddress: "10.0.0.8:1", ClientID: "cron", InFlightCount: 1, Version: api.OverHTTP}}},
			}},
		"/v1/console/topics": console.Topics{Listed: console.Listed{Matched: 2}, Topics: []console.Topic{{Topic: "clicks", Partitions: 2, ReplicationFactor: 3, KeptBytes: &kept}, {Topic: "orders"}}},
	}
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		require.NoError(t, json.NewEncoder(w).Encode(answers[r.URL.Path]))
	}))
	defer s.Close()
	run := func(line string) string {
		t.Helper()
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append(strings.Fields(line), "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")))
		require.NoError(t, root.ExecuteContext(t.Context()))
		return out.String()
	}
	text := run("cluster events --since 2h --kind audit,topic --topic old -n 10")
	require.Contains(t, asked, "kind=audit%2Ctopic&limit=10&since_ms="+fmt.Sprint(time.Now().Add(-2 * time.Hour).UnixMilli())[:8])
	require.Contains(t, text, "no answer from n3 (dead): its part is missing\n")
	require.Contains(t, text, "older events are missing")
	require.Regexp(t, `(?s)topic old was created.*alice: POST /topic/delete topic=old \(from 10.0.0.7:4242, ok\)`, text, "the newest last")

	text = run("broker list")
	require.Regexp(t, `(?m)^n1 +alive +3 +9 +2 +- +1.5 ms +unknown +5 +2 +2.0 KiB +5.0 GiB +leader$`, text)
	require.Regexp(t, `(?m)^n3 +dead +0 +9 +unknown +unknown +unknown +1500 ms +unknown`, text)
	require.Regexp(t, `(?m)^n1 +1 +no_leader\nn1 +4 +topic_full$`, text)

	text = run("channel list orders -n 2")
	require.Contains(t, asked, "sort=lag&topic=orders")
	require.Regexp(t, `(?m)^orders/billing +1m1s +0 +8 +0 +unknown +0 +0 +1 +delivers$`, text)
	require.Regexp(t, `(?m)^orders/audit +0s +0 +0 +0 +1.5 +0 +0 +0 +no consumers$`, text)
	require.Contains(t, text, "and 1 more: -n\n")

	text = run("channel describe orders billing")
	require.Contains(t, text, "oldest message: partition 1, sequence 7, of ")
	require.Contains(t, text, "dead letters: 8 in topic orders.dead\n")
	require.Regexp(t, `(?m)^worker-7 +10.0.0.7:53012 +n2 +10 +8 +- +- +- +8 +0 +0 +1m0s ago +shop$`, text)
	require.Regexp(t, `(?m)^cron \(HTTP\) +10.0.0.8:1 +n3 +0 +1 +1m0s +3 +0a0{14} +0 +0 +0 +1m0s ago`, text)

	text = run("topic list --sort disk")
	require.Regexp(t, `(?m)^clicks +2 +3 +0 +3.0 MiB +unknown`, text)
	require.Regexp(t, `(?m)^orders +0 +0 +0 +unknown`, text)
	var v console.Topics
	require.NoError(t, json.Unmarshal([]byte(run("topic list --sort disk -o json")), &v))
	require.Len(t, v.Topics, 2)
}
