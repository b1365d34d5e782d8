package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// The plan comes first, and --dry-run ends with it.
func TestPlansAreShownFirst(t *testing.T) {
	plan := &api.Plan{
		Steps:   []api.PlanStep{{Topic: "orders", Partition: 3, Replicas: []ident.Node{"n1", "n2"}, ReplicasAfter: []ident.Node{"n4", "n2"}, Leader: "n1", LeaderAfter: "n4"}},
		Brokers: []api.PlanBroker{{Broker: "n1", Replicas: 1, Leads: 1}, {Broker: "n4", ReplicasAfter: 1, LeadsAfter: 1}},
		Blocked: []string{"later/0 keeps its replica on n1: no other broker can take it"},
	}
	for line, change := range map[string]string{
		"cluster balance": "/v1/cluster/balance?",
		"topic move orders --partition 3 --from n1 --to n4": "/v1/topic/move?from=n1&partition=3&to=n4&topic=orders",
		"broker decommission n1":                            "/v1/broker/decommission?node=n1",
		"cluster decommission n1":                           "/v1/broker/decommission?node=n1",
		"broker drain n1":                                   "/v1/broker/drain?node=n1",
		"broker drain n1 --replicas":                        "/v1/broker/drain?node=n1&replicas=true",
	} {
		address, changes := clitest.Planning(t, plan, api.ClusterView{})
		args := append(strings.Fields(line), "--nsqd-http-address", address)
		out, err := run(t, time.Minute, append(args, "--dry-run")...)
		require.NoError(t, err, line)
		require.Contains(t, out, "plan: changes 1 partition, copies 1 replica, moves 1 leadership\n", line)
		require.Regexp(t, `orders +3 +n1,n2 +n4,n2 +n1 +n4`, out)
		require.Contains(t, out, "not possible: later/0 keeps")
		out, err = run(t, time.Minute, append(args, "--dry-run", "-o", "json")...)
		require.NoError(t, err, line)
		var got api.Plan
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		require.Equal(t, *plan, got)
		require.Empty(t, changes(), "a dry run changes nothing")
		out, err = run(t, time.Minute, append(args, "-o", "json")...)
		require.NoError(t, err, line)
		require.Contains(t, out, `"result": "started"`)
		require.Equal(t, []string{change}, changes(), line)
	}
}

// TestMoveWaitsForItsPartition: another partition of the topic waits for a broker whose disk is full.
func TestMoveWaitsForItsPartition(t *testing.T) {
	view := func(isr ...ident.Node) api.ClusterView {
		return api.ClusterView{Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []api.PartitionView{
			{Partition: 0, Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1"}},
			{Partition: 3, Replicas: []ident.Node{"n1", "n4"}, ISR: isr},
		}}}}
	}
	move := func(v api.ClusterView, wait string) error {
		address, _ := clitest.Planning(t, nil, v)
		_, err := run(t, time.Minute, "topic", "move", "orders", "--partition", "3", "--from", "n2", "--to", "n4", "--wait", wait, "--nsqd-http-address", address)
		return err
	}
	require.NoError(t, move(view("n1", "n4"), "30s"))
	require.ErrorContains(t, move(view("n1"), "1ms"), "1 of 1 to go: orders/3 waits for n4 to be in sync")
}

// TestBalanceWaitsForItsPartitions: a partition that is not in the plan waits for a broker that is down.
func TestBalanceWaitsForItsPartitions(t *testing.T) {
	plan := &api.Plan{Steps: []api.PlanStep{{Topic: "orders", Partition: 3}}}
	balance := func(wait string, isr ...ident.Node) error {
		address, _ := clitest.Planning(t, plan, api.ClusterView{Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []api.PartitionView{
			{Partition: 0, Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1"}},
			{Partition: 3, Replicas: []ident.Node{"n1", "n4"}, ISR: isr},
		}}}})
		_, err := run(t, time.Minute, "cluster", "balance", "--wait", wait, "--nsqd-http-address", address)
		return err
	}
	require.NoError(t, balance("1ms", "n1", "n4"))
	require.ErrorContains(t, balance("1ms", "n1"), "1 of 1 to go: orders/3 waits for n4 to be in sync")
}

// The number of partitions is checked before a broker is asked.
func TestPartitionsTakesANumber(t *testing.T) {
	address, changes := clitest.Planning(t, &api.Plan{}, api.ClusterView{Topics: []api.TopicView{{Topic: "orders"}}})
	for _, n := range []string{"0", "x", "-1"} {
		_, err := run(t, time.Minute, "topic", "partitions", "orders", n, "--nsqd-http-address", address)
		require.Error(t, err)
	}
	_, _ = run(t, time.Minute, "topic", "partitions", "orders", "8", "--reorder", "--nsqd-http-address", address)
	require.Equal(t, []string{"/v1/topic/partitions?partitions=8&reorder=true&topic=orders"}, changes())
}
