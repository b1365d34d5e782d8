package e2etest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// Roles are what a broker does besides following.
type Roles struct{ Partition, controller, Etcd bool }

// String names the roles: "leader+etcd".
func (r Roles) String() string {
	parts := []string{"follower"}
	if r.Partition {
		parts[0] = "leader"
	}
	if r.controller {
		parts = append(parts, "controller")
	}
	if r.Etcd {
		parts = append(parts, "etcd")
	}
	return strings.Join(parts, "+")
}

// Roles looks up what a broker does at this moment.
func (c *Cluster) Roles(name string) Roles {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	var v api.ClusterView
	require.NoError(c.T, c.Get(*b, "/v1/cluster", &v))
	return Roles{
		Partition:  c.Leader(Topic) == name,
		controller: string(v.Controller) == name,
		Etcd:       leadsEtcd(c.T, *b),
	}
}

// leadsEtcd asks the embedded member of a broker.
func leadsEtcd(t *testing.T, b devcluster.Broker) bool {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.Etcd}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), StartLimit)
	defer cancel()
	status, err := client.Status(ctx, b.Etcd)
	require.NoError(t, err)
	return status.Leader == status.Header.MemberId
}
