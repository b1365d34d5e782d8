package httpapi_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// watched is one broker with the topic t, its partition 0 and its channel c, for a console.
type watched struct{}

func (watched) View() api.ClusterView {
	nodes := []ident.Node{"n1"}
	return api.ClusterView{Self: "n1", Controller: "n1", Brokers: []api.BrokerView{{Name: "n1", Alive: true}}, Topics: []api.TopicView{{
		Topic: "t", ReplicationFactor: 1, Partitions: []api.PartitionView{{Leader: "n1", Replicas: nodes, ISR: nodes, MinInSync: 1}},
	}}}
}

func (w watched) Members() api.ClusterView { return w.View() }

func (w watched) TopicView(name string) (api.TopicView, bool) {
	return w.View().Topics[0], name == "t"
}

func (watched) Samples(string, string) []api.TopicSample {
	parts := []api.ChannelPartition{{Lags: true, OldestMS: 1}}
	return []api.TopicSample{{Topic: "t", Channels: []api.ChannelSample{{Channel: "c", Partitions: parts}}}}
}

func (watched) Replica(string, uint16) (api.ReplicaSample, bool) {
	return api.ReplicaSample{Role: "leader"}, true
}

func (watched) FollowerLag() map[ident.Node]time.Duration { return nil }

func (watched) Disk() api.DiskSample { return api.DiskSample{} }

func (watched) Faults() api.FaultSample { return api.FaultSample{} }

func (watched) Damage() []api.PlacedDamage { return nil }

func (watched) AskConsole(context.Context, ident.Node, []byte) ([]byte, error) {
	return nil, errors.New("there is one broker")
}

func (watched) Policy(string, string) (api.ChannelPolicy, error) { return api.ChannelPolicy{}, nil }

func (watched) TopicSettings(topic string) (api.TopicSettings, bool) {
	return api.TopicSettings{Topic: topic}, topic == "t"
}

func (watched) Channels(string) []string { return []string{"c"} }

func newConsole() *console.Console { return console.New(console.Options{Cluster: watched{}}) }
