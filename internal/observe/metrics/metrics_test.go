package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

func scrape(r *metrics.Recorder) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestRecorded(t *testing.T) {
	r := metrics.New(10)
	r.Took(metrics.StageSync, 130*time.Microsecond)
	r.Stored(3, 300)
	r.Answered(nil)
	r.Answered(fmt.Errorf("wrapped: %w", outcome.ErrInDoubt))
	r.Delivered(5, time.Millisecond)
	r.Wait("t", "c").Waited(-time.Second)
	r.Add(metrics.EventRollback, 1)
	r.Gauge("disk_free_bytes", func() float64 { return 7 })
	r.Counter("journal_syncs_total", func() float64 { return 8 })
	r.Source([]string{"rpc_up", "rpc_sent_bytes_total"}, func(emit metrics.Emit) {
		emit("rpc_up", 1, "n2")
		emit("rpc_sent_bytes_total", 9, "n2")
		emit("rpc_sent_bytes_total", 10, "n3")
	})
	r.Add(metrics.PutsForwarded, 2)
	r.Add(metrics.MessagesRelayed, 4)
	r.Add(metrics.PutsRolledBack, 5)
	r.Add(metrics.PutsInDoubt, 6)
	r.Add(metrics.IdleTopics, 1)
	r.Took(metrics.JournalSync, time.Millisecond)
	r.Took(metrics.Checkpoint, 2*time.Second)
	r.Took(metrics.Election, 300*time.Millisecond)
	r.Add(metrics.RefusedHTTPConnections, 1)
	out := scrape(r)
	for _, line := range []string{
		`lockstep_put_stage_seconds_count{stage="sync"} 1`,
		`lockstep_put_stage_seconds_bucket{stage="sync",le="0.0002"} 1`,
		`lockstep_puts_total{answer="ok"} 1`, `lockstep_puts_total{answer="in_doubt"} 1`, `lockstep_puts_total{answer="rolled_back"} 0`,
		`lockstep_messages_put_total 3`, `lockstep_bytes_put_total 300`, `lockstep_messages_delivered_total 5`,
		`lockstep_message_wait_seconds_sum{channel="c",topic="t"} 0`, `lockstep_events_total{event="rollback"} 1`,
		`lockstep_disk_free_bytes 7`, `lockstep_journal_syncs_total 8`, `lockstep_rpc_up{node="n2"} 1`,
		`lockstep_rpc_sent_bytes_total{node="n2"} 9`, `lockstep_rpc_sent_bytes_total{node="n3"} 10`,
		`lockstep_puts_forwarded_total 2`, `lockstep_messages_relayed_total 4`,
		`lockstep_replica_puts_rolled_back_total 5`, `lockstep_replica_puts_in_doubt_total 6`,
		`lockstep_idle_removed_total{kind="topic"} 1`, `lockstep_idle_removed_total{kind="channel"} 0`,
		`lockstep_journal_sync_seconds_count 1`, `lockstep_checkpoint_seconds_bucket{le="2"} 1`, `lockstep_election_seconds_sum 0.3`,
		`lockstep_refused_total{limit="http_connections"} 1`, `lockstep_refused_total{limit="tcp_connections"} 0`,
	} {
		require.Contains(t, out, line+"\n")
	}
}

func TestNilRecorderDoesNothing(t *testing.T) {
	var r *metrics.Recorder
	r.Took(metrics.StageCommit, 1)
	r.Stored(1, 1)
	r.Answered(nil)
	r.Delivered(1, 1)
	r.Wait("t", "c").Waited(1)
	r.Add(metrics.EventAlarm, 1)
	r.Gauge("ready", nil)
	r.Counter("journal_syncs_total", nil)
	r.Source(nil, nil)
	r.Queues(nil)
	r.Partitions(nil)
	r.LimitPartitions(1)
	r.Add(metrics.PutsForwarded, 1)
	r.Took(metrics.JournalSync, 1)
	require.NotContains(t, scrape(r), "lockstep")
}

func TestSeriesAreBounded(t *testing.T) {
	r := metrics.New(5)
	r.Queues(func() []api.TopicSample {
		var topics []api.TopicSample
		for i := 9; i >= 0; i-- {
			topics = append(topics, api.TopicSample{Topic: fmt.Sprint("t", i), Depth: 1, Put: 2, Channels: []api.ChannelSample{{Channel: "c", Depth: 3, Clients: 1}}})
		}
		return topics
	})
	out := scrape(r)
	require.Equal(t, 3, strings.Count(out, "\nlockstep_topic_depth{"))
	for _, line := range []string{
		`lockstep_topic_depth{topic="t0"} 1`, `lockstep_topic_depth{topic="_other"} 8`, `lockstep_topic_messages_total{topic="_other"} 16`,
		`lockstep_channel_depth{channel="c",topic="t1"} 3`, `lockstep_channel_depth{channel="_other",topic="_other"} 24`, `lockstep_channel_clients{channel="_other",topic="_other"} 8`,
	} {
		require.Contains(t, out, line+"\n")
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	r := metrics.New(1)
	wait := r.Wait("t", "c")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Took(metrics.StageQueue, time.Millisecond)
		r.Stored(1, 1)
		r.Answered(nil)
		r.Delivered(1, time.Millisecond)
		r.Add(metrics.EventElected, 1)
		r.Took(metrics.JournalSync, time.Millisecond)
		r.Add(metrics.PutsForwarded, 1)
		wait.Waited(time.Second)
	}))
}

// NSQ allows the name "_other". A topic with that name does not break the scrape.
func TestATopicMayBeCalledOther(t *testing.T) {
	r := metrics.New(2)
	r.Queues(func() []api.TopicSample { return []api.TopicSample{{Topic: "_other"}, {Topic: "a"}, {Topic: "b"}} })
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body.String())
}

// A later source of the same names replaces the one before: its owner was restarted.
func TestASourceIsReplaced(t *testing.T) {
	r := metrics.New(1)
	for i := range 3 {
		r.Gauge("ready", func() float64 { return float64(i) })
		r.Source([]string{"rpc_up", "rpc_queue_bytes"}, func(emit metrics.Emit) { emit("rpc_up", float64(i), "n2") })
	}
	out := scrape(r)
	require.Contains(t, out, "lockstep_ready 2\n")
	require.Contains(t, out, `lockstep_rpc_up{node="n2"} 2`+"\n")
}

func TestAMetricOutsideTheTableIsRefused(t *testing.T) {
	r := metrics.New(1)
	require.PanicsWithValue(t, `metrics: gauge "guess" is not in the table`, func() { r.Gauge("guess", func() float64 { return 1 }) })
	require.Panics(t, func() { r.Counter("ready", func() float64 { return 1 }) }, "another kind")
}

// The sum of the topics beyond the limit is a counter too: it continues when a topic is deleted, when
// one gets series of its own, and when one comes.
func TestTheSumOfOtherTopicsNeverFalls(t *testing.T) {
	r := metrics.New(1)
	var topics []api.TopicSample
	r.Queues(func() []api.TopicSample { return topics })
	sum := func() (messages float64) {
		for line := range strings.Lines(scrape(r)) {
			if rest, ok := strings.CutPrefix(line, `lockstep_topic_messages_total{topic="_other"} `); ok {
				_, err := fmt.Sscan(rest, &messages)
				require.NoError(t, err)
			}
		}
		return messages
	}
	row := func(name string, n uint64) api.TopicSample { return api.TopicSample{Topic: name, Put: n} }
	topics = []api.TopicSample{row("a", 1), row("b", 10), row("c", 100)}
	require.Equal(t, 110.0, sum())
	topics = []api.TopicSample{row("a", 1), row("c", 107)}
	require.Equal(t, 117.0, sum(), "b was deleted")
	topics = []api.TopicSample{row("c", 108)}
	require.Equal(t, 117.0, sum(), "a was deleted: c has series of its own, and no topic is beyond the limit")
	topics = []api.TopicSample{row("a", 5), row("c", 108)}
	require.Equal(t, 225.0, sum(), "c is beyond the limit again, as if it were new")
}

func TestPartitionsAreBounded(t *testing.T) {
	r := metrics.New(1)
	r.LimitPartitions(3)
	r.Partitions(func() []metrics.Partition {
		var all []metrics.Partition
		for i := range 10 {
			p := metrics.Partition{Topic: "t", Number: uint16(i), Leader: "n1", Epoch: 7, Replicas: 3, InSync: 3, EndSequence: 9}
			if i == 8 {
				p.InSync, p.LagBytes, p.Lag = 2, 4096, 1500*time.Millisecond
			}
			all = append(all, p)
		}
		return all
	})
	out := scrape(r)
	require.Equal(t, 3, strings.Count(out, "\nlockstep_partition_epoch{"))
	for _, line := range []string{
		`lockstep_partition_in_sync_replicas{leader="n1",partition="8",topic="t"} 2`, `lockstep_partition_lag_bytes{leader="n1",partition="8",topic="t"} 4096`,
		`lockstep_partition_lag_seconds{leader="n1",partition="8",topic="t"} 1.5`, `lockstep_partition_epoch{leader="n1",partition="1",topic="t"} 7`,
		`lockstep_partition_end_sequence{leader="n1",partition="0",topic="t"} 9`, `lockstep_partitions_not_listed 7`,
	} {
		require.Contains(t, out, line+"\n")
	}
}

// scrapeMost bounds a scrape of 10,000 topics: 3,333 lines for each of the metrics of topics, and
// twice as many for the others, would be too many for a scrape every 15 s.
const scrapeMost = 16 << 20

// TestScrapeOf10000Topics: the series are bounded by the limit, not by the topics.
func TestScrapeOf10000Topics(t *testing.T) {
	const topics = 10_000
	for _, limit := range []int{2 * topics, 10_000, 100} {
		r := recorderOf(topics, limit)
		out := scrape(r)
		lines := strings.Count(out, "\nlockstep_")
		t.Logf("limit %d: %d lines, %d KiB", limit, lines, len(out)>>10)
		require.LessOrEqual(t, lines, 3*limit/2+8*limit/2+11+6*metrics.DefaultMaxPartitions+400)
		require.Less(t, len(out), scrapeMost)
	}
}

// recorderOf has the metrics of n topics with a partition and a channel each.
func recorderOf(n, limit int) *metrics.Recorder {
	r := metrics.New(limit)
	r.Queues(manyTopics(n))
	r.Partitions(func() []metrics.Partition {
		all := make([]metrics.Partition, n)
		for i := range all {
			all[i] = metrics.Partition{Topic: fmt.Sprint("topic-", i), Leader: "n1", Replicas: 3, InSync: 3}
		}
		return all
	})
	return r
}

func manyTopics(n int) func() []api.TopicSample {
	return func() []api.TopicSample {
		all := make([]api.TopicSample, n)
		for i := range all {
			all[i] = api.TopicSample{Topic: fmt.Sprint("topic-", i), Put: uint64(i), Channels: []api.ChannelSample{{Channel: "channel", Depth: int64(i)}}}
		}
		return all
	}
}

// Channels beyond the limit share one histogram.
func TestWaitsAreBounded(t *testing.T) {
	r := metrics.New(1)
	for i := range 1000 {
		r.Wait("t", fmt.Sprint("c", i)).Waited(time.Second)
		r.Wait("t", "c0").Waited(time.Second)
	}
	out := scrape(r)
	require.Equal(t, 201, strings.Count(out, "\nlockstep_message_wait_seconds_count{"))
	require.Contains(t, out, `lockstep_message_wait_seconds_count{channel="_other",topic="_other"} 800`+"\n")
	require.Contains(t, out, `lockstep_message_wait_seconds_count{channel="c0",topic="t"} 1001`+"\n")
	require.Contains(t, out, `lockstep_message_wait_seconds_bucket{channel="c1",topic="t",le="1"} 1`+"\n")
}
