package disks

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestOldCopyAtAColdStart: n1 and n2 alone hold the last puts, and that n3 is not in
// sync; then both stop, and n1 comes back with an old copy of its disk. With n3 it
// would be a majority that knows nothing of these puts (P1).
func TestOldCopyAtAColdStart(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{700 * time.Millisecond, 8 * time.Second}[:e2etest.Rounds(1, 2)] {
		t.Run(late.String(), func(t *testing.T) {
			c := e2etest.Start(t, 3)
			c.Create(e2etest.Topic, e2etest.Channel, 1)
			require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[1], e2etest.Topic, "before"))
			c.Whole(e2etest.Topic)
			b, err := c.Broker("n1")
			require.NoError(t, err)
			copied := b.DataDir + ".copy"
			c.Until("a copy", func() bool { // a file that the broker removes in the meantime fails cp
				require.NoError(t, os.RemoveAll(copied))
				return exec.Command("cp", "-a", b.DataDir, copied).Run() == nil
			})
			c.Crash("n3")
			const puts = 100
			for i := range puts {
				require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[1], e2etest.Topic, fmt.Sprintf("m%d", i)))
			}
			for _, name := range []string{"n1", "n2"} {
				c.Down.Begin(name)
				require.NoError(t, c.Stop(name, e2etest.StopLimit))
			}
			require.NoError(t, os.RemoveAll(b.DataDir))
			require.NoError(t, os.Rename(copied, b.DataDir))
			require.NoError(t, c.Start("n1"))
			require.NoError(t, c.Start("n3"))
			e2etest.Pause(late)
			require.NoError(t, c.Start("n2"))
			for _, name := range e2etest.Names(c) {
				c.ReadyAgain(name)
			}
			c.Whole(e2etest.Topic)
			require.EqualValues(t, puts+1, c.Committed(e2etest.Topic), "what was acknowledged is there")
			c.Check(e2etest.Topic)
			require.Regexp(t, "the data path is an? (old )?copy", c.Logged("n1"), "by its marks, or by what n2 saw")
			for _, name := range e2etest.Names(c) {
				require.NotContains(t, c.Logged(name), "replication alarm")
			}
		})
	}
}

// TestCopiedConfigurationHurtsNobody: a second broker starts under the name of one
// that runs, with its configuration and an empty data path. It is refused; the one
// that runs continues.
func TestCopiedConfigurationHurtsNobody(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprintf("embedded %t", embedded), func(t *testing.T) {
			var c *e2etest.Cluster
			if embedded {
				c = e2etest.Start(t, 3)
			} else {
				c = e2etest.External(t, e2etest.ExternalEtcd(t).Endpoint, 2)
			}
			c.Create(e2etest.Topic, e2etest.Channel, 1)
			twin, err := c.Broker("n2")
			require.NoError(t, err)
			code, said := c.Twin(t, *twin, embedded)
			require.Equal(t, 1, code, said)
			require.Contains(t, said, "a --node-name of its own", said)
			require.Empty(t, c.Dead("n2"))
			require.Equal(t, judge.OK, e2etest.PutOnce(*twin, e2etest.Topic, "goes on"))
			c.Whole(e2etest.Topic)
			require.NotContains(t, c.Logged("n2"), "registration lost")
		})
	}
}
