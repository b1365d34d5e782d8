package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
)

// lookupRoutes are the endpoints of nsqlookupd that nsqd does not have. Both ports serve them.
var lookupRoutes = []Route{
	get("/lookup", access.Discover, (*endpoints).lookup, "The channels of a topic and the brokers that serve it.", argTopic,
		boolArg("metainfo", "true: also the leader of each partition, and the number of partitions, as clients of the fork require"),
		numberArg("partition", "the partition").orElse("INVALID_ARG_PARTITION"),
		textArg("access", "w or r, sent by clients of the fork; without effect")).replies(lookupReply{}).lenient().everywhere(),
	get("/listlookup", access.Observe, (*endpoints).listLookup,
		"The addresses of the lookup API, for clients of the fork: every broker.").
		replies(lookupNodes{}).lenient().local().everywhere(),
	get("/topics", access.Observe, func(a *endpoints, _ *request) (any, error) {
		return topicsReply{list(a.b.Directory.Topics())}, nil
	}, "All topics.").replies(topicsReply{}).lenient().local().everywhere(),
	get("/channels", access.Discover, func(a *endpoints, q *request) (any, error) {
		return channelsReply{list(a.b.Directory.Channels(q.topic()))}, nil
	}, "The channels of a topic.", argTopic).replies(channelsReply{}).lenient().local().everywhere(),
	get("/nodes", access.Observe, (*endpoints).nodes, "All brokers, with the topics that each serves.").
		replies(nodesReply{}).lenient().local().everywhere(),
	get("/debug", access.Observe, (*endpoints).registrations, "The registrations, as nsqlookupd lists them.").
		replies(map[string][]registration{}).lenient().local().everywhere(),
	post("/topic/tombstone", access.Administer, func(a *endpoints, q *request) (any, error) {
		return nil, a.b.Directory.Tombstone(q.topic(), q.text("node"))
	}, "Hide a broker from /lookup of a topic for a while.", argTopic,
		textArg("node", "broadcast address:HTTP port of the broker").orMissing("MISSING_ARG_NODE")).
		lenient().everywhere(),
}

type (
	topicsReply struct {
		Topics []string `json:"topics"`
	}
	channelsReply struct {
		Channels []string `json:"channels"`
	}
	nodesReply struct {
		Producers []api.NodeEntry `json:"producers"`
	}
	lookupReply struct {
		Channels  []string       `json:"channels"`
		Producers []api.Producer `json:"producers"`
	}
	// partitionsReply is the answer to /lookup?metainfo=true.
	partitionsReply struct {
		Channels   []string                `json:"channels"`
		Producers  []api.Producer          `json:"producers"`
		Partitions map[string]api.Producer `json:"partitions"`
		Meta       topicMeta               `json:"meta"`
	}
	topicMeta struct {
		PartitionNum  int  `json:"partition_num"`
		Replica       int  `json:"replica"`
		ExtendSupport bool `json:"extend_support"`
	}
	lookupNodes struct {
		Nodes  []lookupNode `json:"lookupdnodes"`
		Leader lookupNode   `json:"lookupdleader"`
	}
	// lookupNode has the names of the fork's client.
	lookupNode struct {
		ID       string `json:"ID"`
		NodeIP   string `json:"NodeIp"`
		TCPPort  string `json:"TcpPort"`
		HTTPPort string `json:"HttpPort"`
		RPCPort  string `json:"RpcPort"`
		Epoch    int64  `json:"Epoch"`
	}
)

// lookup answers with the form of the fork, whose clients go to the leader of each partition, if metainfo is true.
func (a *endpoints) lookup(q *request) (any, error) {
	if q.flag("metainfo", false) {
		return a.lookupPartitions(q)
	}
	channels, producers, err := a.b.Directory.Lookup(q.Context(), q.topic())
	return lookupReply{list(channels), list(producers)}, err
}

// lookupPartitions names only leaders as producers: otherwise a client would subscribe, without naming a partition, to
// a producer that leads none.
func (a *endpoints) lookupPartitions(q *request) (any, error) {
	leaders, err := a.b.Directory.Leaders(q.Context(), q.topic())
	if err != nil {
		return nil, err
	}
	only := -1
	if text := q.text("partition"); text != "" {
		if only, err = strconv.Atoi(text); err != nil {
			return nil, fail(http.StatusBadRequest, "INVALID_ARG_PARTITION")
		}
	}
	reply := partitionsReply{
		Channels: list(a.b.Directory.Channels(q.topic())), Producers: []api.Producer{}, Partitions: map[string]api.Producer{},
		Meta: topicMeta{ExtendSupport: true},
	}
	if s, ok := a.b.Directory.TopicSettings(q.topic()); ok {
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

func (a *endpoints) listLookup(*request) (any, error) {
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

// nodes pads the tombstones: tools index them by the index of the topic.
func (a *endpoints) nodes(*request) (any, error) {
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

// registrations is nsqlookupd's table "category:key:subkey".
func (a *endpoints) registrations(*request) (any, error) {
	table := map[string][]registration{}
	now := time.Now().UnixNano() // the update time is always current, because dead brokers leave the list at once
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
