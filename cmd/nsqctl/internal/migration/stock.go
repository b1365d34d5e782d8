package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	nsq "github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
)

// stockSource names where a cluster is read: nsqlookupds, or the nsqds themselves.
type stockSource struct {
	Lookupds, NSQDs []string // HTTP addresses, host:port or URLs
	HTTP            *http.Client
}

// stockCluster is the topology at one moment.
type stockCluster struct {
	Nodes    []stockNode         // by HTTP address
	Channels map[string][]string // durable channels by durable topic, of all nsqds and nsqlookupds
	paused   map[bridgeKey]bool  // channels that all their nsqds have paused
	lookup   bool
}

type stockNode struct {
	HTTP, TCP string
	Topics    []api.TopicStats // durable, with durable channels
	Ephemeral []string         // names that were left out: TOPIC, or TOPIC/CHANNEL
	Producers []api.ClientStats
}

func (s stockSource) read(ctx context.Context) (*stockCluster, error) {
	c := &stockCluster{Channels: map[string][]string{}, paused: map[bridgeKey]bool{}, lookup: len(s.Lookupds) > 0}
	addresses := map[string]string{} // TCP by HTTP address; "" = not known
	for _, a := range s.NSQDs {
		addresses[a] = ""
	}
	for _, lookupd := range s.Lookupds {
		if err := s.lookup(ctx, lookupd, c, addresses); err != nil {
			return nil, fmt.Errorf("nsqlookupd %s: %w", lookupd, err)
		}
	}
	nodes := make([]stockNode, len(addresses))
	failed := make([]error, len(addresses))
	var asking sync.WaitGroup
	for i, address := range slices.Sorted(maps.Keys(addresses)) {
		asking.Go(func() {
			nodes[i], failed[i] = s.node(ctx, address, addresses[address])
			if failed[i] != nil {
				failed[i] = fmt.Errorf("nsqd %s: %w", address, failed[i])
			}
		})
	}
	asking.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	c.Nodes = nodes
	for _, n := range nodes {
		for _, t := range n.Topics {
			c.add(t.TopicName)
			for _, ch := range t.Channels {
				c.add(t.TopicName, ch.ChannelName)
				key := bridgeKey{t.TopicName, ch.ChannelName}
				paused, seen := c.paused[key]
				c.paused[key] = ch.Paused && (paused || !seen)
			}
		}
	}
	return c, nil
}

// add records durable channels of a durable topic.
func (c *stockCluster) add(topic string, channels ...string) {
	if ephemeral(topic) {
		return
	}
	names := c.Channels[topic]
	for _, ch := range channels {
		if !ephemeral(ch) && !slices.Contains(names, ch) {
			names = append(names, ch)
		}
	}
	slices.Sort(names)
	c.Channels[topic] = names
}

func ephemeral(name string) bool { return strings.HasSuffix(name, "#ephemeral") }

func (c *stockCluster) topics() []string { return slices.Sorted(maps.Keys(c.Channels)) }

// expected lists the channels that a topic has to have on an nsqd. Where consumers find nsqds by lookup, each consumer
// uses all nsqds of a topic, so all channels of the topic must exist on each of them.
func (c *stockCluster) expected(t api.TopicStats) []string {
	if c.lookup {
		return c.Channels[t.TopicName]
	}
	return namesOfChannels(t)
}

func namesOfChannels(t api.TopicStats) (names []string) {
	for _, ch := range t.Channels {
		names = append(names, ch.ChannelName)
	}
	return names
}

func (s stockSource) lookup(ctx context.Context, address string, c *stockCluster, addresses map[string]string) error {
	var nodes, topics, channels struct {
		Producers        []api.Producer
		Topics, Channels []string
	}
	if err := s.call(ctx, http.MethodGet, address, "/nodes", nil, &nodes); err != nil {
		return err
	}
	for _, p := range nodes.Producers {
		at := net.JoinHostPort(p.BroadcastAddress, strconv.Itoa(p.HTTPPort))
		addresses[at] = net.JoinHostPort(p.BroadcastAddress, strconv.Itoa(p.TCPPort))
	}
	if err := s.call(ctx, http.MethodGet, address, "/topics", nil, &topics); err != nil {
		return err
	}
	for _, topic := range topics.Topics {
		channels.Channels = nil
		if err := s.call(ctx, http.MethodGet, address, "/channels", url.Values{"topic": {topic}}, &channels); err != nil {
			return err
		}
		c.add(topic, channels.Channels...)
	}
	return nil
}

func (s stockSource) node(ctx context.Context, address, tcp string) (stockNode, error) {
	n := stockNode{HTTP: address, TCP: tcp}
	var info struct {
		Broadcast string `json:"broadcast_address"`
		TCPPort   int    `json:"tcp_port"`
	}
	if err := s.call(ctx, http.MethodGet, address, "/info", nil, &info); err != nil {
		return n, err
	}
	if err := s.call(ctx, http.MethodGet, address, "/v1/cluster", nil, nil); err == nil {
		return n, errors.New("this is a broker of Lockstep: messages would move in a circle")
	}
	if n.TCP == "" { // the host of the given address: the broadcast address may not be reachable from here
		_, after, _ := strings.Cut(address, "://")
		host, _, _ := net.SplitHostPort(cmp.Or(after, address))
		n.TCP = net.JoinHostPort(cmp.Or(host, info.Broadcast), strconv.Itoa(info.TCPPort))
	}
	var stats struct {
		Topics    []api.TopicStats  `json:"topics"`
		Producers []api.ClientStats `json:"producers"`
	}
	if err := s.call(ctx, http.MethodGet, address, "/stats", url.Values{"format": {"json"}, "include_mem": {"false"}}, &stats); err != nil {
		return n, err
	}
	n.Producers = stats.Producers
	for _, t := range stats.Topics {
		if ephemeral(t.TopicName) {
			n.Ephemeral = append(n.Ephemeral, t.TopicName)
			continue
		}
		t.Channels = slices.DeleteFunc(t.Channels, func(ch api.ChannelStats) bool {
			if ephemeral(ch.ChannelName) {
				n.Ephemeral = append(n.Ephemeral, t.TopicName+"/"+ch.ChannelName)
			}
			return ephemeral(ch.ChannelName)
		})
		n.Topics = append(n.Topics, t)
	}
	return n, nil
}

// prepareTopic creates the missing channels of a topic on an nsqd. A topic without a channel delivers its
// messages to the first channel alone, so it is paused until it has all.
func (s stockSource) prepareTopic(ctx context.Context, n stockNode, t api.TopicStats, channels []string) error {
	missing := slices.DeleteFunc(slices.Clone(channels), func(name string) bool { return slices.Contains(namesOfChannels(t), name) })
	topic := url.Values{"topic": {t.TopicName}}
	alone := len(missing) > 0 && len(t.Channels) == 0 && !t.Paused
	if alone {
		if err := s.call(ctx, http.MethodPost, n.HTTP, "/topic/pause", topic, nil); err != nil {
			return err
		}
	}
	for _, name := range missing {
		if err := s.call(ctx, http.MethodPost, n.HTTP, "/channel/create", url.Values{"topic": {t.TopicName}, "channel": {name}}, nil); err != nil {
			return err
		}
	}
	if alone {
		return s.call(ctx, http.MethodPost, n.HTTP, "/topic/unpause", topic, nil)
	}
	return nil
}

// call sends a request, and decodes the answer into v, unless v is nil.
func (s stockSource) call(ctx context.Context, method, address, path string, q url.Values, v any) error {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	req, err := http.NewRequestWithContext(ctx, method, address+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/vnd.nsq; version=1.0") // releases before 1.0 wrap their answers unless this header is sent
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return brokerapi.Reason(err) // the callers add the address
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: this is not the answer of NSQ: %w", path, err)
	}
	return nil
}

const bridgeAgent = "nsqctl-migrate" // begins the user agent of every bridge at a stock nsqd

const lastAnswers = 5 * time.Second // how long stop waits for the answers of unanswered puts

type bridgeOptions struct {
	Topic, Channel string
	Header         []byte            // of the published messages
	Consumer       *nsq.Config       // TLS and AUTH of the stock side, MaxInFlight; startBridge sets the rest
	Publisher      publisher.Options // Report also receives the problems of the connections to the nsqds
}

// lines forwards the log of go-nsq. It drops the errors for answers to messages that have timed out.
type lines func(string)

func (f lines) Write(b []byte) (int, error) {
	if text := strings.TrimSpace(string(b)); !strings.Contains(text, "E_FIN_FAILED") && !strings.Contains(text, "E_REQ_FAILED") {
		f(text)
	}
	return len(b), nil
}

// bridge moves the messages of one channel. Its methods may be called by any goroutine.
type bridge struct {
	o        bridgeOptions
	consumer *nsq.Consumer
	out      chan publisher.Message
	stopping chan struct{}
	cancel   context.CancelFunc
	ended    chan struct{} // the publisher has ended, err is valid
	err      error

	mu       sync.Mutex
	pending  map[id][]*nsq.Message // all deliveries of each message whose put has no answer
	moved    int64                 // messages finished after their OK
	repeated int64                 // deliveries that were not published: the put of their message had no answer yet
}

// id names a message: nsqds may give the same id to different messages.
type id struct {
	nsqd string
	id   nsq.MessageID
}

// startBridge starts a bridge without a connection to an nsqd. It ends by itself only after a refusal
// that every broker of Lockstep would repeat (ended).
func startBridge(o bridgeOptions) (*bridge, error) {
	cfg := o.Consumer
	cfg.UserAgent = bridgeAgent
	cfg.MaxAttempts = 0                   // never give a message up
	cfg.MaxBackoffDuration = 0            // and never slow its channel down
	cfg.LookupdPollInterval = time.Second // the pause before a broken connection is dialled again
	consumer, err := nsq.NewConsumer(o.Topic, o.Channel, cfg)
	if err != nil {
		return nil, err
	}
	consumer.SetLogger(log.New(lines(o.Publisher.Report), "", 0), nsq.LogLevelError)
	ctx, cancel := context.WithCancel(context.Background())
	b := &bridge{
		o: o, consumer: consumer, out: make(chan publisher.Message), stopping: make(chan struct{}),
		cancel: cancel, ended: make(chan struct{}), pending: map[id][]*nsq.Message{},
	}
	consumer.AddHandler(b)
	go func() {
		_, b.err = publisher.Send(ctx, b.out, o.Publisher)
		close(b.ended)
	}()
	return b, nil
}

// connect also consumes from an nsqd, unless it does already.
func (b *bridge) connect(tcp string) error {
	if err := b.consumer.ConnectToNSQD(tcp); err != nil && !errors.Is(err, nsq.ErrAlreadyConnected) {
		return err
	}
	return nil
}

func (b *bridge) counts() (moved, repeated int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved, b.repeated
}

// HandleMessage implements nsq.Handler: it passes a message to the publisher.
func (b *bridge) HandleMessage(m *nsq.Message) error {
	m.DisableAutoResponse()
	key := id{m.NSQDAddress, m.ID}
	b.mu.Lock()
	unanswered := len(b.pending[key]) > 0
	b.pending[key] = append(b.pending[key], m)
	if unanswered {
		b.repeated++
	}
	b.mu.Unlock()
	if unanswered {
		return nil
	}
	select {
	case b.out <- publisher.Message{Topic: b.o.Topic, Header: b.o.Header, Body: m.Body, Stored: func() { b.stored(key) }}:
		return nil
	case <-b.stopping:
	case <-b.ended:
	}
	b.answer(key, requeue)
	return nil
}

// stored finishes a message whose put was answered OK.
func (b *bridge) stored(key id) {
	b.mu.Lock()
	b.moved++
	b.mu.Unlock()
	b.answer(key, (*nsq.Message).Finish)
}

func requeue(m *nsq.Message) { m.RequeueWithoutBackoff(0) }

// answer answers all deliveries of a message. go-nsq waits for an answer to each delivery, the nsqd only for the answer
// to the last one.
func (b *bridge) answer(key id, with func(*nsq.Message)) {
	b.mu.Lock()
	deliveries := b.pending[key]
	delete(b.pending, key)
	b.mu.Unlock()
	for _, m := range slices.Backward(deliveries) {
		with(m)
	}
}

// stop ends the bridge. Messages whose puts are not answered within 5 s go back to the stock
// nsqd: they may be in Lockstep twice after the next start. It returns their number.
func (b *bridge) stop() (unanswered int) {
	close(b.stopping)
	b.consumer.Stop()
	deadline := time.NewTimer(lastAnswers)
	defer deadline.Stop()
	select {
	case <-b.consumer.StopChan: // each connection has waited for its messages in flight
	case <-b.ended:
	case <-deadline.C:
	}
	b.cancel()
	<-b.ended
	b.mu.Lock()
	left := slices.Collect(maps.Keys(b.pending))
	b.mu.Unlock()
	for _, key := range left {
		b.answer(key, requeue)
	}
	<-b.consumer.StopChan
	return len(left)
}
