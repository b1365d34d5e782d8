package clustercmd

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// A drain is done when the broker leads nothing, and with --replicas has nothing; not before the
// broker that was asked has the request.
func TestDrainWaits(t *testing.T) {
	v := api.ClusterView{
		Brokers: []api.BrokerView{{Name: "n1", Alive: true}, {Name: "n2", Alive: true, Drain: "leaders"}},
		Topics: []api.TopicView{{Topic: "orders", ReplicationFactor: 2, Partitions: []api.PartitionView{
			{Leader: "n2", Replicas: []ident.Node{"n1", "n2"}, ISR: []ident.Node{"n1", "n2"}},
		}}},
	}
	require.Equal(t, []string{"orders/0 is led by n2"}, undrained("n2", false)(v))
	v.Topics[0].Partitions[0].Leader = "n1"
	require.Empty(t, undrained("n2", false)(v))
	require.Equal(t, []string{"orders/0 has a replica on n2"}, undrained("n2", true)(v))
	v.Brokers[1].Drain = ""
	require.Len(t, undrained("n2", false)(v), 1, "it has not received the request")
	v.Brokers[1].Drain = "leaders"
	require.Contains(t, text(func(w io.Writer) { printStatus(w, v, false) }), "drained of leaders (0 left)")
	address, changes := clitest.Planning(t, &api.Plan{}, v)
	_, err := run(t, time.Minute, "broker", "drain", "n2", "--wait", "10s", "--nsqd-http-address", address)
	require.NoError(t, err)
	_, err = run(t, time.Minute, "broker", "undrain", "n2", "--nsqd-http-address", address)
	require.NoError(t, err)
	require.Equal(t, "/v1/broker/drain?cancel=true&node=n2", changes()[1])
}
