package mirror

import (
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestMirrorAndImportKeepTheTargetsOwnMessages: the channel of the target has a delayed message and a requeued one
// of its own. The mirror and an import finish the copies that the source has finished, and leave both.
func TestMirrorAndImportKeepTheTargetsOwnMessages(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	for _, how := range []string{"mirror", "import"} {
		t.Run(how, func(t *testing.T) {
			east, west := e2etest.Start(t, 1), e2etest.Start(t, 1)
			east.Create("orders", "billing", 1)
			west.Create("orders", "billing", 1)
			require.True(t, publish(west, "orders", "requeued"))
			require.True(t, publish(west, "orders&defer=3600000", "delayed"))
			west.ConsumeFrom("orders", "billing", 1, 1, func(string) time.Duration { return time.Hour })
			require.Equal(t, 2, delayedAt(west))
			publishMany(east, "orders", "m", 100)
			require.True(t, publish(east, "orders&defer=3600000", "of the source"))
			require.Len(t, east.ConsumeFrom("orders", "billing", 60, 60, func(string) time.Duration { return 0 }), 60)
			if how == "mirror" {
				run := func() {
					out, problems, err := west.Ctl("mirror", "run", "orders", "--until-caught-up", "--poll=100ms", "--from-http-address="+east.Brokers[0].HTTP, "--state="+filepath.Join(t.TempDir(), "state"))
					require.NoError(t, err, out+problems)
				}
				run()
				require.Equal(t, 3, delayedAt(west), "with the copy of the delayed one")
				run()
			} else {
				stream := filepath.Join(t.TempDir(), "orders.lsx")
				east.Must("export", "orders", "--file", stream)
				west.Must("import", stream)
			}
			require.Equal(t, 3, delayedAt(west), "with the copy of the delayed one")
			left := west.ConsumeFrom("orders", "billing", 40, 1000, func(string) time.Duration { return 0 })
			require.GreaterOrEqual(t, len(left), 40)
			require.LessOrEqual(t, len(left), 60, "no more than was finished out of order")
			require.NotContains(t, left, "requeued")
		})
	}
}

// delayedAt is the number of delayed messages of the channel.
func delayedAt(c *e2etest.Cluster) int {
	c.T.Helper()
	var v struct{ Messages []struct{ ID string } }
	require.NoError(c.T, c.Get(c.Brokers[0], "/v1/channel/deferred?"+url.Values{"topic": {"orders"}, "channel": {"billing"}}.Encode(), &v))
	return len(v.Messages)
}
