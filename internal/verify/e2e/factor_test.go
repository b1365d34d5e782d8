package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestOtherReplicationFactors: with two replicas an OK means both, so that puts
// wait while one is dead; with five, two of them may die at once, the leader
// among them, and puts go on.
func TestOtherReplicationFactors(t *testing.T) {
	processes(t)
	for _, x := range []struct{ brokers, factor, minimum, dead int }{{3, 2, 2, 1}, {5, 5, 3, 2}} {
		t.Run(fmt.Sprintf("%d of %d brokers", x.factor, x.brokers), func(t *testing.T) {
			c := start(t, x.brokers)
			c.createWith(topic, channel, "replication_factor", fmt.Sprint(x.factor))
			c.whole(topic)
			v, _ := c.topic(topic)
			require.Equal(t, x.minimum, v.MinInSync)
			s := c.loaded(2)
			for range rounds(2, 6) {
				leader := c.leader(topic)
				v, _ := c.topic(topic)
				others := slices.DeleteFunc(v.Partitions[0].Replicas, func(n ident.Node) bool { return string(n) == leader })
				victims := []string{leader}
				for _, n := range others[:x.dead-1] {
					victims = append(victims, string(n))
				}
				for _, name := range victims {
					c.kill(name)
				}
				if x.factor-x.dead >= x.minimum {
					s.waitProgress(500)
				}
				for _, name := range victims {
					c.restart(name)
				}
				s.waitProgress(500)
				c.whole(topic)
			}
			s.finish(t)
		})
	}
}
