package metadata

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestExternalEtcd: clusters of two and of four brokers on one etcd outside, with
// the limits of a stock one; the leader of each is killed and comes back.
func TestExternalEtcd(t *testing.T) {
	e2etest.Processes(t)
	endpoint := e2etest.ExternalEtcd(t).Endpoint
	for _, brokers := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			c := e2etest.External(t, endpoint, brokers)
			const partitions = 100 // more than fit into one transaction with two operations each
			c.Create(e2etest.Topic, e2etest.Channel, partitions)
			out, err := c.Nsqctl("topic", "create", "too-many", "--partitions", "200")
			require.Error(t, err)
			require.Contains(t, out, "--max-txn-ops")
			v, _ := c.Topic(e2etest.Topic)
			require.Equal(t, min(brokers, 3), v.ReplicationFactor)
			require.Equal(t, 2, v.MinInSync)
			for _, b := range c.Brokers {
				require.Equal(t, judge.OK, e2etest.PutOnce(b, e2etest.Topic, "before "+b.Name))
			}
			victim := c.Leader(e2etest.Topic)
			c.Crash(victim)
			if brokers > 2 {
				require.Equal(t, judge.OK, e2etest.PutOnce(c.Other(victim), e2etest.Topic, "while one is dead"))
			}
			c.Restart(victim)
			c.Whole(e2etest.Topic)
			require.Equal(t, judge.OK, e2etest.PutOnce(c.Other(victim), e2etest.Topic, "after"))
			if brokers > 3 {
				decommission(c, victim)
			}
		})
	}
}

// decommission frees a broker of all replicas.
func decommission(c *e2etest.Cluster, name string) {
	c.T.Helper()
	out, err := c.Nsqctl("cluster", "decommission", name)
	require.NoError(c.T, err, out)
	c.Until(name+" without replicas", func() bool {
		v, ok := c.Topic(e2etest.Topic)
		for _, p := range v.Partitions {
			ok = ok && !slices.Contains(p.Replicas, ident.Node(name)) && len(p.ISR) == len(p.Replicas)
		}
		return ok
	})
	c.Check(e2etest.Topic)
}

// TestPublishingGoesOnWithoutMetadata: etcd hangs, then it is killed, each for
// longer than the brokers' sessions. Clients do not notice, because all replicas answer.
// Changes of the metadata wait until etcd is back.
func TestPublishingGoesOnWithoutMetadata(t *testing.T) {
	e2etest.Processes(t)
	e := e2etest.ExternalEtcd(t)
	c := e2etest.External(t, e.Endpoint, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 4)
	s := c.Loaded(2)
	const away = e2etest.SessionTTL + 2*time.Second
	for _, fault := range []struct {
		what       string
		begin, end func()
	}{
		{
			"hangs",
			func() { require.NoError(t, e.Cmd.Process.Signal(syscall.SIGSTOP)) },
			func() { require.NoError(t, e.Cmd.Process.Signal(syscall.SIGCONT)) },
		},
		{"is dead", e.Kill, e.Start},
	} {
		// Leaders that were all replaced by one are given back after a moment. A metadata
		// store that dies just then costs such a partition two thirds of --write-timeout: whether the
		// other one leads cannot be known (docs/robustness.md, "Known limits").
		c.Until("the preferred brokers lead", func() bool { return c.Preferred(e2etest.Topic) })
		began := time.Now()
		fault.begin()
		e2etest.Pause(away) // the fault's own length
		s.WaitProgress(200)
		ended := time.Now()
		got := s.Stall(began, ended)
		t.Logf("etcd %s for %s: %s", fault.what, ended.Sub(began).Round(time.Millisecond), got)
		require.Less(t, got.Gap, e2etest.Slack(500*time.Millisecond), fault.what)
		fault.end()
		s.WaitProgress(200)
		s.Whole(e2etest.Topic)
	}
	victim := c.Leader(e2etest.Topic)
	s.Crash(victim)
	s.WaitProgress(200)
	s.Restart(victim)
	s.Whole(e2etest.Topic)
	s.Finish(t)
}
