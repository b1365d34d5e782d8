package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// A dead-letter topic is made by the policy that names it, so its name is held to
// the rules of any topic: it is a folder's name on every disk.
func TestADeadLetterTopicHasATopicsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		for _, bad := range []string{"dead/orders", "../../escaped", "two words", "new\nline"} {
			err := do(t.Context(), c.nodes["n1"], operation{Verb: "channel.policy", Topic: "orders", Channel: "billing",
				Args: map[string]string{"max_attempts": "3", "dead_letter_topic": bad}})
			require.ErrorIs(t, err, outcome.ErrInvalid, "%q", bad)
			_, made := c.nodes["n1"].Topic(bad)
			require.False(t, made, "%q", bad)
		}
	})
}

// TestAPolicyIsInForceWhenItIsAnswered: the answer waits for the leaders of all
// partitions; if one of them does not confirm, the error names it.
func TestAPolicyIsInForceWhenItIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "3"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		topic, _ := c.nodes["n1"].Topic("orders")
		behind := c.leaderOf(topic.Partition(1))
		on := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[behind]
		c.sessions[behind].Cut()
		set := func(ctx context.Context, backoff string) error {
			return do(ctx, c.nodes[on], operation{Verb: "channel.policy", Topic: "orders", Channel: "billing", Args: map[string]string{"retry_backoff": backoff}})
		}
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := set(short, "1s")
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		require.ErrorContains(t, err, "led by "+behind)
		done := make(chan error, 1)
		go func() { done <- set(t.Context(), "1h") }()
		select {
		case err := <-done:
			require.FailNow(t, "answered before all leaders have it", "%v", err)
		case <-time.After(300 * time.Millisecond):
		}
		c.sessions[behind].Heal()
		require.NoError(t, <-done)
		q, ok := c.nodes[behind].Queue(topic.Partition(1))
		require.True(t, ok)
		channel, ok := q.Channel("billing")
		require.True(t, ok)
		require.EqualValues(t, time.Hour.Milliseconds(), channel.Policy().Backoff.BaseMS)
	})
}
