package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

// shows reads an answer of the console.
func shows[A any](b *broker, token, path string) (a A) {
	b.t.Helper()
	status, text := b.with(token, "GET", "/v1/console/"+path, "")
	require.Equal(b.t, 200, status, text)
	require.NoError(b.t, json.Unmarshal([]byte(text), &a), text)
	return a
}

// consoleOfABroker: a consumer holds a message: the console shows it, its address and when it was last heard of.
func consoleOfABroker(t *testing.T, b *broker) {
	before := time.Now().UnixMilli()
	consumer := b.dial()
	consumer.send("SUB console billing\n")
	_, text := consumer.next()
	require.Equal(t, "OK", text)
	consumer.send("RDY 1\n")
	producer := b.dial()
	for range 3 {
		producer.put("console", "message")
	}
	consumer.next()

	var channel console.ChannelDetail
	b.eventually("shows the message in flight", func() bool {
		channel = shows[console.ChannelDetail](b, "", "channel?topic=console&channel=billing")
		return channel.Channel.InFlight == 1 && channel.Channel.Depth == 2
	})
	require.Len(t, channel.Connections, 1)
	c := channel.Connections[0]
	require.Equal(t, consumer.conn.LocalAddr().String(), c.RemoteAddress)
	require.EqualValues(t, 1, c.InFlightCount)
	require.EqualValues(t, 1, c.ReadyCount)
	require.Zero(t, c.FinishCount)
	for _, at := range []int64{c.LastActivity.UnixMilli(), channel.Oldest.TimeMS} {
		require.GreaterOrEqual(t, at, before)
		require.LessOrEqual(t, at, time.Now().UnixMilli())
	}

	overview := shows[console.Overview](b, "", "overview")
	require.Equal(t, 2, overview.Topics, "with that of the other part")
	require.Len(t, overview.Brokers, 1)
	require.Equal(t, "leader", overview.Brokers[0].Etcd)
	require.Equal(t, 1, overview.Brokers[0].Consumers)
	require.Positive(t, overview.Brokers[0].DiskDataBytes)
	require.EqualValues(t, 1, shows[console.PartitionDetail](b, "", "partition?topic=console&partition=0").Partition.Epoch)
	require.Equal(t, 3.0, float64(*shows[console.TopicDetail](b, "", "topic?topic=console").Partitions[0].CommittedSequence))

	for path, want := range map[string]int{
		"overview?x=1": 400, "topics?sort=size": 400, "topics?limit=501": 400, "topics?offset=-1": 400, "topics?order=up": 400, "series?minutes=61": 400, "series?channel=c": 400,
		"events?kind=nothing": 400, "events?limit=0": 400, "events?since_ms=now": 400, "partition?topic=console&partition=x": 400, "channel?topic=console": 400, "broker": 400,
		"topic?topic=none": 404, "channel?topic=console&channel=none": 404, "partition?topic=console&partition=9": 404, "broker?broker=n9": 404, "series?broker=n9": 404,
		"topics?search=con&sort=lag&order=asc&limit=500&offset=1": 200, "channels?topic=console": 200, "brokers": 200, "series?topic=console&minutes=1": 200,
	} {
		status, text := b.with("", "GET", "/v1/console/"+path, "")
		require.Equal(t, want, status, "%s: %s", path, text)
	}
	status, text := b.with("", "GET", "/v1/console/overview?x=1", "")
	require.Equal(t, 400, status)
	require.Contains(t, text, `there is no argument \"x\"`)
}

// The actions of administrators are events for administrators alone.
func TestConsoleShowsTheAuditToAdministrators(t *testing.T) {
	t.Parallel()
	b := guarded.use(t)
	root := b.root
	auditor := b.user(root, "auditor", "")
	status, text := b.with(root, "POST", "/v1/acl/grant?user=auditor&cluster=observe", "")
	require.Equal(t, 200, status, text)
	status, _ = b.with("", "GET", "/v1/console/overview", "")
	require.Equal(t, 401, status)
	audit := func(token string) (n int) {
		for _, e := range shows[console.Events](b, token, "events").Events {
			if e.Kind == events.Audit {
				n++
			}
		}
		return n
	}
	b.eventually("has the rights", func() bool {
		status, _ := b.with(auditor, "GET", "/v1/console/events", "")
		return status == 200
	})
	require.Zero(t, audit(auditor))
	require.GreaterOrEqual(t, audit(root), 3)
	for _, e := range shows[console.Events](b, root, "events?kind=audit").Events {
		require.NotContains(t, e.Text, root, "a token")
	}
}
