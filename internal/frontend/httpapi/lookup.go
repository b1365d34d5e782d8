package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// lookupOnly adds the endpoints that only nsqlookupd has.
func (a *endpoints) lookupOnly(get, post func(string, endpoint)) {
	get("/lookup", a.lookup)
	get("/listlookup", a.listLookup)
	get("/topics", a.topics)
	get("/channels", a.channels)
	get("/nodes", a.nodes)
	get("/debug", a.registrations)
	post("/topic/tombstone", a.tombstone)
}

// lookup: GET /lookup?topic=. With metainfo=true, and access= and partition=, the answer has the form of
// the fork, whose clients go to the leader of each partition.
func (a *endpoints) lookup(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	if flag(values, "metainfo", false) {
		return a.lookupPartitions(r, topic, values)
	}
	channels, producers, err := a.b.Directory.Lookup(r.Context(), topic)
	if err != nil {
		return nil, err
	}
	return lookupReply{list(channels), list(producers)}, nil
}

// lookupPartitions is the answer for clients of the fork: the producers are the leaders alone, for a client
// would also subscribe, without a partition, to a producer that leads none.
func (a *endpoints) lookupPartitions(r *http.Request, topic string, values url.Values) (any, error) {
	leaders, err := a.b.Directory.Leaders(r.Context(), topic)
	if err != nil {
		return nil, err
	}
	only := -1
	if text := values.Get("partition"); text != "" {
		if only, err = strconv.Atoi(text); err != nil {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_PARTITION")
		}
	}
	reply := partitionsReply{
		Channels: list(a.b.Directory.Channels(topic)), Producers: []api.Producer{}, Partitions: map[string]api.Producer{},
		Meta: topicMeta{ExtendSupport: true},
	}
	if s, ok := a.b.Directory.TopicSettings(topic); ok {
		reply.Meta.PartitionNum, reply.Meta.Replica = s.Partitions, s.ReplicationFactor
	}
	for _, l := range leaders {
		if only >= 0 && l.Partition != only {
			continue
		}
		reply.Partitions[strconv.Itoa(l.Partition)] = l.Producer
		if !slices.Contains(reply.Producers, l.Producer) {
			reply.Producers = append(reply.Producers, l.Producer)
		}
	}
	return reply, nil
}

// listLookup: GET /listlookup, by which clients of the fork find the other lookup addresses: every broker is one.
func (a *endpoints) listLookup(*http.Request) (any, error) {
	reply := lookupNodes{Nodes: []lookupNode{}}
	for _, n := range a.b.Directory.Nodes() {
		reply.Nodes = append(reply.Nodes, lookupNode{
			ID: n.RemoteAddress, NodeIP: n.BroadcastAddress, TCPPort: strconv.Itoa(n.TCPPort), HTTPPort: strconv.Itoa(n.HTTPPort),
		})
	}
	if len(reply.Nodes) > 0 {
		reply.Leader = reply.Nodes[0]
	}
	return reply, nil
}

// list returns an empty list for nil, where null would surprise clients.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// topics: GET /topics.
func (a *endpoints) topics(*http.Request) (any, error) {
	return topicsReply{list(a.b.Directory.Topics())}, nil
}

// channels: GET /channels?topic=.
func (a *endpoints) channels(r *http.Request) (any, error) {
	topic, _, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	return channelsReply{list(a.b.Directory.Channels(topic))}, nil
}

// nodes: GET /nodes. Tools index tombstones by the index of the topic.
func (a *endpoints) nodes(*http.Request) (any, error) {
	nodes := list(a.b.Directory.Nodes())
	for i := range nodes {
		n := &nodes[i]
		n.Topics = list(n.Topics)
		tombstones := make([]bool, len(n.Topics))
		copy(tombstones, n.Tombstones)
		n.Tombstones = tombstones
	}
	return nodesReply{nodes}, nil
}

// registration is one producer in GET /debug.
type registration struct {
	ID               string `json:"id"`
	Hostname         string `json:"hostname"`
	BroadcastAddress string `json:"broadcast_address"`
	TCPPort          int    `json:"tcp_port"`
	HTTPPort         int    `json:"http_port"`
	Version          string `json:"version"`
	TopologyZone     string `json:"topology_zone"`
	TopologyRegion   string `json:"topology_region"`
	LastUpdate       int64  `json:"last_update"` // Unix time in nanoseconds
	Tombstoned       bool   `json:"tombstoned"`
	TombstonedAt     int64  `json:"tombstoned_at"` // Unix time in nanoseconds; always 0, as tombstones are not stored
}

// registrations: GET /debug, nsqlookupd's table "category:key:subkey".
func (a *endpoints) registrations(*http.Request) (any, error) {
	table := map[string][]registration{}
	now := time.Now().UnixNano() // a broker leaves the list as soon as it is dead
	for _, n := range a.b.Directory.Nodes() {
		entry := registration{
			ID: n.RemoteAddress, Hostname: n.Hostname, BroadcastAddress: n.BroadcastAddress,
			TCPPort: n.TCPPort, HTTPPort: n.HTTPPort, Version: n.Version,
			TopologyZone: n.TopologyZone, TopologyRegion: n.TopologyRegion, LastUpdate: now,
		}
		table["client::"] = append(table["client::"], entry)
		for i, topic := range n.Topics {
			entry.Tombstoned = i < len(n.Tombstones) && n.Tombstones[i]
			key := fmt.Sprintf("topic:%s:", topic)
			table[key] = append(table[key], entry)
			for _, channel := range a.b.Directory.Channels(topic) {
				key := fmt.Sprintf("channel:%s:%s", topic, channel)
				table[key] = append(table[key], entry)
			}
		}
	}
	return table, nil
}

// tombstone: POST /topic/tombstone?topic=&node=.
func (a *endpoints) tombstone(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	node, err := required(values, "node", "MISSING_ARG_NODE")
	if err != nil {
		return nil, err
	}
	return nil, a.b.Directory.Tombstone(topic, node)
}

// lookupdInfo: GET /info of nsqlookupd.
func (a *endpoints) lookupdInfo(*http.Request) (any, error) {
	return map[string]string{"version": a.opts.Version}, nil
}

// lookupdCreateTopic: POST /topic/create of nsqlookupd.
func (a *endpoints) lookupdCreateTopic(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	topic, err := checked(values, "topic")
	if err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), readCreateTopic(topic, values))
}

// lookupdDeleteTopic: POST /topic/delete of nsqlookupd removes registrations. This broker has
// none to remove, and the endpoint deletes no message.
func (a *endpoints) lookupdDeleteTopic(r *http.Request) (any, error) {
	_, _, err := topicOf(r)
	return nil, err
}

// lookupdCreateChannel: POST /channel/create of nsqlookupd creates the topic too.
func (a *endpoints) lookupdCreateChannel(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	if err := a.b.Admin.Do(r.Context(), api.CreateTopic{Topic: n.topic}); err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(r.Context(), readCreateChannel(n))
}

// lookupdDeleteChannel: POST /channel/delete of nsqlookupd; see lookupdDeleteTopic.
func (a *endpoints) lookupdDeleteChannel(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	for _, channel := range a.b.Directory.Channels(n.topic) {
		if channel == n.channel {
			return nil, nil
		}
	}
	return nil, api.ErrChannelNotFound
}

// cluster: GET /v1/cluster.
func (a *endpoints) cluster(*http.Request) (any, error) { return a.b.Directory.Cluster(), nil }

// ready: GET /readyz.
func (a *endpoints) ready() (int, string) {
	if err := a.b.Directory.Ready(); err != nil {
		return http.StatusServiceUnavailable, err.Error()
	}
	return http.StatusOK, "OK"
}
