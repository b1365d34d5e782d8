package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// A dead-letter topic is made by the policy that names it, so its name is held to
// the rules of any topic: it is a folder's name on every disk.
func TestADeadLetterTopicHasATopicsName(t *testing.T) {
	c := newCluster(t, 1)
	c.do("n1", "topic.create", "orders", "", nil)
	c.do("n1", "channel.create", "orders", "billing", nil)
	for _, bad := range []string{"dead/orders", "../../escaped", "two words", "new\nline"} {
		err := c.nodes["n1"].Do(t.Context(), edge.AdminOp{Verb: "channel.policy", Topic: "orders", Channel: "billing",
			Args: map[string]string{"max_attempts": "3", "dead_letter_topic": bad}})
		require.ErrorIs(t, err, edge.ErrInvalid, "%q", bad)
		_, made := c.nodes["n1"].Topic(bad)
		require.False(t, made, "%q", bad)
	}
}
