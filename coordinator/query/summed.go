package query

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Summed is api.Stats for tools that add the brokers up, such as nsqadmin: a client that is
// subscribed to a topic is there once, at the broker that it is connected to.
//
// A broker reports a topic only if it leads a partition of it. A client of a broker that leads none
// is reported by the leaders, each with the counts of its own partitions: their sum is right, and
// the client is there once for each leader.
type Summed struct{ *Inspector }

// Topics implements api.Stats.
func (s Summed) Topics(topic, channel string, clients bool) []api.TopicStats {
	topics := s.Inspector.Topics(topic, channel, true)
	for i := range topics {
		leaders := s.leaders(topics[i].TopicName)
		for j := range topics[i].Channels {
			once(&topics[i].Channels[j], leaders)
			if !clients {
				topics[i].Channels[j].Clients = nil
			}
		}
	}
	return topics
}

// leaders are the brokers that report a topic.
func (s Summed) leaders(topic string) (all []ident.Node) {
	state, ok := s.o.Catalog.Topic(topic)
	if !ok {
		return nil
	}
	for number := range state.Partitions {
		if p, ok := s.o.Catalog.Partition(ident.Partition{Topic: state.ID, Number: uint16(number)}); ok {
			all = append(all, p.Leader)
		}
	}
	return all
}

// once removes the clients that another of the brokers reports.
func once(ch *api.ChannelStats, leaders []ident.Node) {
	all := len(ch.Clients)
	ch.Clients = slices.DeleteFunc(ch.Clients, func(c api.ClientStats) bool { return c.Relayed && slices.Contains(leaders, c.Edge) })
	ch.ClientCount -= all - len(ch.Clients)
}
