package stock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/stocknsq"
)

// toolbox runs the tools of stock NSQ against a cluster of three.
type toolbox struct {
	*e2etest.Cluster
	tools stocknsq.Binaries
	admin string // the address of nsqadmin
}

// newToolbox has a topic "orders" of four partitions with one channel for each consumer.
func newToolbox(t *testing.T) *toolbox {
	t.Helper()
	x := &toolbox{Cluster: e2etest.Start(t, 3), tools: stocknsq.BuildTools(t)}
	x.Create("orders", "file", 4)
	for _, channel := range []string{"tail", "http", "nsq", "go"} {
		x.Post(x.Brokers[0], "/channel/create", map[string][]string{"topic": {"orders"}, "channel": {channel}})
	}
	x.Create("copied", "look", 4)
	x.admin = x.tools.Admin(t, x.lookups()...).HTTP
	return x
}

// lookups are the flags for a lookup at every broker.
func (x *toolbox) lookups() (flags []string) {
	for _, b := range x.Brokers {
		flags = append(flags, "--lookupd-http-address="+b.HTTP)
	}
	return flags
}

// tool starts a tool; it ends with the test. wait gives its output when it has ended.
func (x *toolbox) tool(input, name string, flags ...string) (cmd *exec.Cmd, wait func() string) {
	x.T.Helper()
	ctx, cancel := context.WithTimeout(x.T.Context(), e2etest.WaitLimit)
	x.T.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, x.tools.Path(name), flags...)
	var out, log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &log
	require.NoError(x.T, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	once := sync.OnceValue(func() error { return <-ended })
	x.T.Cleanup(func() {
		cancel()
		_ = once() // killed, if it has not ended
	})
	return cmd, func() string {
		x.T.Helper()
		require.NoError(x.T, once(), "%s: %s", name, &log)
		return out.String()
	}
}

// ask sends one request of nsqadmin's page. A warning is a failure.
func (x *toolbox) ask(method, path, body string, into any) {
	x.T.Helper()
	req, err := http.NewRequestWithContext(x.T.Context(), method, "http://"+x.admin+"/api"+path, strings.NewReader(body))
	require.NoError(x.T, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: e2etest.WaitLimit}).Do(req)
	require.NoError(x.T, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(x.T, err)
	require.NoError(x.T, resp.Body.Close())
	require.Equal(x.T, http.StatusOK, resp.StatusCode, "%s %s: %s", method, path, text)
	var answer struct{ Message string }
	require.NoError(x.T, json.Unmarshal(text, &answer), "%s", text)
	require.Empty(x.T, answer.Message, "%s %s %s", method, path, body)
	if into != nil {
		require.NoError(x.T, json.Unmarshal(text, into), "%s", text)
	}
}

// adminTopic is a topic or a channel as nsqadmin shows it.
type adminTopic struct {
	Depth, InFlight int64
	MessageCount    int64 `json:"message_count"`
	ClientCount     int   `json:"client_count"`
	Paused          bool
	Channels        []adminTopic
	ChannelName     string       `json:"channel_name"`
	Nodes           []adminTopic // of the brokers that report it
	Clients         []struct {
		RemoteAddress string `json:"remote_address"`
		FinishCount   int64  `json:"finish_count"`
		UserAgent     string `json:"user_agent"`
	}
}

// channel is a channel of nsqadmin's topic page.
func (x *toolbox) channel(topic, channel string) (c adminTopic) {
	x.T.Helper()
	x.ask(http.MethodGet, "/topics/"+topic+"/"+channel, "", &c)
	return c
}

func (x *toolbox) topicPage(topic string) (p adminTopic) {
	x.T.Helper()
	x.ask(http.MethodGet, "/topics/"+topic, "", &p)
	return p
}

// eventually waits for a condition.
func (x *toolbox) eventually(what string, ok func() bool) {
	x.T.Helper()
	require.Eventually(x.T, ok, e2etest.WaitLimit, 50*time.Millisecond, what)
}

// TestStockTools: each tool of stock NSQ works with three brokers and a topic of four partitions,
// and the numbers that nsqadmin and nsq_stat add up are those of the cluster.
func TestStockTools(t *testing.T) {
	t.Parallel()
	const messages = 200
	e2etest.Processes(t)
	x := newToolbox(t)
	lines := make([]string, messages)
	for i := range lines {
		lines[i] = fmt.Sprintf("order-%04d", i)
	}
	all := func(got []string) {
		t.Helper()
		slices.Sort(got)
		require.Equal(t, lines, got, "each message once")
	}

	_, published := x.tool(strings.Join(lines, "\n")+"\n", "to_nsq", "--topic=orders", "--nsqd-tcp-address="+x.Brokers[0].TCP)
	published()
	page := x.topicPage("orders")
	require.EqualValues(t, messages, page.MessageCount, "of the topic")
	require.Len(t, page.Channels, 5)
	for _, ch := range page.Channels {
		require.EqualValues(t, messages, ch.Depth, ch.ChannelName)
		require.EqualValues(t, messages, ch.MessageCount, ch.ChannelName)
		require.Zero(t, ch.ClientCount, ch.ChannelName)
	}
	_, stat := x.tool("", "nsq_stat", append(x.lookups(), "--topic=orders", "--channel=file", "--interval=100ms", "--count=1")...)
	columns := strings.FieldsFunc(lastLine(stat()), func(r rune) bool { return r == ' ' || r == '|' })
	require.Len(t, columns, 11)
	require.Equal(t, []string{fmt.Sprint(messages), fmt.Sprint(messages), "0"}, []string{columns[2], columns[9], columns[10]}, "depth, messages, clients")

	dir := t.TempDir()
	file, filed := x.tool("", "nsq_to_file", append(x.lookups(), "--topic=orders", "--channel=file", "--output-dir="+dir)...)
	_, tailed := x.tool("", "nsq_tail", append(x.lookups(), "--topic=orders", "--channel=tail", fmt.Sprint("-n=", messages), "--consumer-opt=max_backoff_duration,1s")...)
	var posts sync.Map
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts.Store(string(body), true)
	}))
	defer sink.Close()
	poster, posted := x.tool("", "nsq_to_http", append(x.lookups(), "--topic=orders", "--channel=http", "--n=4", "--post="+sink.URL)...)
	copier, copied := x.tool("", "nsq_to_nsq", append(x.lookups(), "--topic=orders", "--channel=nsq", "--destination-topic=copied", "--destination-nsqd-tcp-address="+x.Brokers[2].TCP)...)
	all(strings.Fields(tailed()))
	for _, channel := range []string{"file", "http", "nsq"} {
		x.eventually(channel+" is empty", func() bool {
			ch := x.channel("orders", channel)
			return ch.Depth == 0 && finished(ch) == messages
		})
	}
	require.EqualValues(t, messages, x.topicPage("copied").MessageCount)
	ch := x.channel("orders", "file")
	require.Equal(t, 3, ch.ClientCount, "one connection to each broker, as to three stock nsqds")
	require.Len(t, ch.Clients, 3)
	require.Contains(t, ch.Clients[0].UserAgent, "nsq_to_file")

	one := nsq.NewConfig()
	consumer, err := nsq.NewConsumer("orders", "go", one)
	require.NoError(t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(nsq.HandlerFunc(func(*nsq.Message) error { return nil }))
	require.NoError(t, consumer.ConnectToNSQD(x.Brokers[1].TCP))
	x.eventually("one consumer of one broker is one client with all its messages", func() bool {
		ch := x.channel("orders", "go")
		return ch.ClientCount == 1 && len(ch.Clients) == 1 && finished(ch) == messages
	})
	consumer.Stop()
	<-consumer.StopChan

	for _, cmd := range []*exec.Cmd{file, poster, copier} {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	}
	filed()
	posted()
	copied()
	files, err := filepath.Glob(filepath.Join(dir, "orders.*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var written []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		written = append(written, strings.Fields(string(text))...)
	}
	all(written)
	var sent []string
	posts.Range(func(body, _ any) bool { sent = append(sent, body.(string)); return true })
	all(sent)

	x.pages(messages)
	x.actions()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func finished(ch adminTopic) (sum int64) {
	for _, c := range ch.Clients {
		sum += c.FinishCount
	}
	return sum
}

// pages looks at the other pages of nsqadmin.
func (x *toolbox) pages(messages int64) {
	t := x.T
	var topics struct{ Topics []string }
	x.ask(http.MethodGet, "/topics", "", &topics)
	require.Equal(t, []string{"copied", "orders"}, topics.Topics)
	var nodes struct {
		Nodes []struct {
			HTTPPort int    `json:"http_port"`
			Host     string `json:"broadcast_address"`
			Topics   []struct{ Topic string }
		}
	}
	x.ask(http.MethodGet, "/nodes", "", &nodes)
	require.Len(t, nodes.Nodes, 3)
	sum := int64(0)
	for _, n := range nodes.Nodes {
		require.Len(t, n.Topics, 2)
		var node struct {
			Messages int64 `json:"total_messages"`
		}
		x.ask(http.MethodGet, fmt.Sprintf("/nodes/%s:%d", n.Host, n.HTTPPort), "", &node)
		sum += node.Messages
	}
	require.Equal(t, 2*messages, sum, "messages of both topics at all brokers")
	var counter struct {
		Stats map[string]struct {
			Count int64 `json:"message_count"`
		}
	}
	x.ask(http.MethodGet, "/counter", "", &counter)
	sum = 0
	for _, s := range counter.Stats {
		sum += s.Count
	}
	require.Equal(t, 6*messages, sum, "deliveries to five channels and one")
}

// actions does everything that nsqadmin has a button for.
func (x *toolbox) actions() {
	t := x.T
	x.ask(http.MethodPost, "/topics", `{"topic":"made","channel":"by-admin"}`, nil)
	x.eventually("the channel is there", func() bool {
		p := x.topicPage("made")
		return len(p.Channels) == 1 && p.Channels[0].ChannelName == "by-admin"
	})
	publish := func(topic string, n int) {
		for range n {
			resp, err := x.HTTP.Post("http://"+x.Brokers[1].HTTP+"/pub?topic="+topic, "", strings.NewReader("m"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	}
	publish("made", 5)
	require.EqualValues(t, 5, x.channel("made", "by-admin").Depth)
	for action, want := range map[string]bool{"pause": true, "unpause": false} {
		x.ask(http.MethodPost, "/topics/made/by-admin", `{"action":"`+action+`"}`, nil)
		x.eventually(action+" of the channel", func() bool { return x.channel("made", "by-admin").Paused == want })
		x.ask(http.MethodPost, "/topics/made", `{"action":"`+action+`"}`, nil)
		x.eventually(action+" of the topic", func() bool { return x.topicPage("made").Paused == want })
	}
	x.ask(http.MethodPost, "/topics/made/by-admin", `{"action":"unpause"}`, nil)
	x.ask(http.MethodPost, "/topics/made", `{"action":"unpause"}`, nil)
	x.ask(http.MethodPost, "/topics/made/by-admin", `{"action":"empty"}`, nil)
	x.eventually("the channel is empty", func() bool { return x.channel("made", "by-admin").Depth == 0 })
	x.ask(http.MethodDelete, "/topics/made/by-admin", "", nil)
	x.eventually("the channel is gone", func() bool { return len(x.topicPage("made").Channels) == 0 })
	publish("made", 3)
	x.eventually("the topic keeps what no channel has received", func() bool { return x.topicPage("made").Depth >= 3 })
	x.ask(http.MethodPost, "/topics/made", `{"action":"empty"}`, nil)
	x.eventually("the topic is empty", func() bool { return x.topicPage("made").Depth == 0 })

	x.ask(http.MethodDelete, "/nodes/"+x.Brokers[1].HTTP, `{"topic":"orders"}`, nil)
	var found struct {
		Producers []struct {
			HTTPPort int `json:"http_port"`
		}
	}
	require.NoError(t, x.Get(x.Brokers[1], "/lookup?topic=orders", &found))
	require.NotEmpty(t, found.Producers)
	for _, p := range found.Producers {
		require.NotContains(t, x.Brokers[1].HTTP, fmt.Sprint(":", p.HTTPPort), "the broker is hidden")
	}
	require.EqualValues(t, 200, x.messages("orders"), "hidden, and not deleted")

	x.ask(http.MethodDelete, "/topics/made", "", nil)
	x.eventually("the topic is gone", func() bool {
		_, there := x.Topic("made")
		return !there
	})
}

// messages counts the messages of a topic at all brokers.
func (x *toolbox) messages(topic string) (sum int64) {
	for _, b := range x.Brokers {
		var s struct {
			Topics []struct {
				MessageCount int64 `json:"message_count"`
			}
		}
		require.NoError(x.T, x.Get(b, "/stats?format=json&topic="+topic, &s))
		for _, topic := range s.Topics {
			sum += topic.MessageCount
		}
	}
	return sum
}
