package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

// TestDeadLettersDoNotWaitForAnotherTopic: one channel's dead-letter topic has no
// leader; another channel's dead messages are moved as ever.
func TestDeadLettersDoNotWaitForAnotherTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// TestDeadLettersThatCannotGoAreLoggedOnce: the dead-letter topic is full. Each attempt has
// one log line, not each message.
func TestDeadLettersThatCannotGoAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "topic.create", "dead", "", map[string]string{"max_bytes": "1"})
		c.do("n1", "channel.policy", "orders", "billing", map[string]string{"max_attempts": "1", "dead_letter_topic": "dead"})
		const messages = 200
		consumer := c.subscribe("n1", "orders", "billing", messages)
		for i := range messages {
			require.NoError(t, c.put("n1", "orders", fmt.Sprint("m", i)))
		}
		consumer.take(messages)
		told := test.NewLocal(c.log)
		consumer.sub.Close(true) // all fail together
		lines := func() (all []*logrus.Entry) {
			for _, e := range told.AllEntries() {
				if strings.HasPrefix(e.Message, "cannot move") {
					all = append(all, e)
				}
			}
			return all
		}
		c.eventually(func() bool { return len(lines()) > 0 }, "nothing is said")
		require.Less(t, len(lines()), messages/2)
		require.Equal(t, messages, lines()[0].Data["count"])
		require.ErrorIs(t, lines()[0].Data[logrus.ErrorKey].(error), outcome.ErrTopicFull)
	})
}

// TestAPutWaitsForNoDeletedTopic: a put waits for the leader of a topic, and the topic is deleted. It
// is answered then, and not at the put limit.
func TestAPutWaitsForNoDeletedTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		names := []string{"orders", "invoices", "letters", "parcels"}
		topic := ""
		for _, name := range names {
			c.do("n1", "topic.create", name, "", map[string]string{"replication_factor": "1"})
			if c.leader(name) == "n3" {
				topic = name
			}
		}
		require.NotEmpty(t, topic, "n3 leads none of %v", names)
		c.kill("n3")
		answered := make(chan error, 1)
		began := time.Now()
		go func() { answered <- c.put("n1", topic, "x") }()
		time.Sleep(time.Second)
		require.Empty(t, answered, "it waits for the leader")
		c.do("n2", "topic.delete", topic, "", nil)
		err := <-answered
		require.ErrorContains(t, err, "topic deleted, not stored")
		require.Less(t, time.Since(began), 5*time.Second)
	})
}
