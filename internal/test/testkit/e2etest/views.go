package e2etest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// ReplicasOn counts a broker's replicas.
func (c *Cluster) ReplicasOn(name string) (n int) {
	for _, t := range c.Topics() {
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, ident.Node(name)) {
				n++
			}
		}
	}
	return n
}

// ChannelStats adds up what the leaders report of a channel.
func (c *Cluster) ChannelStats(topic, channel string) (sum api.ChannelStats) {
	for _, b := range c.Brokers {
		var s struct{ Topics []api.TopicStats }
		if c.Get(b, "/stats?format=json&topic="+url.QueryEscape(topic)+"&channel="+url.QueryEscape(channel), &s) != nil {
			continue
		}
		for _, t := range s.Topics {
			for _, ch := range t.Channels {
				sum.Depth += ch.Depth
				sum.InFlightCount += ch.InFlightCount
				sum.DeferredCount += ch.DeferredCount
			}
		}
	}
	return sum
}

// Logged is what a broker has written to its log.
func (c *Cluster) Logged(name string) string {
	c.T.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name+".log"))
	require.NoError(c.T, err)
	return string(text)
}

// HasTopic reports whether the cluster has a topic.
func (c *Cluster) HasTopic(topic string) bool {
	out, _, err := c.Ctl("topic", "list", "-o=json")
	return err == nil && strings.Contains(out, `"`+topic+`"`)
}

// Other is a broker that is not the named one.
func (c *Cluster) Other(name string) devcluster.Broker {
	for _, b := range c.Brokers {
		if b.Name != name {
			return b
		}
	}
	panic("a cluster of one")
}

// Logged is one message of `nsqctl peek -o json`.
type Logged struct {
	Partition int            `json:"partition"`
	Sequence  uint64         `json:"sequence"`
	DeliverAt int64          `json:"deliver_at"`
	Header    map[string]any `json:"header"`
	Body      string         `json:"body"`
}

// Origin is the header by which a copy names its original; "" if it is none.
func (m Logged) Origin() string {
	text, _ := m.Header["##origin"].(string)
	return text
}

// PeekAll reads the log of a topic.
func (c *Cluster) PeekAll(topic string) (all []Logged) {
	c.T.Helper()
	out, problems, err := c.Ctl("peek", topic, "-n=10000000", "-o=json")
	require.NoError(c.T, err, "%s%s", out, problems)
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var m Logged
		if err := d.Decode(&m); err == io.EOF {
			return all
		} else {
			require.NoError(c.T, err)
		}
		all = append(all, m)
	}
}

// Committed counts the messages of a topic, when the leaders of all partitions have reported them.
func (c *Cluster) Committed(topic string) (n uint64) {
	c.T.Helper()
	c.Until("what is committed in "+topic, func() bool {
		v, ok := c.Topic(topic)
		n = 0
		for _, p := range v.Partitions {
			n += uint64(p.CommittedSequence)
		}
		return ok && !slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool { return p.EndsUnknown })
	})
	return n
}

// BrokerView is one line of /v1/cluster as the first broker shows it.
func (c *Cluster) BrokerView(name string) api.BrokerView {
	var v api.ClusterView
	if c.Get(c.Brokers[0], "/v1/cluster", &v) != nil {
		return api.BrokerView{}
	}
	for _, b := range v.Brokers {
		if b.Name == ident.Node(name) {
			return b
		}
	}
	return api.BrokerView{}
}

// OnOneDisk creates topics of one replica until a broker has one, and returns its name.
func (c *Cluster) OnOneDisk(broker string) (topic string) {
	c.T.Helper()
	for i := 0; ; i++ {
		topic = fmt.Sprintf("single%d", i)
		c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "partitions": {"1"}, "replication_factor": {"1"}, "min_in_sync": {"1"}})
		if c.Leader(topic) == broker {
			return topic
		}
	}
}
