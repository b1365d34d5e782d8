package health_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// three returns a cluster of three brokers that is healthy: one partition on all of them.
func three() api.ClusterView {
	all := []ident.Node{"n1", "n2", "n3"}
	return api.ClusterView{
		Cluster: "lockstep", Controller: "n1", Self: "n1",
		Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2", Alive: true}, {Name: "n3", Alive: true}},
		Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 3, MinInSync: 2, Partitions: []api.PartitionView{
			{Leader: "n1", Replicas: all, ISR: all, MinInSync: 2},
		}}},
	}
}

// TestABrokerThatDoesNotAnswer: it is dead for the cluster, and its process may still run. The alarm has its address, and
// says what to do first.
func TestABrokerThatDoesNotAnswer(t *testing.T) {
	v := three()
	for i := range v.Brokers {
		v.Brokers[i].RPCAddress = fmt.Sprintf("10.0.0.%d:4153", i+1)
		v.Brokers[i].HTTPAddress = fmt.Sprintf("10.0.0.%d:8080", i+1)
	}
	v.Brokers[1].Alive = false
	dead := func() health.Alarm {
		for _, a := range health.Assess(v, nil, nil).Alarms {
			if a.Code == health.BrokerDead {
				return a
			}
		}
		return health.Alarm{}
	}
	require.Equal(t, "1 broker is dead", dead().Text)
	require.NotContains(t, dead().Do, "kill")
	require.Contains(t, dead().Do, "If its disk is lost, start it with an empty data path; if it never returns: nsqctl broker decommission --help")
	v.Brokers[1].Silent = true
	require.Equal(t, "1 broker is dead: n2 at 10.0.0.2:4153 does not answer", dead().Text)
	require.Contains(t, dead().Do, "still runs, kill it")
	v.Brokers[2].Alive = false
	require.Equal(t, "2 brokers are dead: n2 at 10.0.0.2:4153 does not answer", dead().Text)
	v.Brokers[2].Silent = true
	require.Equal(t, "2 brokers are dead: n2 at 10.0.0.2:4153, n3 at 10.0.0.3:4153 do not answer", dead().Text)

	v = three()
	v.Brokers[1].Alive, v.Brokers[1].Incarnation = false, 7
	require.Contains(t, health.Assess(v, nil, nil).Alarms[1].Do, "kill those that run and do not answer")
	v = three()
	v.Brokers[1].HTTPAddress = "10.0.0.2:8080"
	require.Equal(t, "ask these brokers directly: curl http://10.0.0.2:8080/readyz", health.Assess(v, []string{"n2: no answer"}, nil).Alarms[0].Do)
}

// TestPublishing: whether clients can publish through the broker that is asked.
func TestPublishing(t *testing.T) {
	dead := func(v *api.ClusterView) { v.Brokers[1].Alive, v.Brokers[2].Alive = false, false }
	for name, c := range map[string]struct {
		change func(*api.ClusterView)
		state  health.State
		text   string
	}{
		"healthy":         {func(*api.ClusterView) {}, health.Healthy, "yes: every partition accepts messages"},
		"no topic":        {func(v *api.ClusterView) { v.Topics = nil }, health.Healthy, "yes: there is no topic yet"},
		"a follower dead": {func(v *api.ClusterView) { v.Brokers[2].Alive = false }, health.Healthy, "yes: every partition accepts messages"},
		"two dead":        {dead, health.Unsafe, "no: no partition accepts messages through n1"},
		"cut off": {func(v *api.ClusterView) { dead(v); v.MetadataUnheardMS = 1 }, health.Unsafe,
			"no: no partition accepts messages through n1. If only n1 is cut off, the other brokers accept messages"},
		"one of two": {func(v *api.ClusterView) {
			v.Topics = append(v.Topics, api.TopicView{Partitions: []api.PartitionView{{Leader: "n3", Replicas: []ident.Node{"n3"}, ISR: []ident.Node{"n3"}, MinInSync: 1}}})
			v.Brokers[2].Alive = false
		}, health.Unsafe, "in part: 1 of 2 partitions accept no messages through n1"},
		"no metadata":         {func(v *api.ClusterView) { v.MetadataUnheardMS = 1 }, health.Degraded, "yes, to existing topics: none can be created"},
		"two disks full":      {func(v *api.ClusterView) { v.Brokers[1].LowSpace, v.Brokers[2].LowSpace = true, true }, health.Unsafe, "no: no partition accepts messages through n1"},
		"one disk full":       {func(v *api.ClusterView) { v.Brokers[1].LowSpace = true }, health.Healthy, "yes: every partition accepts messages"},
		"the leader hangs":    {func(v *api.ClusterView) { v.Brokers[0].Hangs = true }, health.Unsafe, "no: no partition accepts messages through n1"},
		"a leader is unknown": {func(v *api.ClusterView) { v.Topics[0].Partitions[0].Leader = "" }, health.Unsafe, "no: no partition accepts messages through n1"},
	} {
		v := three()
		c.change(&v)
		state, text := health.Publishing(v)
		require.Equal(t, c.state, state, name)
		require.Equal(t, c.text, text, name)
	}
}

func TestAssess(t *testing.T) {
	kill := func(v *api.ClusterView, brokers ...int) {
		for _, i := range brokers {
			v.Brokers[i].Alive = false
		}
	}
	first := func(v *api.ClusterView) *api.PartitionView { return &v.Topics[0].Partitions[0] }
	for name, c := range map[string]struct {
		change func(*api.ClusterView)
		state  health.State
		codes  []string
	}{
		"healthy":         {func(*api.ClusterView) {}, health.Healthy, nil},
		"a follower dead": {func(v *api.ClusterView) { kill(v, 2); first(v).ISR = first(v).ISR[:2] }, health.Degraded, []string{health.UnderReplicated, health.BrokerDead}},
		"the leader dead": {func(v *api.ClusterView) { kill(v, 0) }, health.Unsafe, []string{health.NoLeader, health.BrokerDead}},
		"no leader":       {func(v *api.ClusterView) { first(v).Leader = "" }, health.Unsafe, []string{health.NoLeader}},
		"followers dead":  {func(v *api.ClusterView) { kill(v, 1, 2) }, health.Unsafe, []string{health.BelowMinimum, health.BrokerDead}},
		"all dead":        {func(v *api.ClusterView) { kill(v, 0, 1, 2) }, health.Unsafe, []string{health.NoLeader, health.NoBrokers}},
		"one disk":        {func(v *api.ClusterView) { first(v).ISR, first(v).MinInSync = first(v).ISR[:1], 1 }, health.Unsafe, []string{health.OneDisk}},
		"one replica": {func(v *api.ClusterView) {
			p := first(v)
			p.Replicas, p.ISR, p.MinInSync = p.Replicas[:1], p.ISR[:1], 1
		}, health.Healthy, nil},
		"a replica behind":          {func(v *api.ClusterView) { first(v).ISR = first(v).ISR[:2] }, health.Degraded, []string{health.UnderReplicated}},
		"damaged":                   {func(v *api.ClusterView) { first(v).Damaged = []api.DamageView{{Node: "n2"}} }, health.Unsafe, []string{health.Damaged}},
		"disk full":                 {func(v *api.ClusterView) { v.Brokers[1].LowSpace = true; first(v).ISR = []ident.Node{"n1", "n3"} }, health.Degraded, []string{health.UnderReplicated, health.LowSpace}},
		"disk full, about to leave": {func(v *api.ClusterView) { v.Brokers[1].LowSpace = true }, health.Degraded, []string{health.LowSpace}},
		"two disks full":            {func(v *api.ClusterView) { v.Brokers[1].LowSpace, v.Brokers[2].LowSpace = true, true }, health.Unsafe, []string{health.LowSpace}},
		"disk full, another dead": {func(v *api.ClusterView) {
			v.Brokers[1].LowSpace = true
			kill(v, 2)
			first(v).ISR = []ident.Node{"n1", "n2"}
		}, health.Unsafe,
			[]string{health.LowSpace, health.UnderReplicated, health.BrokerDead}},
		"a broker hangs":                  {func(v *api.ClusterView) { v.Brokers[1].Alive, v.Brokers[1].Hangs = false, true }, health.Degraded, []string{health.UnderReplicated, health.BrokerHangs}},
		"a disk hangs, no other can lead": {func(v *api.ClusterView) { v.Brokers[1].Hangs = true }, health.Unsafe, []string{health.BrokerHangs}},
		"one broker unreachable": {func(v *api.ClusterView) { kill(v, 2); v.Brokers[2].Incarnation = 7 }, health.Degraded,
			[]string{health.UnderReplicated, health.BrokerUnreachable}},
		"all others unreachable": {func(v *api.ClusterView) { kill(v, 1, 2); v.Brokers[1].Incarnation, v.Brokers[2].Incarnation = 7, 8 }, health.Unsafe,
			[]string{health.BelowMinimum, health.BrokerUnreachable}},
		"unreachable, and dead": {func(v *api.ClusterView) { kill(v, 1, 2); v.Brokers[1].Incarnation = 7 }, health.Unsafe,
			[]string{health.BelowMinimum, health.BrokerDead, health.BrokerUnreachable}},
		"no metadata":   {func(v *api.ClusterView) { v.MetadataUnheardMS = 5000; v.Controller = "" }, health.Degraded, []string{health.MetadataSilent}},
		"no controller": {func(v *api.ClusterView) { v.Controller = "" }, health.Degraded, []string{health.NoController}},
		"drained":       {func(v *api.ClusterView) { v.Brokers[1].Drain = "leaders" }, health.Healthy, []string{health.Drained}},
		"drained, no other leads": {func(v *api.ClusterView) {
			v.Brokers[0].Drain, v.Brokers[1].Drain, v.Brokers[2].Drain = "leaders", "leaders", "leaders"
		}, health.Degraded, []string{health.DrainStuck, health.Drained, health.Drained}},
		"replicas drained, no other broker": {func(v *api.ClusterView) { v.Brokers[2].Drain = "replicas" }, health.Degraded, []string{health.DrainStuck}},
		"cannot leave":                      {func(v *api.ClusterView) { v.Brokers[2].Leaving = true }, health.Degraded, []string{health.LeavingStuck}},
	} {
		t.Run(name, func(t *testing.T) {
			v := three()
			c.change(&v)
			r := health.Assess(v, nil, nil)
			var codes []string
			for _, a := range r.Alarms {
				codes = append(codes, a.Code)
				require.NotEmpty(t, a.Text)
				require.NotEmpty(t, a.Do)
			}
			require.Equal(t, c.codes, codes)
			require.Equal(t, c.state, r.State)
			require.Contains(t, r.Summary, c.state.String()+": ")
		})
	}
}

// TestUnreachableReplicasAreNotGivenUp: while no broker is known to be dead, the remedy for a partition is that of the
// network, and not to recover the topic without the disks of brokers that may run.
func TestUnreachableReplicasAreNotGivenUp(t *testing.T) {
	v := three()
	v.Brokers[0].Alive, v.Brokers[0].Incarnation = false, 7
	remedy := func() string { return health.Assess(v, nil, nil).Alarms[0].Do }
	require.Contains(t, remedy(), "repair the network between the brokers")
	require.NotContains(t, remedy(), "recover topic")
	v.Brokers[0].Incarnation = 0
	require.Contains(t, remedy(), "recover topic")
}

// TestWorstFault: that of several partitions, with those that have it alone.
func TestWorstFault(t *testing.T) {
	alive := map[ident.Node]bool{"n1": true, "n2": true}
	well := api.PartitionView{Leader: "n1", Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1", "n2"}, MinInSync: 1}
	damaged, behind := well, well
	damaged.Damaged, behind.Replicas = []api.DamageView{{}}, []ident.Node{"n1", "n2", "n3"}
	for _, c := range []struct {
		partitions []api.PartitionView
		code       string
		count      int
	}{
		{nil, "", 0},
		{[]api.PartitionView{well}, "", 0},
		{[]api.PartitionView{well, behind, behind}, health.UnderReplicated, 2},
		{[]api.PartitionView{behind, damaged, well, damaged}, health.Damaged, 2},
		{[]api.PartitionView{behind, damaged, {Leader: "n3"}}, health.NoLeader, 1},
	} {
		code, count := health.WorstFault(c.partitions, alive)
		require.Equal(t, c.code, code)
		require.Equal(t, c.count, count)
	}
}

// TestSilentBrokersAreNotHealthy: a broker without statistics is an alarm.
func TestSilentBrokersAreNotHealthy(t *testing.T) {
	r := health.Assess(three(), []string{"n2: no answer"}, nil)
	require.Equal(t, health.Degraded, r.State)
	require.Equal(t, health.StatisticsSilent, r.Alarms[0].Code)
}

func TestSummary(t *testing.T) {
	v := three()
	require.Equal(t, "healthy: 3 of 3 brokers alive, 1 topic, 1 partition", health.Assess(v, nil, nil).Summary)
	v.Brokers[2].Alive = false
	require.Equal(t, "degraded: 2 of 3 brokers alive, 1 topic, 1 partition; 1 partition has fewer in-sync replicas than it should have; 1 broker is dead",
		health.Assess(v, nil, nil).Summary)
}

func TestStatesHaveNames(t *testing.T) {
	text, err := json.Marshal(health.Assess(three(), nil, nil))
	require.NoError(t, err)
	require.Contains(t, string(text), `"state":"healthy"`)
	var r health.Report
	require.NoError(t, json.Unmarshal(text, &r))
	require.Error(t, json.Unmarshal([]byte(`{"state":"fine"}`), &r))
}

func TestSafeToStop(t *testing.T) {
	reasons := func(v api.ClusterView, n ident.Node) []string {
		got, err := health.SafeToStop(v, n)
		require.NoError(t, err)
		return got
	}
	v := three()
	require.Empty(t, reasons(v, "n1"), "two in-sync replicas stay")
	v.Topics[0].Partitions[0].ISR = []ident.Node{"n1", "n2"}
	require.Contains(t, reasons(v, "n1")[0], "1 of 2 in-sync replicas")
	require.Contains(t, reasons(v, "n2")[0], "orders/0")
	require.Empty(t, reasons(v, "n3"), "a replica that is not in sync is not missed")
	v.Topics[0].Partitions[0].MinInSync = 1
	require.Contains(t, reasons(v, "n1")[0], "one live disk")
	v.Topics[0].Partitions[0].ISR = []ident.Node{"n1"}
	require.Contains(t, reasons(v, "n1")[0], "no live in-sync replica")
	v = three()
	v.Brokers[0].Drain = "leaders"
	require.Contains(t, reasons(v, "n1")[0], "its drain is not finished: it leads 1 partition")
	v.Topics[0].Partitions[0].Leader = "n2"
	require.Empty(t, reasons(v, "n1"))
	v.Brokers[0].Drain = "replicas"
	require.Contains(t, reasons(v, "n1")[0], "it has 1 replica")
	v = three()
	v.MetadataUnheardMS = 1
	require.NotEmpty(t, reasons(v, "n1"))
	v = three()
	v.Brokers[0].Alive = false
	require.Empty(t, reasons(v, "n1"), "it is stopped")
	_, err := health.SafeToStop(v, "n9")
	require.ErrorContains(t, err, `no broker "n9"`)
}
