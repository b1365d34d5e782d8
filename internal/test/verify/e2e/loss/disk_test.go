package loss

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/loopdisk"
)

// TestFailingDiskOfTheLeader: under load the disk of the leader's journal begins
// to fail. It gives its leaderships away and ends by itself; producers elsewhere
// see no error, and it comes back with what its disk has kept (P1, P7, P8).
func TestFailingDiskOfTheLeader(t *testing.T) {
	e2etest.Processes(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3)
	disks := ownDisks(c)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	s := c.UnderLoad(1)
	victim := s.Leader(e2etest.Topic)
	began := time.Now()
	s.Down.Begin(victim)
	require.NoError(t, disks[victim].Break())
	s.Until(victim+" to end", func() bool { return slices.Contains(s.Dead(), victim) })
	require.Contains(t, s.Logged(victim), "store failed")
	s.WaitProgress(500)
	s.RequireLoad(began)
	require.NotEqual(t, victim, s.Leader(e2etest.Topic))
	require.NoError(t, disks[victim].Repair())
	s.Restart(victim)
	s.Whole(e2etest.Topic)
	s.Finish(t)
	s.RequireStalls([]e2etest.Fault{{What: "failing disk of the leader", Limit: time.Second, At: began}})
}

// ownDisks gives each broker's journal a disk that can fail; the test is skipped
// where that cannot be.
func ownDisks(c *e2etest.Cluster) map[string]*loopdisk.Disk {
	c.T.Helper()
	disks := map[string]*loopdisk.Disk{}
	for _, b := range c.Brokers {
		d, err := loopdisk.Mount(filepath.Join(c.Dir, b.Name+".disk"), filepath.Join(b.DataDir, "journal"), 128<<20)
		if err != nil {
			env.Missing(c.T, "disks of its own", err)
		}
		c.T.Cleanup(func() {
			c.KillProcesses()
			require.NoError(c.T, d.Close())
		})
		disks[b.Name] = d
	}
	return disks
}
