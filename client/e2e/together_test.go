package e2e

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/client"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// nodeReader consumes with nsqjs until it has as many messages as it is told, and prints their bodies.
const nodeReader = `
const nsq = require('nsqjs')
const [address, topic, channel, most] = process.argv.slice(2)
const reader = new nsq.Reader(topic, channel, {nsqdTCPAddresses: address.split(','), maxInFlight: 5})
let left = Number(most)
reader.on('message', m => {
  console.log(m.body.toString())
  m.finish()
  if (--left === 0) setTimeout(() => process.exit(0), 200)
})
reader.connect()
`

// TestEveryKindOfClientOnOneTopic: go-nsq, nsqjs, the Go client with headers, and curl publish to one
// topic and consume it. Each has every message, and the headers where its protocol has room for them.
func TestEveryKindOfClientOnOneTopic(t *testing.T) {
	for _, program := range []string{"curl", "node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	c := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	home := t.TempDir()
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "nsqjs@0.13.0")
	install.Dir = home
	if out, err := install.CombinedOutput(); err != nil {
		env.Missing(t, "the npm package nsqjs", string(out))
	}
	reader := filepath.Join(home, "reader.js")
	require.NoError(t, os.WriteFile(reader, []byte(nodeReader), 0o600))
	curl := func(path string, q url.Values, more ...string) string {
		out, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--fail-with-body", "-X", "POST", "http://" + c.Brokers[1].HTTP + path + "?" + q.Encode()}, more...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	kinds := []string{"go-nsq", "nsqjs", "client", "curl"}
	curl("/topic/create", url.Values{"topic": {topic}, "partitions": {"2"}})
	for _, kind := range kinds {
		curl("/channel/create", url.Values{"topic": {topic}, "channel": {kind}})
	}

	// Each publishes a message; nsqjs and go-nsq have no headers.
	stock, err := nsq.NewProducer(c.Brokers[0].TCP, nsq.NewConfig())
	require.NoError(t, err)
	stock.SetLoggerLevel(nsq.LogLevelMax)
	defer stock.Stop()
	require.NoError(t, stock.Publish(topic, []byte("of go-nsq")))
	var addresses []string
	for _, b := range c.Brokers {
		addresses = append(addresses, b.TCP)
	}
	ours, err := client.Open(ctx, addresses, client.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ours.Close(context.Background())) }()
	require.NoError(t, ours.Producer(client.ProducerOptions{}).Publish(ctx, topic, client.Message{Body: []byte("of client"), Headers: client.Headers{"from": "client"}}))
	curl("/pub", url.Values{"topic": {topic}}, "-d", "of curl", "-H", `X-Nsq-Headers: {"From":"curl"}`)
	writer := exec.CommandContext(ctx, "node", "-e", `
const nsq = require('nsqjs')
const [host, port] = process.argv[1].split(':')
const w = new nsq.Writer(host, Number(port))
w.connect()
w.on('ready', () => w.publish(process.argv[2], 'of nsqjs', e => { if (e) { console.error(e); process.exit(1) } w.close() }))
`, c.Brokers[2].TCP, topic)
	writer.Dir = home
	out, err := writer.CombinedOutput()
	require.NoError(t, err, string(out))
	want := []string{"of client", "of curl", "of go-nsq", "of nsqjs"}

	// go-nsq
	var mu sync.Mutex
	var bodies []string
	consumer, err := nsq.NewConsumer(topic, "go-nsq", nsq.NewConfig())
	require.NoError(t, err)
	consumer.SetLoggerLevel(nsq.LogLevelMax)
	consumer.ChangeMaxInFlight(10)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(m.Body))
		return nil
	}))
	require.NoError(t, consumer.ConnectToNSQDs(addresses))
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(bodies) == len(want) }, waitLimit, 10*time.Millisecond)
	consumer.Stop()
	<-consumer.StopChan
	slices.Sort(bodies)
	require.Equal(t, want, bodies)

	// nsqjs
	node := exec.CommandContext(ctx, "node", reader, strings.Join(addresses, ","), topic, "nsqjs", "4")
	node.Dir = home
	out, err = node.CombinedOutput()
	require.NoError(t, err, string(out))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	require.Equal(t, want, lines)

	// the Go client
	headers := map[string]client.Headers{}
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	require.NoError(t, ours.Consume(receiving, topic, "client", client.ConsumeOptions{}, func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if headers[string(d.Body)] = d.Headers; len(headers) == len(want) {
			stop()
		}
		return nil
	}))
	require.Len(t, headers, len(want))
	require.Equal(t, "client", headers["of client"]["from"])
	require.Equal(t, "curl", headers["of curl"]["From"], "with its case")
	require.Empty(t, headers["of go-nsq"])
	require.Empty(t, headers["of nsqjs"])

	// curl
	var receipts []string
	seen := map[string]map[string]any{}
	for len(seen) < len(want) {
		var answer struct {
			Messages []struct {
				Receipt, Body string
				Header        map[string]any
			}
		}
		text := curl("/v1/consume", url.Values{"topic": {topic}, "channel": {"curl"}, "max": {"10"}, "wait": {"5s"}})
		require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
		require.NotEmpty(t, answer.Messages, "seen: %v", seen)
		for _, m := range answer.Messages {
			seen[m.Body] = m.Header
			receipts = append(receipts, m.Receipt)
		}
	}
	require.JSONEq(t, `{"finished":4}`, curl("/v1/finish", url.Values{"topic": {topic}, "channel": {"curl"}}, "--data-binary", strings.Join(receipts, "\n")))
	require.Equal(t, "client", seen["of client"]["from"])
	require.Equal(t, "curl", seen["of curl"]["From"])
	require.Empty(t, seen["of nsqjs"])
}
