package console

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

const (
	// maxListed bounds the partitions in a list, maxHistory the events of one object.
	maxListed  = 1024
	maxHistory = 100
)

// Topic is one topic. outcome.ErrTopicNotFound.
func (c *Console) Topic(ctx context.Context, name string) (TopicDetail, error) {
	settings, ok := c.o.Cluster.TopicSettings(name)
	if !ok {
		return TopicDetail{}, outcome.ErrTopicNotFound
	}
	t := c.table(ctx)
	d := TopicDetail{Topic: Topic{Topic: name, Partitions: settings.Partitions, ReplicationFactor: settings.ReplicationFactor}, Settings: settings, Unreachable: t.missing, Partitions: []partition{}}
	for i := range t.topics {
		if t.topics[i].Topic == name {
			d.Topic = t.topics[i]
		}
	}
	channels := slices.Clone(t.of(name))
	slices.SortStableFunc(channels, func(a, b Channel) int { return cmp.Compare(b.LagSeconds, a.LagSeconds) })
	d.Channels = first(channels, MaxPage)
	v := c.present(t, name)
	answers, _ := askAll[map[int]*api.ReplicaSample](ctx, c, v, question{What: askTopic, EventsOf: EventsOf{Topic: name}}, "")
	leaders := map[int]*api.ReplicaSample{}
	for _, a := range answers {
		maps.Copy(leaders, a.answer)
	}
	alive := health.Living(v)
	for _, p := range partitionsOf(v, name) {
		d.Partitions = append(d.Partitions, partitionRow(p, alive, leaders[p.Partition]))
	}
	d.Partitions = first(d.Partitions, maxListed)
	return d, nil
}

// present is the current view of the cluster with one of its topics, and the damaged ranges of all brokers. Only the
// damage of the other brokers comes from the table: the table may be older than the topic.
func (c *Console) present(t *table, topic string) api.ClusterView {
	v := c.o.Cluster.Members()
	if x, ok := c.o.Cluster.TopicView(topic); ok {
		v.Topics = []api.TopicView{x}
	}
	addDamage(&v, t.damaged)
	return v
}

// ownLeaders are the replicas of a topic's partitions that this broker leads.
func (c *Console) ownLeaders(topic string) map[int]*api.ReplicaSample {
	out := map[int]*api.ReplicaSample{}
	t, _ := c.o.Cluster.TopicView(topic)
	for _, p := range t.Partitions {
		if p.Leader != c.self {
			continue
		}
		if r, ok := c.o.Cluster.Replica(topic, uint16(p.Partition)); ok {
			out[p.Partition] = &r
		}
	}
	return out
}

func partitionsOf(v api.ClusterView, topic string) []api.PartitionView {
	for i := range v.Topics {
		if v.Topics[i].Topic == topic {
			return v.Topics[i].Partitions
		}
	}
	return nil
}

// partitionRow is a partition with the ends that its leader reports; nil without its answer.
func partitionRow(p api.PartitionView, alive map[ident.Node]bool, leader *api.ReplicaSample) partition {
	row := partition{PartitionView: p, Fault: health.Fault(&p, alive)}
	row.Replicas, row.ISR, row.EndsUnknown = first(p.Replicas, maxListed), first(p.ISR, maxListed), false
	row.Damaged = row.Damaged[:min(len(p.Damaged), maxListed)]
	if leader != nil {
		row.CommittedOffset, row.CommittedSequence, row.EndOffset = &leader.CommittedOffset, &leader.CommittedSequence, &leader.End
	}
	return row
}

type held struct {
	Sample      *api.ChannelSample `json:"sample"`
	Connections []Connection       `json:"connections"`
}

func (c *Console) ownChannel(topic, channel string) held {
	h := held{Connections: []Connection{}}
	for _, t := range c.o.Cluster.Samples(topic, channel) {
		for i := range t.Channels {
			h.Sample = &t.Channels[i]
			c.mu.Lock()
			h.Sample.FinishRate = c.kept.rates[topic+"/"+channel].finishes
			c.mu.Unlock()
		}
	}
	if c.o.Consumers != nil {
		for _, x := range c.o.Consumers(topic, channel) {
			h.Connections = append(h.Connections, Connection{c.self, x})
		}
	}
	return h
}

// Channel is one channel. outcome.ErrTopicNotFound, outcome.ErrChannelNotFound.
func (c *Console) Channel(ctx context.Context, topic, channel string) (ChannelDetail, error) {
	if _, ok := c.o.Cluster.TopicSettings(topic); !ok {
		return ChannelDetail{}, outcome.ErrTopicNotFound
	}
	answers, missing := askAll[held](ctx, c, c.o.Cluster.Members(), question{What: askChannel, EventsOf: EventsOf{Topic: topic}, Channel: channel}, "")
	d := ChannelDetail{Channel: Channel{Topic: topic, Channel: channel}, Unreachable: missing, Partitions: []channelPart{}, Connections: []Connection{}}
	found := slices.Contains(c.o.Cluster.Channels(topic), channel)
	for _, a := range answers {
		d.Connections = append(d.Connections, a.answer.Connections...)
		if s := a.answer.Sample; s != nil {
			found = true
			row := channelRow(topic, s)
			d.Channel.add(&row)
			d.addParts(a.broker, s.Partitions)
		}
	}
	if !found {
		return d, outcome.ErrChannelNotFound
	}
	slices.SortFunc(d.Partitions, func(a, b channelPart) int { return cmp.Compare(a.Partition, b.Partition) })
	if policy, err := c.o.Cluster.Policy(topic, channel); err == nil { // an ephemeral channel has none
		d.Policy, d.DeadLetterTopic = policy, policy.DeadLetterTopic
	}
	if d.DeadLetterTopic != "" {
		d.DeadLetters = c.letters(ctx, d.DeadLetterTopic)
	}
	return d, nil
}

func (d *ChannelDetail) addParts(leader ident.Node, parts []api.ChannelPartition) {
	for _, p := range parts {
		d.Partitions = append(d.Partitions, channelPart{leader, p})
		if p.Lags && p.OldestMS != 0 && (d.Oldest == nil || p.OldestMS < d.Oldest.TimeMS) {
			d.Oldest = &Oldest{int(p.Partition), p.Oldest, p.OldestMS, p.LagSeconds}
		}
	}
}

// letters is the number of dead letters in a topic that were not moved back; nil if a leader of the topic gave no answer, or the
// topic does not exist.
func (c *Console) letters(ctx context.Context, topic string) *int64 {
	t := c.table(ctx)
	partitions := partitionsOf(t.view, topic)
	if len(partitions) == 0 {
		return nil
	}
	for _, p := range partitions {
		if t.live[p.Leader] == nil {
			return nil
		}
	}
	var n int64
	for _, ch := range t.of(topic) {
		if ch.Channel == api.DeadLetterChannel {
			n = ch.Depth + ch.InFlight + ch.Deferred
		}
	}
	return &n
}

func has(v api.ClusterView, n ident.Node) bool {
	return slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == n })
}

// Broker is one broker. outcome.ErrBrokerNotFound.
func (c *Console) Broker(ctx context.Context, n ident.Node) (BrokerDetail, error) {
	t := c.table(ctx)
	d := BrokerDetail{Unreachable: t.missing, Reasons: []string{}, Leads: []place{}, Follows: []place{}}
	reasons, err := health.SafeToStop(t.view, n)
	if err != nil {
		return d, outcome.ErrBrokerNotFound
	}
	d.SafeToStop, d.Reasons = len(reasons) == 0, first(reasons, maxListed)
	for _, b := range t.brokers(c.self) {
		if b.Name == n {
			d.Broker = b
		}
	}
	for i := range t.view.Topics {
		for _, p := range t.view.Topics[i].Partitions {
			switch at := (place{t.view.Topics[i].Topic, p.Partition}); {
			case p.Leader == n:
				d.Leads = append(d.Leads, at)
			case slices.Contains(p.Replicas, n):
				d.Follows = append(d.Follows, at)
			}
		}
	}
	d.Leads, d.Follows = first(d.Leads, maxListed), first(d.Follows, maxListed)
	d.Events = c.Events(ctx, EventsOf{Broker: n, Limit: maxHistory}).Events
	return d, nil
}

func (c *Console) ownReplica(topic string, partition *uint16) *api.ReplicaSample {
	if partition == nil {
		return nil
	}
	if r, ok := c.o.Cluster.Replica(topic, *partition); ok {
		return &r
	}
	return nil
}

// Partition is one partition. outcome.ErrTopicNotFound, ErrPartitionNotFound.
func (c *Console) Partition(ctx context.Context, topic string, number uint16) (PartitionDetail, error) {
	if _, ok := c.o.Cluster.TopicSettings(topic); !ok {
		return PartitionDetail{}, outcome.ErrTopicNotFound
	}
	v := c.present(c.table(ctx), topic)
	at := slices.IndexFunc(partitionsOf(v, topic), func(p api.PartitionView) bool { return p.Partition == int(number) })
	if at < 0 {
		return PartitionDetail{}, ErrPartitionNotFound
	}
	p := partitionsOf(v, topic)[at]
	answers, missing := askAll[*api.ReplicaSample](ctx, c, v, question{What: askReplica, EventsOf: EventsOf{Topic: topic, Partition: &number}}, "")
	replicas := map[ident.Node]*api.ReplicaSample{}
	for _, a := range answers {
		replicas[a.broker] = a.answer
	}
	leader, alive := replicas[p.Leader], health.Living(v)
	d := PartitionDetail{Partition: partitionRow(p, alive, leader), Topic: topic, Unreachable: missing, Members: []Member{}}
	for _, n := range p.Replicas {
		m := Member{Broker: n, InSync: slices.Contains(p.ISR, n), Alive: alive[n], ReplicaSample: replicas[n]}
		m.lag(n == p.Leader, leader)
		d.Members = append(d.Members, m)
	}
	d.Events = c.Events(ctx, EventsOf{Topic: topic, Partition: &number, Kinds: []string{events.Election, events.InSync, events.Rollback, events.Truncation}, Limit: maxHistory}).Events
	return d, nil
}

// lag sets the lag that the leader reports for a replica.
func (m *Member) lag(leads bool, leader *api.ReplicaSample) {
	if leader == nil {
		return
	}
	if leads {
		m.LagBytes, m.LagSeconds = new(int64), new(float64)
		return
	}
	for _, f := range leader.Followers {
		if f.Node == m.Broker && f.Known {
			owes := seconds(f.Owes)
			m.LagBytes, m.LagSeconds = &f.Behind, &owes
		}
	}
}
