package topics

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestOtherReplicationFactors: with two replicas an OK means both, so that puts
// wait while one is dead; with five, two of them may die at once, the leader
// among them, and puts continue.
func TestOtherReplicationFactors(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	for _, x := range []struct{ brokers, factor, minimum, dead int }{{3, 2, 2, 1}, {5, 5, 3, 2}} {
		t.Run(fmt.Sprintf("%d of %d brokers", x.factor, x.brokers), func(t *testing.T) {
			c := e2etest.Start(t, x.brokers)
			c.CreateWith(e2etest.Topic, e2etest.Channel, "replication_factor", fmt.Sprint(x.factor))
			c.Whole(e2etest.Topic)
			v, _ := c.Topic(e2etest.Topic)
			require.Equal(t, x.minimum, v.MinInSync)
			s := c.Loaded(2)
			for range e2etest.Rounds(2, 6) {
				leader := c.Leader(e2etest.Topic)
				v, _ := c.Topic(e2etest.Topic)
				others := slices.DeleteFunc(v.Partitions[0].Replicas, func(n ident.Node) bool { return string(n) == leader })
				victims := []string{leader}
				for _, n := range others[:x.dead-1] {
					victims = append(victims, string(n))
				}
				for _, name := range victims {
					c.Crash(name)
				}
				if x.factor-x.dead >= x.minimum {
					s.WaitProgress(500)
				}
				for _, name := range victims {
					c.Restart(name)
				}
				s.WaitProgress(500)
				c.Whole(e2etest.Topic)
			}
			s.Finish(t)
		})
	}
}
