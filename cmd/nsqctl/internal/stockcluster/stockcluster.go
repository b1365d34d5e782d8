// Package stockcluster reads the topology of a stock NSQ cluster over HTTP: the nsqds that its
// nsqlookupds list, or given ones, with their topics, channels and clients.
//
// It sends no credentials, prints nothing, and changes only what Prepare changes.
//
// # Invariants
//
//  1. A nsqd or nsqlookupd that does not answer is an error: an incomplete topology would look
//     like an empty queue.
//  2. Topics and channels with the suffix #ephemeral are left out: they end with their clients.
package stockcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
)

// Source names where a cluster is read: nsqlookupds, or the nsqds themselves.
type Source struct {
	Lookupds, NSQDs []string // HTTP addresses, host:port or URLs
	HTTP            *http.Client
}

// Cluster is the topology at one moment.
type Cluster struct {
	Nodes    []Node              // by HTTP address
	Channels map[string][]string // durable channels by durable topic, of all nsqds and nsqlookupds
	lookup   bool
}

// Node is one nsqd.
type Node struct {
	HTTP, TCP string
	Version   string
	Topics    []api.TopicStats // durable, with durable channels
	Ephemeral []string         // names that were left out: TOPIC, or TOPIC/CHANNEL
	Producers []api.ClientStats
}

// Read reads the topology.
func (s Source) Read(ctx context.Context) (*Cluster, error) {
	c := &Cluster{Channels: map[string][]string{}, lookup: len(s.Lookupds) > 0}
	addresses := map[string]string{} // TCP by HTTP address; "" = not known
	for _, a := range s.NSQDs {
		addresses[a] = ""
	}
	for _, lookupd := range s.Lookupds {
		if err := s.lookup(ctx, lookupd, c, addresses); err != nil {
			return nil, fmt.Errorf("nsqlookupd %s: %w", lookupd, err)
		}
	}
	nodes := make([]Node, len(addresses))
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
			}
		}
	}
	return c, nil
}

// add records durable channels of a durable topic.
func (c *Cluster) add(topic string, channels ...string) {
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

// Topics lists the durable topics.
func (c *Cluster) Topics() []string { return slices.Sorted(maps.Keys(c.Channels)) }

// Expected lists the channels that a topic has to have on an nsqd. Where consumers find nsqds
// by lookup, each consumer uses all nsqds of a topic, so that all its channels belong on each.
func (c *Cluster) Expected(topic string, n Node) []string {
	if c.lookup {
		return c.Channels[topic]
	}
	for _, t := range n.Topics {
		if t.TopicName == topic {
			return channelNames(t)
		}
	}
	return nil
}

func channelNames(t api.TopicStats) (names []string) {
	for _, ch := range t.Channels {
		names = append(names, ch.ChannelName)
	}
	return names
}

// lookup adds what one nsqlookupd lists.
func (s Source) lookup(ctx context.Context, address string, c *Cluster, addresses map[string]string) error {
	var nodes struct {
		Producers []api.Producer `json:"producers"`
	}
	if err := s.get(ctx, address, "/nodes", nil, &nodes); err != nil {
		return err
	}
	for _, p := range nodes.Producers {
		at := net.JoinHostPort(p.BroadcastAddress, strconv.Itoa(p.HTTPPort))
		addresses[at] = net.JoinHostPort(p.BroadcastAddress, strconv.Itoa(p.TCPPort))
	}
	var topics struct {
		Topics []string `json:"topics"`
	}
	if err := s.get(ctx, address, "/topics", nil, &topics); err != nil {
		return err
	}
	for _, topic := range topics.Topics {
		var channels struct {
			Channels []string `json:"channels"`
		}
		if err := s.get(ctx, address, "/channels", url.Values{"topic": {topic}}, &channels); err != nil {
			return err
		}
		c.add(topic, channels.Channels...)
	}
	return nil
}

// node reads one nsqd.
func (s Source) node(ctx context.Context, address, tcp string) (Node, error) {
	n := Node{HTTP: address, TCP: tcp}
	var info struct {
		Version   string `json:"version"`
		Broadcast string `json:"broadcast_address"`
		TCPPort   int    `json:"tcp_port"`
	}
	if err := s.get(ctx, address, "/info", nil, &info); err != nil {
		return n, err
	}
	if _, err := s.call(ctx, http.MethodGet, address, "/v1/cluster", nil); err == nil {
		return n, errors.New("this is a broker of Lockstep: messages would move in a circle")
	}
	n.Version = info.Version
	if n.TCP == "" { // as the given address reaches it; its broadcast address may be for others
		host, _, _ := net.SplitHostPort(trimScheme(address))
		n.TCP = net.JoinHostPort(cmp.Or(host, info.Broadcast), strconv.Itoa(info.TCPPort))
	}
	var stats struct {
		Topics    []api.TopicStats  `json:"topics"`
		Producers []api.ClientStats `json:"producers"`
	}
	if err := s.get(ctx, address, "/stats", url.Values{"format": {"json"}, "include_mem": {"false"}}, &stats); err != nil {
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

func trimScheme(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		return rest
	}
	return address
}

// Prepare creates the missing channels of a topic on an nsqd. A topic without a channel holds its
// messages for the first one alone, so it is paused until it has all.
func (s Source) Prepare(ctx context.Context, n Node, t api.TopicStats, channels []string) error {
	missing := slices.DeleteFunc(slices.Clone(channels), func(name string) bool { return slices.Contains(channelNames(t), name) })
	if len(missing) == 0 {
		return nil
	}
	topic := url.Values{"topic": {t.TopicName}}
	alone := len(t.Channels) == 0 && !t.Paused
	if alone {
		if err := s.post(ctx, n.HTTP, "/topic/pause", topic); err != nil {
			return err
		}
	}
	for _, name := range missing {
		if err := s.post(ctx, n.HTTP, "/channel/create", url.Values{"topic": {t.TopicName}, "channel": {name}}); err != nil {
			return err
		}
	}
	if alone {
		return s.post(ctx, n.HTTP, "/topic/unpause", topic)
	}
	return nil
}

func (s Source) get(ctx context.Context, address, path string, q url.Values, v any) error {
	body, err := s.call(ctx, http.MethodGet, address, path, q)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: this is not the answer of NSQ: %w", path, err)
	}
	return nil
}

func (s Source) post(ctx context.Context, address, path string, q url.Values) error {
	_, err := s.call(ctx, http.MethodPost, address, path, q)
	return err
}

func (s Source) call(ctx context.Context, method, address, path string, q url.Values) ([]byte, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	req, err := http.NewRequestWithContext(ctx, method, address+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.nsq; version=1.0") // releases before 1.0 wrap their answers without it
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return nil, brokerapi.Reason(err) // the callers name the address
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}
