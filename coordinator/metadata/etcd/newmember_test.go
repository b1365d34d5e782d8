package etcd_test

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// memberAt returns the member at the peer address of o in the list of s; nil = there is none.
func memberAt(t *testing.T, s *etcd.Server, o etcd.Options) (found *etcdserverpb.Member) {
	t.Helper()
	list, err := client(t, s).MemberList(t.Context())
	require.NoError(t, err)
	for _, m := range list.Members {
		if m.PeerURLs[0] == "http://"+o.PeerAddress {
			require.Nil(t, found, "two members at one address")
			found = m
		}
	}
	return found
}

// TestLearnerIsNotAddedTwice: a member was added as a learner and lost its directory before it
// voted. It may have run under that identity, though the list of members does not show it. So
// the next start removes that identity and joins under another one.
func TestLearnerIsNotAddedTwice(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"it never ran": false, "it ran": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := options(t, "n1"), options(t, "n2")
			first.InitialCluster = "n1=http://" + first.PeerAddress
			second.InitialCluster = first.InitialCluster + ",n2=http://" + second.PeerAddress
			founder := opening(t, first).up()
			if !runs {
				taken, err := net.Listen("tcp", second.ClientAddress)
				require.NoError(t, err)
				stopped := opening(t, second)
				<-stopped.done
				require.Error(t, stopped.err, "its port is taken")
				require.NoError(t, taken.Close())
			} else {
				m := opening(t, second)
				<-m.done
				require.NoError(t, m.err)
				ready(t, m.server)
				crashAll(m.server)
				m.stop()
			}
			old := memberAt(t, founder, second)
			require.True(t, old.IsLearner)
			require.NoError(t, os.RemoveAll(dataPath(second)))

			m := opening(t, second) // etcd derives the id from the address and the current second, and refuses a removed one
			<-m.done
			require.NoError(t, m.err)
			require.NotEqual(t, old.ID, memberAt(t, founder, second).ID)
			again := m.server
			ready(t, again)
			require.NoError(t, again.Promote(wait.Context(t)))
			voter := memberAt(t, founder, second)
			require.Equal(t, again.MemberID(), voter.ID)
			require.False(t, voter.IsLearner)
			crashAll(founder, again)
		})
	}
}
