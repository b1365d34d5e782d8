package httpapi_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/internal/console"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// watched is one broker with the topic t, its partition 0 and its channel c, for a console.
type watched struct{}

func (watched) View() edge.ClusterView {
	nodes := []ident.Node{"n1"}
	return edge.ClusterView{Self: "n1", Controller: "n1", Brokers: []edge.BrokerView{{Name: "n1", Alive: true}}, Topics: []edge.TopicView{{
		Topic: "t", ReplicationFactor: 1, Partitions: []edge.PartitionView{{Leader: "n1", Replicas: nodes, ISR: nodes, MinInSync: 1}},
	}}}
}

func (w watched) Members() edge.ClusterView { return w.View() }

func (w watched) TopicView(name string) (edge.TopicView, bool) {
	return w.View().Topics[0], name == "t"
}

func (watched) Samples(string, string) []edge.TopicSample {
	parts := []edge.ChannelPartition{{Lags: true, OldestMS: 1}}
	return []edge.TopicSample{{Topic: "t", Channels: []edge.ChannelSample{{Channel: "c", Partitions: parts}}}}
}

func (watched) Replica(string, uint16) (edge.ReplicaSample, bool) {
	return edge.ReplicaSample{Role: "leader"}, true
}

func (watched) Owed() map[ident.Node]time.Duration { return nil }

func (watched) Disk() edge.DiskSample { return edge.DiskSample{} }

func (watched) Faults() edge.FaultSample { return edge.FaultSample{} }

func (watched) Damage() []edge.PlacedDamage { return nil }

func (watched) AskConsole(context.Context, ident.Node, []byte) ([]byte, error) {
	return nil, errors.New("there is one broker")
}

func (watched) Policy(string, string) (edge.ChannelPolicy, error) { return edge.ChannelPolicy{}, nil }

func (watched) TopicSettings(topic string) (edge.TopicSettings, bool) {
	return edge.TopicSettings{Topic: topic}, topic == "t"
}

func (watched) Channels(string) []string { return []string{"c"} }

func newConsole() *console.Console { return console.New(console.Options{Cluster: watched{}}) }
