package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// roles are what a broker does besides following.
type roles struct{ partition, controller, etcd bool }

// String names the roles: "leader+etcd".
func (r roles) String() string {
	parts := []string{"follower"}
	if r.partition {
		parts[0] = "leader"
	}
	if r.controller {
		parts = append(parts, "controller")
	}
	if r.etcd {
		parts = append(parts, "etcd")
	}
	return strings.Join(parts, "+")
}

// limit is how long a put elsewhere may wait when a broker with these roles dies.
func (r roles) limit() time.Duration {
	switch {
	case r.partition:
		return time.Second
	case r.etcd:
		return 600 * time.Millisecond
	}
	return 300 * time.Millisecond
}

// roles looks up what a broker does at this moment.
func (c *cluster) roles(name string) roles {
	c.t.Helper()
	b, err := c.Broker(name)
	require.NoError(c.t, err)
	var v edge.ClusterView
	require.NoError(c.t, c.get(*b, "/v1/cluster", &v))
	return roles{
		partition:  c.leader(topic) == name,
		controller: string(v.Controller) == name,
		etcd:       leadsEtcd(c.t, *b),
	}
}

// leadsEtcd asks the embedded member of a broker.
func leadsEtcd(t *testing.T, b devcluster.Broker) bool {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.Etcd}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	status, err := client.Status(ctx, b.Etcd)
	require.NoError(t, err)
	return status.Leader == status.Header.MemberId
}

// TestKillInEveryRole kills one broker after the other under load, whatever it
// is at that time, and shows the worst stall of each combination of roles (P7).
func TestKillInEveryRole(t *testing.T) {
	s := underLoad(t, 1)
	var faults []fault
	for i := range rounds(6, 60) {
		victim := names(s.cluster)[i%3]
		was := s.roles(victim)
		killed := time.Now()
		s.kill(victim)
		s.waitProgress(1000)
		s.requireLoad(killed)
		s.restart(victim)
		s.whole(topic)
		pause(reconnect) // till then what this broker's clients see is excused
		faults = append(faults, fault{what: "kill of " + was.String(), limit: was.limit(), at: killed})
	}
	s.finish(t)
	s.requireStalls(faults)
}
