package devcmd

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// TestEtcdWaitsForItsOthers: one of several members waits without a limit, names the missing
// ones, and ends at once after Ctrl-C.
func TestEtcdWaitsForItsOthers(t *testing.T) {
	own, other := freeAddress(t), freeAddress(t)
	r := clitest.Begin(t, newRoot(), "etcd", "--name=n1", "--data-dir="+filepath.Join(t.TempDir(), "etcd"), "--client-address="+freeAddress(t), "--peer-address="+own,
		"--initial-cluster=n1=http://"+own+",n2=http://"+other)
	wait.Until(t, func() bool {
		return strings.Contains(r.Said(), "waiting for n2: 1 of 2 members of the metadata run, 2 are needed (n2 at http://"+other+": no process listens there)")
	}, "it names the missing member")
	r.Cancel()
	require.NoError(t, r.Ends())
	require.NotContains(t, r.Said(), "ready,")
}
