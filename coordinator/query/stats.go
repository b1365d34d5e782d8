package query

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Led returns the statistics of the partitions led here, summed by topic.
func (i *Inspector) Led(topic, channel string, clients bool) []api.TopicStats {
	byName := map[string]*api.TopicStats{}
	for _, p := range i.o.Engine.Partitions() {
		if !p.Leading() || p.Trashed() || topic != "" && p.Topic() != topic {
			continue
		}
		part := p.Queue().Stats(channel, clients)
		if sum, ok := byName[p.Topic()]; ok {
			addTopic(sum, part)
		} else {
			byName[p.Topic()] = &part
		}
	}
	out := make([]api.TopicStats, 0, len(byName))
	for name, t := range byName {
		t.TopicName = name
		if state, ok := i.o.Catalog.Topic(name); ok {
			t.Paused = state.Paused
		}
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b api.TopicStats) int { return cmp.Compare(a.TopicName, b.TopicName) })
	return out
}

func addTopic(sum *api.TopicStats, part api.TopicStats) {
	sum.Depth += part.Depth
	sum.BackendDepth += part.BackendDepth
	sum.MessageCount += part.MessageCount
	sum.MessageBytes += part.MessageBytes
	sum.Inherited += part.Inherited
	addLatency(&sum.E2E, part.E2E)
	sum.Channels = merge(sum.Channels, part.Channels, func(c api.ChannelStats) string { return c.ChannelName }, addChannel)
}

// merge adds the entries of a part to those of a sum by their keys. Both are sorted, and so is the result.
func merge[T any](sum, part []T, key func(T) string, add func(sum *T, part T)) []T {
	known := len(sum)
	for _, x := range part {
		at, ok := slices.BinarySearchFunc(sum[:known], key(x), func(y T, k string) int { return cmp.Compare(key(y), k) })
		if ok {
			add(&sum[at], x)
		} else {
			sum = append(sum, x)
		}
	}
	if len(sum) > known {
		slices.SortFunc(sum, func(x, y T) int { return cmp.Compare(key(x), key(y)) })
	}
	return sum
}

// addChannel adds one partition's numbers. A consumer is attached to every partition: clients are distinguished by address.
func addChannel(sum *api.ChannelStats, part api.ChannelStats) {
	sum.Depth += part.Depth
	sum.BackendDepth += part.BackendDepth
	sum.InFlightCount += part.InFlightCount
	sum.DeferredCount += part.DeferredCount
	sum.MessageCount += part.MessageCount
	sum.Inherited += part.Inherited
	sum.RequeueCount += part.RequeueCount
	sum.TimeoutCount += part.TimeoutCount
	sum.FilteredCount += part.FilteredCount
	sum.ExpiredCount += part.ExpiredCount
	sum.Filter = cmp.Or(sum.Filter, part.Filter)
	sum.Paused = sum.Paused || part.Paused
	sum.Ordered = sum.Ordered || part.Ordered
	addLatency(&sum.E2E, part.E2E)
	sum.Clients = merge(sum.Clients, part.Clients, func(c api.ClientStats) string { return c.RemoteAddress }, addClient)
	sum.ClientCount = max(sum.ClientCount, part.ClientCount, len(sum.Clients))
}

func addClient(x *api.ClientStats, c api.ClientStats) {
	if c.Relayed {
		x.InFlightCount += c.InFlightCount
		x.ReadyCount += c.ReadyCount
		x.MessageCount += c.MessageCount
		x.FinishCount += c.FinishCount
		x.RequeueCount += c.RequeueCount
	}
}

// addLatency joins two partitions' percentiles, weighted by their messages: exact if they have the same distribution.
func addLatency(sum *api.E2ELatency, part api.E2ELatency) {
	count := sum.Count + part.Count
	if part.Count == 0 || count == 0 {
		return
	}
	weight := float64(part.Count) / float64(count)
	joined := make([]api.Percentile, len(part.Percentiles)) // sum may share its slice with a partition
	for i, p := range part.Percentiles {
		joined[i] = p
		if i < len(sum.Percentiles) {
			joined[i].Value = sum.Percentiles[i].Value*(1-weight) + p.Value*weight
		}
	}
	sum.Count, sum.Percentiles = count, joined
}

// Topics is Led for tools that sum over brokers, such as nsqadmin (api.Stats): a client appears once, at the broker
// that it is connected to. If that broker leads no partition of the topic, it does not report the topic. Then each
// leader reports the client with the counts of its own partitions, and the sum is correct.
func (i *Inspector) Topics(topic, channel string, clients bool) []api.TopicStats {
	topics := i.Led(topic, channel, true)
	for n := range topics {
		leaders := i.leaders(topics[n].TopicName)
		for j := range topics[n].Channels {
			once(&topics[n].Channels[j], leaders)
			if !clients {
				topics[n].Channels[j].Clients = nil
			}
		}
	}
	return topics
}

// leaders are the brokers that report a topic.
func (i *Inspector) leaders(topic string) (all []ident.Node) {
	state, ok := i.o.Catalog.Topic(topic)
	if !ok {
		return nil
	}
	for number := range state.Partitions {
		if p, ok := i.o.Catalog.Partition(ident.Partition{Topic: state.ID, Number: uint16(number)}); ok {
			all = append(all, p.Leader)
		}
	}
	return all
}

// once removes the clients that are reported by another one of these brokers.
func once(ch *api.ChannelStats, leaders []ident.Node) {
	all := len(ch.Clients)
	ch.Clients = slices.DeleteFunc(ch.Clients, func(c api.ClientStats) bool { return c.Relayed && slices.Contains(leaders, c.Edge) })
	ch.ClientCount -= all - len(ch.Clients)
}
