package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

// TestMetricsAndLog: every line of --log-format=json is an object with the fields that each line has; clients leave a
// trail, and neither secrets nor bodies do. --metrics-max-series bounds the series.
func TestMetricsAndLog(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.env = []string{"NSQD_CLUSTER_TOKEN=very-secret-token-of-the-cluster"}
	b.run("--log-format=json", "--log-level=debug", "--metrics-max-series=10", "--partitions=3", "--log-slow=1ns")
	b.ready()
	c := b.dial()
	c.put("orders", "a private body")
	c.consume("orders", "billing", 1)
	id, _, _ := c.message()
	c.send("FIN %s\n", id)
	c.send("FIN %s\n", id)
	c.expect("E_FIN_FAILED FIN " + id + " failed ID not in flight")
	c.send("a private command\n")
	c.expect("E_INVALID invalid command a")
	c.expectEnd()
	bad := b.dial()
	bad.command("a private secret", "AUTH")
	bad.expectEnd()

	var rows []map[string]any
	find := func(msg, field, value string) func() bool {
		return func() bool {
			rows = b.jsonLog()
			return slices.ContainsFunc(rows, func(r map[string]any) bool {
				text, _ := r[field].(string)
				return strings.HasPrefix(r["msg"].(string), msg) && strings.HasPrefix(text, value)
			})
		}
	}
	for _, line := range [][3]string{
		{"lockstep ", "level", "info"}, {"settings that differ from the defaults: ", "data_path", b.dir}, {"ready to serve clients", "node", "n1"},
		{"client connected", "client", "127.0.0.1:"}, {"client subscribed", "channel", "billing"}, {"client disconnected", "topic", "orders"},
		{"command refused", "code", "E_FIN_FAILED"}, {"command refused, closing the connection", "code", "E_INVALID"},
		{"gained leadership of partitions", "first", "orders/"}, {"slow put", "stage", ""}, {"slow disk", "took", ""},
	} {
		b.eventually(line[0], find(line[0], line[1], line[2]))
	}
	for _, row := range rows {
		require.Equal(t, "n1", row["broker"])
		_, err := time.Parse(time.RFC3339Nano, row["time"].(string))
		require.NoError(t, err)
	}
	require.NotContains(t, b.logged(), "private")
	require.NotContains(t, b.logged(), "very-secret")
	require.Contains(t, b.logged(), "NSQD_CLUSTER_TOKEN = (secret)")
	require.Equal(t, 3.0, b.metric("lockstep_partitions_led"))
	require.Equal(t, 2.0, b.metric("lockstep_partitions_not_listed"))
}

// jsonLog reads the log, whose every line must be a JSON object.
func (b *broker) jsonLog() (rows []map[string]any) {
	b.t.Helper()
	for line := range strings.Lines(b.logged()) {
		var row map[string]any
		if !strings.HasSuffix(line, "\n") {
			continue // not written to its end yet
		}
		require.NoError(b.t, json.Unmarshal([]byte(line), &row), line)
		rows = append(rows, row)
	}
	return rows
}

// TestFormats: both formats have the same fields, with durations and errors as texts.
func TestFormats(t *testing.T) {
	e := logrus.NewEntry(logrus.New()).WithError(errors.New("no disk")).WithFields(logrus.Fields{"for": 1500 * time.Millisecond, "topic": "a b"})
	e.Time, e.Level, e.Message = time.Date(2026, 11, 23, 1, 2, 3, 456789000, time.UTC), logrus.WarnLevel, "text"
	line, err := lineFormat{prefix: "[nsqd] "}.Format(e)
	require.NoError(t, err)
	require.Equal(t, `[nsqd] 2026/11/23 01:02:03.456789 WARNING: text  error="no disk" for=1.5s topic="a b"`+"\n", string(line))
	line, err = newJSONFormat("n1").Format(e)
	require.NoError(t, err)
	require.JSONEq(t, `{"time":"2026-11-23T01:02:03.456789Z","level":"warning","msg":"text","broker":"n1","error":"no disk","for":"1.5s","topic":"a b"}`, string(line))
	require.NotContains(t, e.Data, "broker", "the entry is not changed")
}

// TestChangedSettings names what differs, without secrets and passwords.
func TestChangedSettings(t *testing.T) {
	require.Empty(t, config.Defaults().Changed())
	o := config.Defaults()
	o.Linger, o.ClusterToken, o.EtcdEndpoints, o.TCPAddress = time.Millisecond, "hush", []string{"https://me:hush@etcd:2379"}, "127.0.0.1:1"
	text := strings.Join(o.Changed(), "\n")
	require.Equal(t, "tcp_address = \"127.0.0.1:1\"\nNSQD_CLUSTER_TOKEN = (secret)\netcd_endpoints = [\"https://me:xxxxx@etcd:2379\"]\nlinger = \"1ms\"", text)
}

// TestALineIsALine: an entry is one line of printable characters, whatever a stranger has sent.
// A name may hold what a terminal obeys.
func TestALineIsALine(t *testing.T) {
	for _, foreign := range []string{"a\x1b[2Jb", "a\nb", "a\r\n[nsqd] forged", "a\x00b", "a\xffb", "a\u009b31mb", "a\u2028b", "\x07", "a\u202eb"} {
		for _, e := range []*logrus.Entry{
			{Level: logrus.InfoLevel, Message: "said " + foreign, Data: logrus.Fields{}},
			{Level: logrus.InfoLevel, Message: "refused", Data: logrus.Fields{"node": foreign, "error": errors.New(foreign)}},
		} {
			line, err := lineFormat{prefix: "[nsqd] "}.Format(e)
			require.NoError(t, err)
			text, ok := strings.CutSuffix(string(line), "\n")
			require.True(t, ok)
			require.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }), "%q", text)
			require.Contains(t, text, "b"[:min(1, strings.Count(foreign, "b"))])
		}
	}
	line, err := lineFormat{prefix: "[nsqd] "}.Format(&logrus.Entry{Level: logrus.WarnLevel, Message: `é “x” {"a":"b"}` + "\n", Data: logrus.Fields{"n": 5, "s": "plain", "q": "two words"}})
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(line), "WARNING: ")
	require.Equal(t, `é “x” {"a":"b"}  n=5 q="two words" s=plain`+"\n", text)
}
