package e2e

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/testkit/loopdisk"
)

// TestFailingDiskOfTheLeader: under load the disk of the leader's journal begins
// to fail. It gives its leaderships away and ends by itself; producers elsewhere
// see no error, and it comes back with what its disk has kept (P1, P7, P8).
func TestFailingDiskOfTheLeader(t *testing.T) {
	processes(t)
	c := layOut(t, freePorts(t, 3), 3)
	disks := c.ownDisks()
	require.NoError(t, c.StartAll())
	c.ready()
	s := c.underLoad(1)
	victim := s.leader(topic)
	began := time.Now()
	s.down.begin(victim)
	require.NoError(t, disks[victim].Break())
	s.until(victim+" to end", func() bool { return slices.Contains(s.Dead(), victim) })
	require.Contains(t, s.logged(victim), "STORE failed")
	s.waitProgress(500)
	s.requireLoad(began)
	require.NotEqual(t, victim, s.leader(topic))
	require.NoError(t, disks[victim].Repair())
	s.restart(victim)
	s.whole(topic)
	s.finish(t)
	s.requireStalls([]fault{{what: "failing disk of the leader", limit: time.Second, at: began}})
}

// ownDisks gives each broker's journal a disk that can fail; the test is skipped
// where that cannot be.
func (c *cluster) ownDisks() map[string]*loopdisk.Disk {
	c.t.Helper()
	disks := map[string]*loopdisk.Disk{}
	for _, b := range c.Brokers {
		d, err := loopdisk.Mount(filepath.Join(c.dir, b.Name+".disk"), filepath.Join(b.DataDir, "journal"), 128<<20)
		if err != nil {
			env.Missing(c.t, "disks of its own", err)
		}
		c.t.Cleanup(func() {
			c.killProcesses()
			require.NoError(c.t, d.Close())
		})
		disks[b.Name] = d
	}
	return disks
}
