package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/outcome"
)

func scrape(r *metrics.Recorder) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestRecorded(t *testing.T) {
	r := metrics.New(10)
	r.Stage(metrics.StageSync, 130*time.Microsecond)
	r.Stored(3, 300)
	r.Answered(nil)
	r.Answered(fmt.Errorf("wrapped: %w", outcome.ErrInDoubt))
	r.Delivered(5, time.Millisecond)
	r.Waited(-time.Second)
	r.Event(metrics.EventRollback)
	r.Gauge("journal_queue_bytes", "h", func() float64 { return 7 })
	r.Counter("journal_syncs_total", "h", func() float64 { return 8 })
	out := scrape(r)
	for _, line := range []string{
		`lockstep_put_stage_seconds_count{stage="sync"} 1`,
		`lockstep_put_stage_seconds_bucket{stage="sync",le="0.0002"} 1`,
		`lockstep_puts_total{answer="ok"} 1`, `lockstep_puts_total{answer="in_doubt"} 1`, `lockstep_puts_total{answer="rolled_back"} 0`,
		`lockstep_messages_put_total 3`, `lockstep_bytes_put_total 300`, `lockstep_messages_delivered_total 5`,
		`lockstep_message_wait_seconds_sum 0`, `lockstep_events_total{event="rollback"} 1`,
		`lockstep_journal_queue_bytes 7`, `lockstep_journal_syncs_total 8`,
	} {
		require.Contains(t, out, line+"\n")
	}
}

func TestNilRecorderDoesNothing(t *testing.T) {
	var r *metrics.Recorder
	r.Stage(metrics.StageCommit, 1)
	r.Stored(1, 1)
	r.Answered(nil)
	r.Delivered(1, 1)
	r.Waited(1)
	r.Event(metrics.EventAlarm)
	r.Gauge("g", "", nil)
	r.Counter("c", "", nil)
	r.Queues(nil)
	require.NotContains(t, scrape(r), "lockstep")
}

func TestSeriesAreBounded(t *testing.T) {
	r := metrics.New(5)
	r.Queues(func() []metrics.Topic {
		var topics []metrics.Topic
		for i := 9; i >= 0; i-- {
			topics = append(topics, metrics.Topic{Name: fmt.Sprint("t", i), Depth: 1, Messages: 2, Channels: []metrics.Channel{{Name: "c", Depth: 3, Clients: 1}}})
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
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Stage(metrics.StageQueue, time.Millisecond)
		r.Stored(1, 1)
		r.Answered(nil)
		r.Delivered(1, time.Millisecond)
		r.Event(metrics.EventElected)
	}))
}

// NSQ allows the name "_other". A topic with that name does not break the scrape.
func TestATopicMayBeCalledOther(t *testing.T) {
	r := metrics.New(2)
	r.Queues(func() []metrics.Topic { return []metrics.Topic{{Name: "_other"}, {Name: "a"}, {Name: "b"}} })
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body.String())
}
