package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMembersLeaveUntilOneIsLeft: each is permanently stopped, and the others continue.
func TestMembersLeaveUntilOneIsLeft(t *testing.T) {
	t.Parallel()
	_, servers := steady(t, 3)
	_, rest := leaderOf(t, servers)
	last := rest[0]
	for _, s := range servers {
		if s == last {
			continue
		}
		require.NoError(t, s.TransferLeadership())
		require.NoError(t, s.Leave(t.Context()))
		s.Stop()
		put(t, last, "k")
	}
	require.NoError(t, last.Leave(t.Context()), "nothing to leave")
	put(t, last, "k")
}
