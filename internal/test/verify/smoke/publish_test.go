package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// quickStart is the guide of that name, and what every broker answers.
func (s *smoke) quickStart() {
	t := s.T
	require.Contains(t, s.ctl("topic", "create", "letters", "--partitions", "4"), "replication factor 3, min in sync 2")
	s.ctl("channel", "create", "letters", "readers")
	s.Whole("letters")
	var want []string
	for _, b := range s.Brokers {
		want = append(want, "hello from "+b.Name)
		require.Equal(t, "OK", s.post(b, "/pub?topic=letters", want[len(want)-1]))
		require.Equal(t, "OK", s.get(b, "/ping"))
		require.Contains(t, s.get(b, "/metrics"), `lockstep_topic_messages_total{`)
		require.Contains(t, s.get(b, "/info"), `"version"`)
		require.Contains(t, s.get(b, "/ui"), "<!doctype html>")
	}
	s.tail("letters", "readers", want)
	status := s.ctl("cluster", "status")
	for _, name := range e2etest.Names(s.Cluster) {
		require.Contains(t, status, name)
	}
	s.ctl("cluster", "health", "--wait", "2m")
	s.ctl("check", "letters", "--wait", "2m")
}

// clients: go-nsq publishes and consumes at each broker, in plain text, with TLS and compressed. A
// consumer requeues a message, and touches it when it comes again.
func (s *smoke) clients() {
	s.topic("orders", []string{"--partitions", "3"}, "work")
	plain, secure, packed := config(), config(), config()
	secure.TlsV1, secure.TlsConfig = true, s.ca.Client("")
	packed.Snappy = true
	configs := []*nsq.Config{plain, secure, packed}
	var want []string
	for i, b := range s.Brokers {
		body := func(kind string) string { want = append(want, kind+" at "+b.Name); return want[len(want)-1] }
		p := s.producer(b, configs[i])
		p.publish("orders", body("single"))
		set := [][]byte{[]byte(body("first of many")), []byte(body("second of many"))}
		s.until("MPUB", func() error { return p.p.MultiPublish("orders", set) })
		later := []byte(body("deferred"))
		s.until("DPUB", func() error { return p.p.DeferredPublish("orders", 50*time.Millisecond, later) })
	}
	var requeued, touched atomic.Bool
	got := s.consume("orders", "work", secure, func(m *nsq.Message) error {
		if string(m.Body) != want[0] {
			return nil
		}
		if m.Attempts == 1 && !requeued.Swap(true) {
			m.RequeueWithoutBackoff(0)
			return errors.New("requeued")
		}
		m.Touch()
		touched.Store(true)
		return nil
	}, s.Brokers...)
	got.gets(want...)
	require.True(s.T, touched.Load(), "a requeued message comes again")
	s.Drained("orders", "work")
}

// pauses: a paused channel keeps its messages, while another one delivers them; an empty one has none.
func (s *smoke) pauses() {
	s.topic("signals", nil, "paused", "running")
	held := s.consume("signals", "paused", config(), nil, s.Brokers...)
	free := s.consume("signals", "running", config(), nil, s.Brokers...)
	p := s.producer(s.Brokers[1], config())
	p.publish("signals", "one")
	held.gets("one")
	free.gets("one")
	s.ctl("channel", "pause", "signals", "paused")
	p.publish("signals", "two")
	free.gets("two")
	s.must("the paused channel keeps a message", func() bool { return s.ChannelStats("signals", "paused").Depth > 0 })
	s.ctl("channel", "unpause", "signals", "paused")
	held.gets("two")

	s.ctl("topic", "pause", "signals")
	p.publish("signals", "three")
	s.must("the paused topic keeps a message", func() bool { return s.topicDepth("signals") > 0 })
	s.ctl("topic", "unpause", "signals")
	held.gets("two", "three")
	free.gets("three")

	s.ctl("channel", "create", "signals", "idle")
	p.publish("signals", "four")
	s.must("a channel without consumers keeps a message", func() bool { return s.ChannelStats("signals", "idle").Depth > 0 })
	s.ctl("channel", "empty", "signals", "idle")
	s.Drained("signals", "idle")
	s.ctl("channel", "delete", "signals", "idle")
	s.must("the channel is gone", func() bool { return !strings.Contains(s.ctl("channel", "list", "signals"), "idle") })
}

// topicDepth is how many messages of a topic no channel has received.
func (s *smoke) topicDepth(topic string) (n int64) {
	for _, b := range s.Brokers {
		var stats struct{ Topics []api.TopicStats }
		if s.Get(b, query("/stats", topic, "", "format", "json"), &stats) == nil {
			for _, t := range stats.Topics {
				n += t.Depth
			}
		}
	}
	return n
}

// http publishes by HTTP: many at once, deferred, with headers and a filter, and under ids.
func (s *smoke) http() {
	t := s.T
	s.topic("events", []string{"--partitions", "2"}, "all")
	s.ctl("channel", "create", "events", "europe", "--filter", "header:region^=eu-")
	s.post(s.Brokers[0], "/pub?topic=events", "Paris", "X-Nsq-Headers", `{"region":"eu-west"}`)
	s.post(s.Brokers[1], "/pub?topic=events&defer=50", "Oslo", "X-Nsq-Headers", `{"region":"eu-north"}`)
	s.post(s.Brokers[2], "/mpub?topic=events", "Lima\nQuito\n", "X-Nsq-Headers", `{"region":"sa-west"}`)
	s.post(s.Brokers[2], "/mpub?topic=events&binary=true", "\x00\x00\x00\x01\x00\x00\x00\x04Rome", "X-Nsq-Headers", `{"region":"eu-south"}`)
	europe := s.consume("events", "europe", config(), nil, s.Brokers...)
	europe.gets("Paris", "Oslo", "Rome")
	s.Drained("events", "europe")
	require.Empty(t, europe.in, "the filter finishes the others")
	s.tail("events", "all", []string{"Paris", "Oslo", "Rome", "Lima", "Quito"})

	s.topic("invoices", []string{"--dedupe", "content"}, "print")
	for _, b := range s.Brokers {
		s.post(b, "/pub?topic=invoices", "under an id", "X-Nsq-Message-Id", "invoice-17")
		s.producer(b, config()).publish("invoices", "by its content")
	}
	require.Len(t, s.PeekAll("invoices"), 2, "each message is stored once")

	for path, want := range map[string]int{"/pub?topic=no%20name": 400, "/pub": 400, "/no/such/path": 404} {
		s.answers(s.Brokers[0], path, want)
	}
}

// answers waits until a put is refused with a status.
func (s *smoke) answers(b devcluster.Broker, path string, want int, headers ...string) {
	s.T.Helper()
	s.until("refusal of "+path, func() error {
		status, text, err := s.ask(b, http.MethodPost, path, "refused", headers...)
		if err == nil && status != want {
			err = fmt.Errorf("%d, not %d: %s", status, want, text)
		}
		return err
	})
}

// poll takes messages by HTTP.
func (s *smoke) poll(b devcluster.Broker, topic, channel string, most int) (list []e2etest.HTTPMessage) {
	s.T.Helper()
	var answer struct{ Messages []e2etest.HTTPMessage }
	require.NoError(s.T, json.Unmarshal([]byte(s.post(b, query("/v1/consume", topic, channel, "max", fmt.Sprint(most), "wait", "5s"), "")), &answer))
	return answer.Messages
}

// receipts: a consumer by HTTP takes messages at one broker and finishes them at the others.
func (s *smoke) receipts() {
	s.topic("parcels", []string{"--partitions", "3"}, "door")
	want := e2etest.Numbered("parcel", 60)
	s.post(s.Brokers[0], "/mpub?topic=parcels", strings.Join(want[:20], "\n"))
	s.post(s.Brokers[1], "/mpub?topic=parcels", strings.Join(want[20:40], "\n"))
	s.post(s.Brokers[2], "/mpub?topic=parcels", strings.Join(want[40:], "\n"))
	seen := map[string]bool{}
	for round := 0; len(seen) < len(want); round++ {
		at, other := s.Brokers[round%3], s.Brokers[(round+1)%3]
		list := s.poll(at, "parcels", "door", 25)
		if len(list) == 0 {
			continue
		}
		first := "receipt=" + list[0].Receipt
		s.ask(other, http.MethodPost, query("/v1/touch", "parcels", "door")+"&"+first, "") //nolint:errcheck // a receipt may be void by now
		var all strings.Builder
		for _, m := range list {
			require.Contains(s.T, want, m.Body)
			seen[m.Body] = true
			fmt.Fprintln(&all, m.Receipt)
		}
		finish := query("/v1/finish", "parcels", "door")
		s.must("a second finish is a conflict", func() bool {
			status, _, err := s.ask(other, http.MethodPost, finish, all.String())
			return err == nil && status == http.StatusConflict
		})
	}
	s.Drained("parcels", "door")
}

// order: messages of one key come in their order, each after the finish of the one before.
func (s *smoke) order() {
	s.topic("accounts", []string{"--partitions", "4", "--ordered"}, "ledger")
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("step %02d", i))
		s.post(s.Brokers[i%3], "/pub?topic=accounts&key=7", want[i], "X-Nsq-Message-Id", want[i])
	}
	require.Equal(s.T, want, s.tail("accounts", "ledger", want))
}

// deadLetters: a message that is requeued too often goes to another topic, and comes back.
func (s *smoke) deadLetters() {
	s.topic("jobs", nil, "worker")
	s.ctl("channel", "policy", "jobs", "worker", "--max-attempts", "2", "--dead-letter-topic", "jobs-dead", "--retry-backoff", "1ms")
	s.post(s.Brokers[0], "/pub?topic=jobs", "impossible", "X-Nsq-Message-Id", "job-1")
	s.must("a dead letter", func() bool {
		if s.HasTopic("jobs-dead") && slices.Contains(bodies(s.Cluster, "jobs-dead"), "impossible") {
			return true
		}
		var answer struct{ Messages []e2etest.HTTPMessage }
		_, text, err := s.ask(s.Brokers[1], http.MethodPost, query("/v1/consume", "jobs", "worker", "wait", "250ms"), "")
		if err == nil && json.Unmarshal([]byte(text), &answer) == nil && len(answer.Messages) > 0 {
			_, _, _ = s.ask(s.Brokers[2], http.MethodPost, query("/v1/requeue", "jobs", "worker", "receipt", answer.Messages[0].Receipt), "")
		}
		return false
	})
	s.must("the dead letter is redriven", func() bool {
		s.ctl("channel", "redrive", "jobs", "worker")
		return s.ChannelStats("jobs", "worker").Depth > 0
	})
	s.tail("jobs", "worker", []string{"impossible"})
}

// replay: a channel goes back to messages that it has finished.
func (s *smoke) replay() {
	s.topic("audit", []string{"--retention-time", "24h"}, "report")
	want := []string{"entry 1", "entry 2", "entry 3"}
	s.producer(s.Brokers[2], config()).publish("audit", want...)
	s.tail("audit", "report", want)
	s.Drained("audit", "report")
	s.ctl("channel", "seek", "audit", "report", "earliest", "--yes")
	s.tail("audit", "report", want)
	s.ctl("channel", "create", "audit", "again", "--from", "earliest")
	s.tail("audit", "again", want)
}

// topics: a topic grows, is emptied, deleted, brought back and removed permanently.
func (s *smoke) topics() {
	t := s.T
	s.topic("drafts", nil, "desk")
	s.ctl("topic", "partitions", "drafts", "3")
	s.Whole("drafts")
	v, _ := s.Topic("drafts")
	require.Len(t, v.Partitions, 3)
	s.producer(s.Brokers[0], config()).publish("drafts", "kept")
	gone := func(want bool) func() bool { return func() bool { return s.HasTopic("drafts") != want } }
	remove := func() {
		s.until("delete", func() error {
			_, err := s.run("", append([]string{"topic", "delete", "drafts"}, s.Addresses()...)...)
			return ignore(err, !s.HasTopic("drafts"))
		})
		s.must("the topic is gone", gone(true))
	}
	remove()
	require.Contains(t, s.ctl("topic", "trash"), "drafts")
	s.until("undelete", func() error {
		_, err := s.run("", append([]string{"topic", "undelete", "drafts"}, s.Addresses()...)...)
		return ignore(err, s.HasTopic("drafts"))
	})
	s.Whole("drafts")
	s.tail("drafts", "desk", []string{"kept"})
	require.Contains(t, s.ctl("topic", "describe", "drafts"), "desk")
	s.ctl("channel", "delete", "drafts", "desk")
	s.producer(s.Brokers[1], config()).publish("drafts", "waste")
	s.must("the topic keeps what no channel has received", func() bool { return s.topicDepth("drafts") > 0 })
	s.ctl("topic", "empty", "drafts")
	s.must("the topic is empty", func() bool { return s.topicDepth("drafts") == 0 })
	remove()
	s.until("purge", func() error {
		_, err := s.run("", append([]string{"topic", "purge", "drafts"}, s.Addresses()...)...)
		return ignore(err, !strings.Contains(s.ctl("topic", "trash"), "drafts"))
	})
	s.must("the trash is empty", func() bool { return !strings.Contains(s.ctl("topic", "trash"), "drafts") })
}

// ignore forgets an error of an operation whose effect is there: an earlier attempt had it.
func ignore(err error, done bool) error {
	if done {
		return nil
	}
	return err
}
