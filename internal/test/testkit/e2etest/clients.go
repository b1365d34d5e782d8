package e2etest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// Handle attaches a consumer to all brokers and returns its end.
func (c *Cluster) Handle(topic, channel string, inFlight int, h nsq.HandlerFunc) (stop func()) {
	c.T.Helper()
	cfg := nsq.NewConfig()
	cfg.MaxAttempts, cfg.MaxInFlight, cfg.LookupdPollInterval = 0, inFlight, 250*time.Millisecond
	consumer, err := nsq.NewConsumer(topic, channel, cfg)
	require.NoError(c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddConcurrentHandlers(h, 16)
	for _, b := range c.Brokers {
		require.NoError(c.T, consumer.ConnectToNSQD(b.TCP))
	}
	return func() {
		consumer.Stop()
		<-consumer.StopChan
	}
}

// HTTPMessage is a message in the answer to /v1/consume.
type HTTPMessage struct {
	Receipt, Body string
	Attempts      int
}

// Poll takes messages at a broker by HTTP.
func (c *Cluster) Poll(b devcluster.Broker, topic, channel string, most int, wait time.Duration) ([]HTTPMessage, error) {
	client := http.Client{Timeout: wait + 20*time.Second, Transport: c.HTTP.Transport}
	q := url.Values{"topic": {topic}, "channel": {channel}, "max": {fmt.Sprint(most)}, "wait": {wait.String()}}
	resp, err := client.Post("http://"+b.HTTP+"/v1/consume?"+q.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	var answer struct{ Messages []HTTPMessage }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Messages, err
}

// Settle finishes messages at a broker, and returns the status and the number of those that are.
func (c *Cluster) Settle(b devcluster.Broker, topic, channel string, list []HTTPMessage) (status, finished int) {
	var body bytes.Buffer
	for _, m := range list {
		fmt.Fprintln(&body, m.Receipt)
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: c.HTTP.Transport}
	resp, err := client.Post("http://"+b.HTTP+"/v1/finish?"+url.Values{"topic": {topic}, "channel": {channel}}.Encode(), "", &body)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Finished int }
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Finished
}

// ConsumeFrom consumes a channel until it has been silent for a while: after at least so many messages, and at most that many
// others. decide answers each message: finished if it returns 0, requeued with that delay otherwise.
func (c *Cluster) ConsumeFrom(topic, channel string, least, most int, decide func(body string) time.Duration) (bodies []string) {
	c.T.Helper()
	config := nsq.NewConfig()
	config.MaxInFlight = 20
	config.MaxAttempts = 0
	config.MaxRequeueDelay = time.Hour
	consumer, err := nsq.NewConsumer(topic, channel, config)
	require.NoError(c.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	got := make(chan string, 1000)
	seen := 0
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		if seen++; seen > most {
			m.RequeueWithoutBackoff(0)
			return nil
		}
		if delay := decide(string(m.Body)); delay > 0 {
			m.RequeueWithoutBackoff(delay)
		} else {
			m.Finish()
		}
		got <- string(m.Body)
		return nil
	}))
	require.NoError(c.T, consumer.ConnectToNSQD(c.Brokers[0].TCP))
	began := time.Now()
	for silent := false; !silent && len(bodies) < most; {
		select {
		case body := <-got:
			bodies = append(bodies, body)
		case <-time.After(2 * time.Second):
			silent = len(bodies) >= least || time.Since(began) > WaitLimit
		}
	}
	consumer.Stop()
	<-consumer.StopChan
	return bodies
}

// PutOnce publishes over a connection of its own.
func PutOnce(b devcluster.Broker, topic, body string) judge.Answer {
	cfg := nsq.NewConfig()
	p, err := nsq.NewProducer(b.TCP, cfg)
	if err != nil {
		panic(err) // the address is ours
	}
	defer p.Stop()
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	return clusters.Classify(p.Publish(topic, []byte(body)))
}

// MultiPut publishes bodies in groups, all of a group at once.
func MultiPut(t *testing.T, b devcluster.Broker, topic string, bodies []string, together int) (puts []*judge.Put) {
	t.Helper()
	p, err := nsq.NewProducer(b.TCP, nsq.NewConfig())
	require.NoError(t, err)
	defer p.Stop()
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	for from := 0; from < len(bodies); from += together {
		group := bodies[from:min(from+together, len(bodies))]
		raw := make([][]byte, len(group))
		put := &judge.Put{Bodies: group}
		for i, body := range group {
			raw[i] = []byte(body)
		}
		sent := record.Now()
		require.NoError(t, p.MultiPublish(topic, raw))
		put.Attempts = []judge.Attempt{record.Attempt(sent, judge.OK)}
		puts = append(puts, put)
	}
	return puts
}
