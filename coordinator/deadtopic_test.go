package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDeadLettersDoNotWaitForAnotherTopic: one channel's dead-letter topic has no
// leader; another channel's dead messages are moved as ever.
func TestDeadLettersDoNotWaitForAnotherTopic(t *testing.T) {
	c := newCluster(t, 2)
	led := map[string][]string{}
	for i := range 8 {
		name := fmt.Sprint("t", i)
		c.do("n1", "topic.create", name, "", map[string]string{"replication_factor": "1"})
		led[c.leader(name)] = append(led[c.leader(name)], name)
	}
	require.GreaterOrEqual(t, len(led["n1"]), 3)
	require.NotEmpty(t, led["n2"])
	badSource, goodSource, goodDead, badDead := led["n1"][0], led["n1"][1], led["n1"][2], led["n2"][0]
	for source, dead := range map[string]string{badSource: badDead, goodSource: goodDead} {
		c.do("n1", "channel.create", source, "billing", nil)
		c.do("n1", "channel.policy", source, "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": dead})
	}
	c.kill("n2")
	bad := c.subscribe("n1", badSource, "billing", 10)
	defer bad.sub.Close(true)
	require.NoError(t, c.put("n1", badSource, "poison"))
	require.NoError(t, bad.sub.Requeue(bad.next().ID, 0)) // nobody can take it
	good := c.subscribe("n1", goodSource, "billing", 10)
	defer good.sub.Close(true)
	dead := c.subscribe("n1", goodDead, "redrive", 10)
	defer dead.sub.Close(true)
	for i := range 3 {
		require.NoError(t, c.put("n1", goodSource, fmt.Sprint("m", i)))
		require.NoError(t, good.sub.Requeue(good.next().ID, 0))
		began := time.Now()
		dead.finish(dead.next())
		t.Logf("moved after %s", time.Since(began))
		require.Less(t, time.Since(began), 3*time.Second)
	}
}
